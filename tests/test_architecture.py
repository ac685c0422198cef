"""The figure of the house shows the rooms and the arrows that the code has now."""

import importlib.util
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import medimg_eval

ROOT = Path(medimg_eval.__file__).parents[1]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("architecture", ROOT / "docs" / "architecture.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def house(script):
    return script.read_house()


def test_the_committed_figure_is_of_the_code_as_it_is(script, house):
    """Its words, not its pixels: each floor with its rooms, and all that it imports."""
    drawn = ET.parse(ROOT / "docs" / "develop" / "architecture.svg").getroot().find(f"{SVG}desc").text  # noqa: S314
    assert drawn.splitlines() == script.describe(house).splitlines(), "rooms or arrows changed: run `make architecture`"


def test_every_floor_and_room_is_drawn_and_all_arrows_are_there_by_some_way(script, house):
    root = ET.fromstring(script.draw(house))  # noqa: S314
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert {floor for layer in house.layers for floor in layer} <= set(words)
    assert {room for rows in house.rooms.values() for row in rows for room in row} <= set(words)
    drawn = script.direct(house.arrows)
    assert all(other in script.reached(drawn, one) for one, other in house.arrows)


def test_floors_of_the_figure_are_all_there_are(house):
    """A floor that no layer names would be missing from the figure, and held by no contract."""
    tops = [
        path for path in (ROOT / "medimg_eval").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    ]
    names = {path.stem for path in tops} - {"__init__", "configs"}
    assert names == {floor for layer in house.layers for floor in layer}


def test_rooms_in_a_circle_are_refused_and_not_drawn_for_ever(script):
    assert script.in_rows("abc", {("a", "b"), ("b", "c")}) == [["a"], ["b"], ["c"]]
    with pytest.raises(ValueError, match="circle: a, b"):
        script.in_rows("abc", {("a", "b"), ("b", "a")})
