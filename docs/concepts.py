"""Draws the nouns of the program and what makes what, as an SVG: the picture of docs/start/concepts.md."""

from html import escape

BOXES = {
    "task": (10, 20, "Task", ("data, question, metrics", "card: source, licence, split")),
    "model": (10, 150, "Model", ("a network, a server, a folder", "of predictions, your class")),
    "run": (290, 85, "Run", ("answers first, scores after;", "killed, it goes on")),
    "rows": (570, 85, "Score rows", ("case, label, metric,", "value, status")),
    "table": (850, 20, "Table, figure", ("means, intervals over patients,", "footnotes with all choices")),
    "test": (850, 150, "Comparison, report", ("paired tests, ranks, groups;", "pages with every case")),
}
"""Name -> left, top, title, lines."""

ARROWS = (("task", "run"), ("model", "run"), ("run", "rows"), ("rows", "table"), ("rows", "test"))
WIDTH, HEIGHT = 220, 90


def draw() -> str:
    """Returns the SVG."""
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1080 260" font-family="Helvetica, Arial, sans-serif">',
        "<title>A task and a model make a run, its score rows make tables, figures, comparisons and reports</title>",
        (
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" orient="auto">'
            '<path d="M0 0 L8 4 L0 8 Z" fill="#5b6770"/></marker></defs>'
        ),
    ]
    for start, end in ARROWS:
        (left, top, *_), (to_left, to_top, *_) = BOXES[start], BOXES[end]
        parts.append(
            f'<line x1="{left + WIDTH + 4}" y1="{top + HEIGHT / 2:g}" x2="{to_left - 6}" y2="{to_top + HEIGHT / 2:g}" '
            'stroke="#5b6770" stroke-width="2" marker-end="url(#tip)"/>'
        )
    for left, top, title, lines in BOXES.values():
        parts.append(
            f'<rect x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#eef4fa" stroke="#2b6ca3" '
            f'stroke-width="1.5"/><text x="{left + 14}" y="{top + 30}" font-size="19" '
            'font-weight="bold" fill="#123a5c">'
            f"{escape(title)}</text>"
        )
        parts += [
            f'<text x="{left + 14}" y="{top + 53 + 20 * number}" font-size="14" fill="#333">{escape(line)}</text>'
            for number, line in enumerate(lines)
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"
