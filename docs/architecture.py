"""Draws the floors of the house, their rooms and what imports what, as an SVG; all of it is read from the code.

Floors stand above what they import, in the layers that import-linter holds. Where siblings may not import each other in
circles, the rooms of a floor stand in rows of which each needs nothing but rows below it. An arrow that a longer way
already implies is left out of the picture. The SVG's description holds every room and every arrow as text: a test
compares it with the code.
"""

import sys
import tomllib
from pathlib import Path
from xml.sax.saxutils import escape

import grimp

ROOT = Path(__file__).resolve().parents[1]
NAME = "medimg_eval"
HELD_BY_ALL = ("errors",)
"""What every floor may raise: arrows to it say nothing."""

WIDTH, MARGIN, LANE, LABEL = 1080, 24, 13, 128
BOX, GAP, PAD, SPACE = 24, 8, 10, 18
CHARACTER = 6.3
"""The width of a letter, about; boxes are a little wider than their words in any sans-serif."""

Arrows = set[tuple[str, str]]
Rows = list[list[str]]


def contracts() -> tuple[list[list[str]], set[str]]:
    """The layers from the top, each a list of floors; and the floors whose rooms hold no circles."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    by_type = {contract["type"]: contract for contract in linter["contracts"]}
    layers = [[part.strip().removeprefix(f"{NAME}.") for part in layer.split("|")] for layer in by_type["layers"]["layers"]]
    return layers, {name.removeprefix(f"{NAME}.") for name in by_type["acyclic_siblings"]["ancestors"]}


def arrows_between(graph: grimp.ImportGraph, depth: int, within: str = NAME) -> Arrows:
    """Who imports whom, by the names at `depth` below the package."""
    found = set()
    for module in graph.modules:
        for other in graph.find_modules_directly_imported_by(module):
            if module.startswith(f"{within}.") and other.startswith(f"{within}."):
                found.add((module.split(".")[depth], other.split(".")[depth]))
    return {(one, other) for one, other in found if one != other}


def reach(arrows: Arrows, start: str) -> set[str]:
    """What `start` needs, itself or through others."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        one = waiting.pop()
        following = {other for name, other in arrows if name == one} - found
        found |= following
        waiting += following
    return found


def shown(arrows: Arrows) -> Arrows:
    """The arrows that no longer way implies."""
    return {
        (one, other)
        for one, other in arrows
        if not any(other in reach(arrows, step) for name, step in arrows if name == one and step != other)
    }


def in_rows(names: list[str], arrows: Arrows) -> Rows:
    """Names in rows from the top: each row imports only from those below it."""
    height: dict[str, int] = {}

    def high(name: str) -> int:
        if name not in height:
            height[name] = 1 + max((high(other) for one, other in sorted(arrows) if one == name), default=-1)
        return height[name]

    tops = sorted({high(name) for name in names}, reverse=True)
    return [sorted(name for name in names if high(name) == top) for top in tops]


def house() -> tuple[list[list[str]], dict[str, Rows], Arrows]:
    """Layers of floors, the rooms of each floor by rows, and the arrows between floors."""
    graph = grimp.build_graph(NAME, exclude_type_checking_imports=True, cache_dir=None)
    layers, without_circles = contracts()
    rooms: dict[str, Rows] = {}
    for floor in (floor for layer in layers for floor in layer):
        inside = sorted(name.split(".")[2] for name in graph.find_children(f"{NAME}.{floor}"))
        if floor in without_circles:
            rooms[floor] = in_rows(inside, arrows_between_rooms(graph, floor))
        else:
            packages = [name for name in inside if graph.find_children(f"{NAME}.{floor}.{name}")]
            rooms[floor] = [packages] if packages else []
    known = {floor for layer in layers for floor in layer}
    between = arrows_between(graph, 1)
    return layers, rooms, {(one, other) for one, other in between if {one, other} <= known}


def arrows_between_rooms(graph: grimp.ImportGraph, floor: str) -> Arrows:
    """Who imports whom on one floor."""
    within = f"{NAME}.{floor}"
    inside = {name for name in graph.modules if name.startswith(f"{within}.")}
    pairs = {(name, other) for name in inside for other in graph.find_modules_directly_imported_by(name) if other in inside}
    named = {(name.split(".")[2], other.split(".")[2]) for name, other in pairs}
    return {(one, other) for one, other in named if one != other}


def described(layers: list[list[str]], rooms: dict[str, Rows], arrows: Arrows) -> str:
    """Every floor, room and arrow as lines of text."""
    lines = []
    for layer in layers:
        for floor in layer:
            lines.append(f"{floor}: {' / '.join(' '.join(row) for row in rooms[floor])}".rstrip(": "))
            below = sorted(other for one, other in arrows if one == floor)
            lines += [f"{floor} imports {' '.join(below)}"] if below else []
    return "\n".join(lines)
