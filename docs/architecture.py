"""Draws the floors of the house, their rooms and what imports what, as an SVG; all of it is read from the code.

Floors stand above what they import, in the layers that import-linter holds. Where rooms may not need each other in
circles, they stand in rows, and each row needs only those below it. Arrows that a longer way implies are left out. The
SVG's description holds every room and arrow as text, which a test compares with the code.
"""

import ast
import sys
import tomllib
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

import grimp

ROOT = Path(__file__).resolve().parents[1]
NAME = "medimg_eval"
FREE = "errors"
"""What every floor may raise: arrows to it would say nothing."""

WIDTH, TOP, SIDE, TITLE = 940, 60, 88, 100
"""Of the picture, its heading, the space for arrows at either side, the names of floors; in pixels."""

BOX, GAP, BETWEEN, PAD, LANE = 22, 6, 12, 9, 13
LETTER = 6.6
"""How wide a letter is at most, on average: which font is there is not known."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#9a4f86", "#555555", "#8a6d00", "#2b7fb8")
"""Those of Okabe and Ito, dark enough for thin lines."""

Arrows = set[tuple[str, str]]
Rows = list[list[str]]
Spans = dict[str, tuple[float, float]]


class House(NamedTuple):
    """What the picture shows."""

    layers: list[list[str]]
    """Floors from the top; those of one layer do not import each other."""

    rooms: dict[str, Rows]
    """The rooms of each floor, in rows."""

    arrows: Arrows
    """(importing floor, imported floor)."""

    packages: set[str]
    """Rooms ("metrics.text") that are folders, not single modules."""


def contracts() -> tuple[list[list[str]], set[str]]:
    """The layers that import-linter holds, and the floors whose rooms it keeps free of circles."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (layers,) = (contract["layers"] for contract in linter["contracts"] if contract["type"] == "layers")
    parents = [contract["ancestors"] for contract in linter["contracts"] if contract["type"] == "acyclic_siblings"]
    short = [[floor.strip().removeprefix(f"{NAME}.") for floor in layer.split("|")] for layer in layers]
    return short, {name.removeprefix(f"{NAME}.") for names in parents for name in names}


def imports(graph: grimp.ImportGraph, within: str) -> Arrows:
    """Which children of a package import which, themselves or by what lies in them."""
    depth = within.count(".") + 1
    inside = {name for name in graph.modules if name.startswith(f"{within}.")}
    pairs = {(name, other) for name in inside for other in graph.find_modules_directly_imported_by(name) & inside}
    children = {(name.split(".")[depth], other.split(".")[depth]) for name, other in pairs}
    return {(one, other) for one, other in children if one != other}


def reached(arrows: Arrows, start: str) -> set[str]:
    """What `start` needs, directly or not."""
    found: set[str] = set()
    waiting = {start}
    while waiting:
        following = {other for one, other in arrows if one in waiting} - found
        found |= following
        waiting = following
    return found


def direct(arrows: Arrows) -> Arrows:
    """The arrows that no longer way implies."""
    steps = {one: {other for name, other in arrows if name == one} for one, _ in arrows}
    beyond = {one: set().union(*(reached(arrows, step) for step in steps[one])) for one in steps}
    return {(one, other) for one, other in arrows if other not in beyond[one]}


def in_rows(names: Iterable[str], arrows: Arrows) -> Rows:
    """Names in rows from the top: each row imports only from those below it."""
    left, rows = set(names), []
    while left:
        low = {name for name in left if not any(one == name and other in left for one, other in arrows)}
        if not low:
            raise ValueError(f"These import each other in a circle: {', '.join(sorted(left))}. See `lint-imports`.")
        rows.insert(0, sorted(low))
        left -= low
    return rows


def read_house() -> House:
    """What the code is now."""
    graph = grimp.build_graph(NAME, exclude_type_checking_imports=True, cache_dir=None)
    layers, without_circles = contracts()
    rooms: dict[str, Rows] = {}
    packages = set()
    for floor in (floor for layer in layers for floor in layer):
        inside = {name.split(".")[2] for name in graph.find_children(f"{NAME}.{floor}")}
        folders = {name for name in inside if graph.find_children(f"{NAME}.{floor}.{name}")}
        packages |= {f"{floor}.{name}" for name in folders}
        free = floor in without_circles
        rooms[floor] = in_rows(inside, imports(graph, f"{NAME}.{floor}")) if free else [sorted(folders)] * bool(folders)
    arrows = {(one, other) for one, other in imports(graph, NAME) if one in rooms and other in rooms}
    return House(layers, rooms, arrows, packages)


def describe(house: House) -> str:
    """Every floor from the top, with its rooms row by row and all that it imports."""
    lines = []
    for layer in house.layers:
        for floor in layer:
            lines.append(f"{floor}: {' / '.join(' '.join(row) for row in house.rooms[floor])}".rstrip(": "))
            below = sorted(other for one, other in house.arrows if one == floor)
            lines += [f"{floor} imports {' '.join(below)}"] if below else []
    return "\n".join(lines)


def says(floor: str) -> str:
    """What a floor without rooms is for, by its docstring: the first sentence, or its beginning where that is long."""
    spec = find_spec(f"{NAME}.{floor}")
    source = Path(str(spec and spec.origin)).read_text(encoding="utf-8")
    first = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
    sentence = first.replace("`", "").partition(". ")[0].removesuffix(".")
    return sentence if len(sentence) * LETTER < WIDTH - 2 * SIDE - TITLE else sentence.partition(":")[0]


def text(x: float, y: float, words: str, kind: str) -> str:
    """Words, their baseline at y."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(words)}</text>'


def draw_rooms(house: House, floor: str, top: float) -> tuple[list[str], float]:
    """The rooms of a floor, and where they end."""
    parts, y = [], top
    if not house.rooms[floor]:
        return [text(SIDE + TITLE, top + BOX / 2 + 4, says(floor), "says")], top + BOX
    for row in house.rooms[floor]:
        x: float = SIDE + TITLE
        for room in row:
            wide = round(len(room) * LETTER + 14)
            if x + wide > WIDTH - SIDE - PAD:
                x, y = SIDE + TITLE, y + BOX + GAP
            kind = "room" if f"{floor}.{room}" in house.packages else "module"
            parts.append(f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{wide}" height="{BOX}" rx="4"/>')
            parts.append(text(x + wide / 2, y + BOX / 2 + 4, room, "name"))
            x += wide + GAP
        y += BOX + BETWEEN
    return parts, y - BETWEEN


def draw_floors(house: House) -> tuple[list[str], Spans, float]:
    """The floors, where each begins and ends, and how high all of them are."""
    parts: list[str] = []
    spans: Spans = {}
    y: float = TOP
    for layer in house.layers:
        for floor in layer:
            rooms, end = draw_rooms(house, floor, y + PAD)
            spans[floor] = (y, end + PAD)
            box = f'x="{SIDE}" y="{y:g}" width="{WIDTH - 2 * SIDE}" height="{end + PAD - y:g}"'
            parts += [f'<rect class="floor" {box} rx="6"/>', text(SIDE + PAD, y + PAD + 16, floor, "title"), *rooms]
            y = end + PAD + GAP
        y += BETWEEN - GAP
    return parts, spans, y


def lanes(arrows: Arrows, spans: Spans) -> dict[str, tuple[int, int]]:
    """For each floor that is imported, the side (-1 left, 1 right) and the lane its line runs in: one that is free."""
    taken: dict[tuple[int, int], list[tuple[float, float]]] = {}
    found = {}
    reach = {target: min(spans[one][0] for one, other in arrows if other == target) for _, target in arrows}
    for target in sorted(reach, key=lambda target: (spans[target][1] - reach[target], target)):
        span = (reach[target], spans[target][1])
        places = [(side, lane) for lane in range(len(spans)) for side in (1, -1)]
        free = (at for at in places if all(span[0] > end or span[1] < start for start, end in taken.get(at, [])))
        found[target] = next(free)
        taken.setdefault(found[target], []).append(span)
    return found


def draw_arrows(arrows: Arrows, spans: Spans) -> list[str]:
    """One line per imported floor: those that import it join at dots, and its arrow ends there."""
    places = lanes(arrows, spans)
    ends = {}
    for floor in spans:
        for side in (1, -1):
            ordered = sorted((name for name in places if places[name][0] == side), key=lambda name: -places[name][1])
            here = [name for name in ordered if (floor, name) in arrows] + [floor] * (floor in ordered)
            for index, name in enumerate(sorted(here, key=lambda name: name != floor)):
                ends[floor, name] = spans[floor][0] + (index + 1) * (spans[floor][1] - spans[floor][0]) / (
                    len(here) + 1
                )
    parts = []
    for index, (target, (side, lane)) in enumerate(sorted(places.items(), key=lambda item: spans[item[0]])):
        colour = COLOURS[index % len(COLOURS)]
        edge = WIDTH - SIDE if side > 0 else SIDE
        x = edge + side * (LANE + lane * LANE)
        sources = sorted((one for one, other in arrows if other == target), key=lambda one: spans[one])
        parts.append(f'<g stroke="{colour}" fill="{colour}">')
        parts += [f'<path d="M{edge} {ends[one, target]:.1f}H{x}V{ends[target, target]:.1f}"/>' for one in sources]
        parts += [f'<circle cx="{x}" cy="{ends[one, target]:.1f}" r="2.4"/>' for one in sources]
        head = ends[target, target]
        parts.append(f'<path d="M{x} {head:.1f}H{edge + side * 5}"/>')
        tip = f"M{edge} {head:.1f}l{side * 7} -3.5v7z"
        parts.append(f'<path class="tip" d="{tip}"/></g>')
    return parts


STYLE = """text{font-family:sans-serif;font-size:12px;fill:#222}.title{font-weight:bold;font-size:13px}
.says{fill:#55606b}.name{text-anchor:middle;font-size:11.5px}.floor{fill:#f4f6f8;stroke:#b8c2cc}.room{fill:#d6e6f2;stroke:#7fa6c4}
.module{fill:#fff;stroke:#b8c2cc}path{fill:none;stroke-width:1.3}path.tip{fill:inherit;stroke:none}"""


def draw(house: House) -> str:
    """The picture."""
    floors, spans, height = draw_floors(house)
    arrows = draw_arrows({(one, other) for one, other in direct(house.arrows) if other != FREE}, spans)
    one = "A floor imports floors below it, and a room rooms below it. Blue rooms are folders, white ones modules."
    two = "At a dot a floor joins the line that leads to what it imports. Left out: what a longer way implies, and"
    heading = [text(SIDE, 22, one, ""), text(SIDE, 40, f"{two} {FREE}.", "")]
    size = f'viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
        "<title>The floors and rooms of medimg_eval, and what imports what</title>",
        f"<desc>{escape(describe(house))}</desc>",
        f"<style>{STYLE}</style>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        *(heading + floors + arrows),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(draw(read_house()), encoding="utf-8")
