"""Draws the table of the runs below a folder as an SVG that loads nothing from outside."""

import sys
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

from medimg_eval.results import build_table, load_runs, to_rich

FORMAT = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {terminal_width} {terminal_height}">
<style>.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; line-height: {line_height}px; }}
{styles}</style>
<defs>{lines}</defs>
<rect width="100%" height="100%" fill="#ffffff"/>{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g></svg>
"""


def main(runs: str, out: str) -> None:
    """Writes the picture."""
    from rich.terminal_theme import DEFAULT_TERMINAL_THEME

    table = build_table(load_runs([Path(runs)]))
    console = Console(record=True, width=104, file=StringIO(), force_terminal=True)
    console.print(to_rich(table))
    for note in table.footnotes:
        console.print(Text(note))
    Path(out).write_text(console.export_svg(theme=DEFAULT_TERMINAL_THEME, code_format=FORMAT), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
