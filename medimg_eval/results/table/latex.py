r"""A table as LaTeX that compiles unchanged in any engine with `\usepackage{booktabs}`."""

from __future__ import annotations

import math
import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from medimg_eval.results.table.layout import Layout, Printable, Span, Style

_BREAK = r" \\ "
_COLUMNS = 12
"""Columns that a page may hold."""
_STYLES: dict[Style, str] = {
    "plain": "%s",
    "best": r"\textbf{%s}",
    "second": r"\underline{%s}",
    "interval": r"{\small %s}",
    "quiet": "%s",
    "head": r"\textit{%s}",
}
_CHARACTERS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "_": r"\_",
    "%": r"\%",
    "&": r"\&",
    "#": r"\#",
    "$": r"\$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "\N{EN DASH}": r"\textendash{}",
    "\N{EM DASH}": r"\textemdash{}",
    "\N{HYPHEN}": "-",
    "\N{NON-BREAKING HYPHEN}": "-",
    "\N{MINUS SIGN}": "$-$",
    "\N{HORIZONTAL ELLIPSIS}": r"\dots{}",
    "\N{LEFT SINGLE QUOTATION MARK}": "`",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'",
    "\N{LEFT DOUBLE QUOTATION MARK}": "``",
    "\N{RIGHT DOUBLE QUOTATION MARK}": "''",
    "\N{DAGGER}": r"\dag{}",
    "\N{DOUBLE DAGGER}": r"\ddag{}",
    "\N{SECTION SIGN}": r"\S{}",
    "\N{PILCROW SIGN}": r"\P{}",
    "\N{COPYRIGHT SIGN}": r"\copyright{}",
    "\N{REGISTERED SIGN}": r"\textregistered{}",
    "\N{TRADE MARK SIGN}": r"\texttrademark{}",
    "\N{POUND SIGN}": r"\pounds{}",
    "\N{BULLET}": r"$\bullet$",
    "\N{MIDDLE DOT}": r"$\cdot$",
    "\N{DEGREE SIGN}": r"$^{\circ}$",
    "\N{MICRO SIGN}": r"$\mu$",
    "\N{SUPERSCRIPT ONE}": "$^{1}$",
    "\N{SUPERSCRIPT TWO}": "$^{2}$",
    "\N{SUPERSCRIPT THREE}": "$^{3}$",
    "\N{INVERTED QUESTION MARK}": r"\textquestiondown{}",
    "\N{INVERTED EXCLAMATION MARK}": r"\textexclamdown{}",
    "\N{LEFT-POINTING DOUBLE ANGLE QUOTATION MARK}": r"$\ll$",
    "\N{RIGHT-POINTING DOUBLE ANGLE QUOTATION MARK}": r"$\gg$",
    "ß": r"\ss{}",
    "æ": r"\ae{}",
    "Æ": r"\AE{}",
    "œ": r"\oe{}",
    "Œ": r"\OE{}",
    "ø": r"\o{}",
    "Ø": r"\O{}",
    "ł": r"\l{}",
    "Ł": r"\L{}",
    "ı": r"\i{}",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≠": r"$\neq$",
    "≈": r"$\approx$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "÷": r"$\div$",
    "¬": r"$\neg$",
    "∞": r"$\infty$",
    "√": r"$\surd$",
    "∈": r"$\in$",
    "∑": r"$\Sigma$",
    "∆": r"$\Delta$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "→": r"$\rightarrow$",
    "←": r"$\leftarrow$",
}
"""What LaTeX would read itself, or has no letter for in its first font encoding."""
_ACCENTS = {
    "\N{COMBINING GRAVE ACCENT}": "`",
    "\N{COMBINING ACUTE ACCENT}": "'",
    "\N{COMBINING CIRCUMFLEX ACCENT}": "^",
    "\N{COMBINING TILDE}": "~",
    "\N{COMBINING DIAERESIS}": '"',
    "\N{COMBINING MACRON}": "=",
    "\N{COMBINING DOT ABOVE}": ".",
    "\N{COMBINING RING ABOVE}": "r",
    "\N{COMBINING CARON}": "v",
    "\N{COMBINING BREVE}": "u",
    "\N{COMBINING DOUBLE ACUTE ACCENT}": "H",
    "\N{COMBINING CEDILLA}": "c",
    "\N{COMBINING DOT BELOW}": "d",
}
_LATIN_LOOKALIKES = {"omicron": "o", "Eta": "H", "Rho": "P", "Chi": "X"} | {
    letter: letter[0] for letter in ("Alpha", "Beta", "Epsilon", "Zeta", "Iota", "Kappa", "Mu", "Nu", "Omicron", "Tau")
}
_GREEK = frozenset(
    (
        *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu"),
        *("nu", "xi", "pi", "rho", "sigma", "varsigma", "tau", "upsilon", "phi", "chi", "psi", "omega"),
        *("Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Upsilon", "Phi", "Psi", "Omega"),
    )
)
"""Greek letters that LaTeX has a command for; the others look like Latin ones."""


def to_latex(table: Printable) -> str:
    r"""Returns a `table` environment with its footnotes; the document needs `\usepackage{booktabs}`.

    More than 12 columns are broken into blocks of about equal width, one below the other. The text is ASCII: letters
    with accents, Greek and signs become commands, and what LaTeX's own fonts lack, such as an emoji, its code point.
    """
    layout = table.layout()
    blocks = [_make_tabular(block) for block in _layout_blocks(layout)]
    lines = [
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{escape(layout.caption)}.}}",
        "\n\\par\\medskip\n".join(blocks),
        r"\par\smallskip",
        r"\begin{minipage}{\linewidth}",
        r"\footnotesize",
        *(rf"{escape(note)}\par" for note in layout.footnotes),
        r"\end{minipage}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Returns text escaped for LaTeX in ASCII, hyphens separate."""
    return re.sub("-(?=-)", "-{}", "".join(map(_latex_character, unicodedata.normalize("NFC", text))))


def _latex_character(char: str) -> str:
    if char in _CHARACTERS:
        return _CHARACTERS[char]
    if char.isascii():
        return char
    letter, *marks = list(unicodedata.normalize("NFD", char))
    if greek := _greek_letter(letter):
        return greek
    return _accented_letter(letter, marks) if marks and letter.isascii() else _plain_character(char)


def _accented_letter(letter: str, marks: Sequence[str]) -> str:
    """Returns a Latin letter with accents that OT1 has."""
    for mark in marks:
        letter = rf"\{_ACCENTS[mark]}{{{letter}}}" if mark in _ACCENTS else letter
    return letter


def _plain_character(char: str) -> str:
    """Returns plain equivalents of ligatures, subscripts and the like."""
    plain = unicodedata.normalize("NFKC", char)
    if plain != char and plain.isascii():
        return "".join(map(_latex_character, plain))
    return "" if unicodedata.combining(char) or unicodedata.category(char) == "Cf" else f"[U+{ord(char):04X}]"


def _greek_letter(char: str) -> str:
    """Returns a Greek letter as a command of mathematics; "" for anything else."""
    kind, _, name = unicodedata.name(char, "").partition(" LETTER ")
    if kind not in ("GREEK SMALL", "GREEK CAPITAL"):
        return ""
    name = {"LAMDA": "lambda", "FINAL SIGMA": "varsigma"}.get(name, name.lower())
    name = name.capitalize() if kind == "GREEK CAPITAL" else name
    return rf"$\{name}$" if name in _GREEK else _LATIN_LOOKALIKES.get(name, "")


def _layout_blocks(layout: Layout) -> Iterator[Layout]:
    """Yields the layout in blocks of columns that a page may hold."""
    columns = len(layout.headings)
    number = max(math.ceil(columns / _COLUMNS), 1)
    for block in range(number):
        yield layout.columns(slice(columns * block // number, columns * (block + 1) // number))


def _make_tabular(layout: Layout) -> str:
    spans, rules, first = [""] * len(layout.stubs), [], len(layout.stubs) + 1
    for title, width in layout.groups:
        spans.append(rf"\multicolumn{{{width}}}{{c}}{{{escape(title)}}}")
        if title:
            rules.append(rf"\cmidrule(lr){{{first}-{first + width - 1}}}")
        first += width
    headings = [escape(text) for text in (*layout.stubs, *(heading.text for heading in layout.headings))]
    body = [
        ("\\midrule\n" if line.opens else "")
        + _latex_row([*map(escape, line.names), *(_latex_cell(layout, cell) for cell in line.cells)])
        for line in layout.lines
    ]
    lines = [
        rf"\begin{{tabular}}{{{'l' * len(layout.stubs)}{'c' * len(layout.headings)}}}",
        r"\toprule",
        *([_latex_row(spans), " ".join(rules)] if layout.grouped else []),
        _latex_row(headings),
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines)


def _latex_cell(layout: Layout, spans: Sequence[Span]) -> str:
    lines = [" ".join(_STYLES[span.style] % escape(span.text) for span in line) for line in layout.cell_lines(spans)]
    return lines[0] if len(lines) == 1 else rf"\shortstack{{{_BREAK.join(lines)}}}"


def _latex_row(cells: Sequence[str]) -> str:
    row = rf"{' & '.join(cells)} \\"
    # At the start of a row these two would be read as an argument of the \\ that ends the row before.
    return f"{{}}{row}" if row.startswith(("[", "*")) else row
