"""GeoJSON of QuPath, XML of ASAP and ImageScope: read, drawn, traced and written."""

import gzip
import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.errors import CaseError
from medimg_eval.imaging.annotations import Annotation, Frame, draw, outline, read_annotations, write_annotations

SQUARE = [[2, 1], [6, 1], [6, 4], [2, 4], [2, 1]]


def feature(geometry, **properties):
    return {"type": "Feature", "id": "7f", "geometry": geometry, "properties": properties}


def written(path, content):
    path.write_text(json.dumps(content))
    return path


def test_qupaths_polygon_fills_the_pixels_between_its_edges(tmp_path):
    """x from 2 to 6 are columns 2 to 5, y from 1 to 4 rows 1 to 3: QuPath counts from the corner of the first pixel."""
    polygon = feature(
        {"type": "Polygon", "coordinates": [SQUARE]},
        objectType="annotation", classification={"name": "Tumor", "color": [200, 0, 0]}, measurements={"Area": 12.0},
    )  # fmt: skip
    (one,) = read_annotations(written(tmp_path / "a.geojson", {"type": "FeatureCollection", "features": [polygon]}))
    assert (one.name, one.kind, one.id, one.values) == ("Tumor", "area", "7f", {"Area": 12})
    labels, numbers = draw([one], {"Tumor": 3}, (6, 8))
    expected = np.zeros((6, 8), int)
    expected[1:4, 2:6] = 3
    np.testing.assert_array_equal(labels, expected)
    np.testing.assert_array_equal(numbers, expected // 3)


def test_holes_and_parts(tmp_path):
    hole = [[3, 2], [5, 2], [5, 3], [3, 3], [3, 2]]
    far = [[0, 5], [2, 5], [2, 6], [0, 6], [0, 5]]
    content = [feature({"type": "MultiPolygon", "coordinates": [[SQUARE, hole], [far]]})]
    (one,) = read_annotations(written(tmp_path / "a.json", content))  # a list, as older versions export
    _, numbers = draw([one], {"": 1}, (6, 8))
    expected = np.zeros((6, 8), int)
    expected[1:4, 2:6] = 1
    expected[2, 3:5] = 0
    expected[5, 0:2] = 1
    np.testing.assert_array_equal(numbers, expected)


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ({"name": "Tumor", "colorRGB": -65536}, "Tumor"),
        ({"names": ["Tumor", "Positive"]}, "Tumor: Positive"),
        ("Stroma", "Stroma"),
        (None, ""),
    ],
)
def test_how_versions_of_qupath_name_classes(tmp_path, said, name):
    content = feature({"type": "Point", "coordinates": [2.5, 1.5]}, classification=said)
    (one,) = read_annotations(written(tmp_path / "a.geojson", content))
    assert (one.name, one.kind) == (name, "points")


def test_points_measurements_and_compression(tmp_path):
    content = feature(
        {"type": "MultiPoint", "coordinates": [[2.5, 1.5], [0.5, 0.5]]},
        measurements=[{"name": "Probability", "value": 0.75}, {"name": "Note", "value": "x"}],
    )
    (tmp_path / "a.geojson.gz").write_bytes(gzip.compress(json.dumps(content).encode()))
    (one,) = read_annotations(tmp_path / "a.geojson.gz")
    assert one.values == {"Probability": 0.75}
    assert Frame().indices(one.parts[0][0]).tolist() == [[1, 2], [0, 0]]


ASAP = """<?xml version="1.0"?>
<ASAP_Annotations>
  <Annotations>
    <Annotation Name="Annotation 0" Type="Polygon" PartOfGroup="_0" Color="#F4FA58"><Coordinates>
      <Coordinate Order="1" X="6" Y="1" /><Coordinate Order="0" X="2" Y="1" />
      <Coordinate Order="2" X="6" Y="4" /><Coordinate Order="3" X="2" Y="4" />
    </Coordinates></Annotation>
    <Annotation Name="Annotation 1" Type="Spline" PartOfGroup="_2" Color="#F4FA58"><Coordinates>
      <Coordinate Order="0" X="3" Y="2" /><Coordinate Order="1" X="5" Y="2" />
      <Coordinate Order="2" X="5" Y="3" /><Coordinate Order="3" X="3" Y="3" />
    </Coordinates></Annotation>
    <Annotation Name="Annotation 2" Type="Dot" PartOfGroup="None" Color="#F4FA58"><Coordinates>
      <Coordinate Order="0" X="0.5" Y="2.5" />
    </Coordinates></Annotation>
  </Annotations>
  <AnnotationGroups><Group Name="_0" PartOfGroup="None" Color="#00ff00"><Attributes /></Group></AnnotationGroups>
</ASAP_Annotations>"""


def test_asaps_groups_are_drawn_in_the_order_of_labels_and_0_erases(tmp_path):
    (tmp_path / "a.xml").write_text(ASAP)
    found = read_annotations(tmp_path / "a.xml")
    assert [(one.name, one.kind) for one in found] == [("_0", "area"), ("_2", "area"), ("", "points")]
    labels, numbers = draw(found, {"_0": 1, "_1": 1, "_2": 0}, (6, 8))
    expected = np.zeros((6, 8), int)
    expected[1:4, 2:6] = 1
    expected[2, 3:5] = 0
    np.testing.assert_array_equal(labels, expected)
    np.testing.assert_array_equal(numbers, expected)
    assert draw(found, {"_2": 0, "_0": 1}, (6, 8))[0].sum() == 12  # nothing is erased that comes later


APERIO = """<Annotations MicronsPerPixel="0.25"><Annotation Id="1" Name="" Type="4">
<Attributes><Attribute Name="Epithelial" Id="0" Value="" /></Attributes><Regions>
<Region Id="1" Type="0" NegativeROA="0"><Vertices>
<Vertex X="2" Y="1" Z="0" /><Vertex X="6" Y="1" Z="0" /><Vertex X="6" Y="4" Z="0" /><Vertex X="2" Y="4" Z="0" />
</Vertices></Region>
<Region Id="2" Type="2"><Vertices><Vertex X="0" Y="0" /><Vertex X="8" Y="6" /></Vertices></Region>
</Regions></Annotation></Annotations>"""


def test_aperios_regions_as_monusac_has_them(tmp_path):
    (tmp_path / "a.xml").write_text(APERIO)
    square, ellipse = read_annotations(tmp_path / "a.xml")
    assert (square.name, square.id, ellipse.name) == ("Epithelial", "1", "Epithelial")
    assert draw([square], {"Epithelial": 1}, (6, 8))[0].sum() == 12
    rows, columns = np.indices((6, 8)) + 0.5
    inside = ((columns - 4) / 4) ** 2 + ((rows - 3) / 3) ** 2 < 0.97
    assert draw([ellipse], {"Epithelial": 1}, (6, 8))[0][inside].all()


def test_two_that_touch_stay_two_and_the_later_covers_the_earlier():
    one = Annotation("n", "area", ((np.array([[0, 0], [4, 0], [4, 2], [0, 2]]),),))
    other = Annotation("n", "area", ((np.array([[3, 0], [6, 0], [6, 2], [3, 2]]),),))
    labels, numbers = draw([one, other], {"n": 2}, (2, 6))
    assert labels.tolist() == [[2] * 6] * 2
    assert numbers.tolist() == [[1, 1, 1, 2, 2, 2]] * 2


def test_what_lies_outside_or_between_centres_is_no_pixel():
    tiny = Annotation("n", "area", ((np.array([[0.6, 0.6], [0.9, 0.6], [0.9, 0.9]]),),))
    away = Annotation("n", "area", ((np.array([[-9, -9], [-5, -9], [-5, -5]]),),))
    assert not draw([tiny, away], {"n": 1}, (3, 3))[0].any()


def test_a_grid_of_larger_pixels_somewhere_on_the_slide():
    square = Annotation("n", "area", ((np.array([[100.0, 200], [108, 200], [108, 204], [100, 204]]),),))
    labels, _ = draw([square], {"n": 1}, (4, 4), Frame((196, 96), (4, 4)))
    assert labels.tolist() == [[0] * 4, [0, 1, 1, 0], [0] * 4, [0] * 4]


masks = st.integers(0, 10**9).map(
    lambda seed: np.kron(np.random.default_rng(seed).integers(0, 3, (4, 5)), np.ones((1 + seed % 2, 2), int))
)


@settings(max_examples=40, deadline=None)
@given(masks, st.sampled_from([Frame(), Frame((40, 30), (4, 2.5))]), st.booleans())
def test_what_is_traced_is_drawn_again(mask, frame, numbered):
    """Parts, holes and parts that touch at a corner."""
    numbers = np.where(mask > 0, np.arange(mask.size).reshape(mask.shape) // 5 % 4 + 1, 0) if numbered else None
    traced = outline(mask, {1: "a", 2: "b"}, numbers, frame)
    labels, drawn = draw(traced, {"a": 1, "b": 2}, mask.shape, frame)
    np.testing.assert_array_equal(labels, mask)
    if numbered:
        pairs = set(zip(drawn[mask > 0].tolist(), (mask * 10 + numbers)[mask > 0].tolist(), strict=True))
        assert len(pairs) == len({one for one, _ in pairs}) == len({other for _, other in pairs}) == len(traced)


@settings(max_examples=15, deadline=None)
@given(masks)
def test_files_give_back_what_was_written(tmp_path_factory, mask):
    folder = tmp_path_factory.mktemp("drawn")
    traced = [
        *outline(mask, {1: "a", 2: "b"}),
        Annotation("p", "points", ((np.array([[1.25, 2.5]]),),), {"score": 0.5}),
    ]
    for name in ("a.geojson", "a.xml"):
        write_annotations(folder / name, traced, holes="hole")
        read = read_annotations(folder / name)
        points = [one for one in read if one.kind == "points"]
        assert [one.parts[0][0].tolist() for one in points] == [[[1.25, 2.5]]]
        if name == "a.geojson":
            assert [one.name for one in read] == [one.name for one in traced]
            assert points[0].values == {"score": 0.5}
            np.testing.assert_array_equal(draw(read, {"a": 1, "b": 2}, mask.shape)[0], mask)
    for label, group in ((1, "a"), (2, "b")):
        # ASAP's holes erase what lies in them: of one class alone that is its own mask, but for islands in holes.
        alone = outline(np.where(mask == label, 1, 0), {1: group})
        write_annotations(folder / "b.xml", alone, holes="hole")
        drawn = draw(read_annotations(folder / "b.xml"), {group: 1, "hole": 0}, mask.shape)[0]
        assert not (drawn & (mask != label)).any()


def test_features_of_geojson_are_those_of_the_standard(tmp_path):
    write_annotations(tmp_path / "a.geojson", outline(np.array([[0, 1], [0, 0]]), {1: "Tumor"}))
    content = json.loads((tmp_path / "a.geojson").read_text())
    (one,) = content["features"]
    assert (content["type"], one["type"], one["geometry"]["type"]) == ("FeatureCollection", "Feature", "Polygon")
    ring = one["geometry"]["coordinates"][0]
    assert ring[0] == ring[-1]  # closed
    assert one["properties"] == {"objectType": "annotation", "classification": {"name": "Tumor"}}


def test_xml_is_asaps(tmp_path):
    write_annotations(tmp_path / "a.xml", outline(np.array([[0, 1], [0, 0]]), {1: "Tumor"}))
    root = ET.parse(tmp_path / "a.xml").getroot()  # noqa: S314
    (one,) = root.findall("Annotations/Annotation")
    assert (root.tag, one.get("Type"), one.get("PartOfGroup")) == ("ASAP_Annotations", "Polygon", "Tumor")
    assert [group.get("Name") for group in root.findall("AnnotationGroups/Group")] == ["Tumor"]
    assert [corner.get("Order") for corner in one.iter("Coordinate")] == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.geojson", "{", r"a\.geojson: is neither GeoJSON nor XML"),
        ("a.geojson", "3", "expected GeoJSON features, got int"),
        ("a.geojson", '[{"type": "Feature"}]', r"a\.geojson, feature 1: is not understood \(KeyError: 'geometry'"),
        (
            "a.geojson",
            '[{"geometry": {"type": "Polygon", "coordinates": [[[0, 0], [1, 1]]]}}]',
            "an outline of 2 points",
        ),
        ("a.geojson", '[{"geometry": {"type": "Curve"}}]', "geometry 'Curve'; expected polygons, lines or points"),
        ("a.geojson", '[{"geometry": {"type": "Point", "coordinates": [NaN, 1]}}]', "not finite"),
        ("a.xml", "<ASAP_Annotations>", r"a\.xml: is no XML"),
        ("a.xml", "<svg/>", "holds <svg>, expected ASAP's"),
        ("a.xml", '<!DOCTYPE a [<!ENTITY b "c">]><Annotations/>', "declares entities"),
        ("a.xml", ASAP.replace('X="6" ', "", 1), "an annotation is not understood"),
        ("a.xml", APERIO.replace('NegativeROA="0"', 'NegativeROA="1"'), "a negative region"),
    ],
)
def test_files_that_are_not_understood_are_named(tmp_path, name, content, words):
    (tmp_path / name).write_text(content)
    with pytest.raises(CaseError, match=words):
        read_annotations(tmp_path / name)
    with pytest.raises(CaseError, match=r"b\.xml: no such file"):
        read_annotations(tmp_path / "b.xml")


def test_what_cannot_be_written_is_refused(tmp_path):
    ring = outline(np.pad([[0]], 1, constant_values=1), {1: "Tumor"})
    with pytest.raises(
        CaseError, match=r"ASAP knows no holes; name the group they are written as by holes='exclusion'"
    ):
        write_annotations(tmp_path / "a.xml", ring)
    with pytest.raises(CaseError, match=r"annotations are written as \.geojson, \.json \(QuPath\) or \.xml \(ASAP\)"):
        write_annotations(tmp_path / "a.txt", ring)
    assert not list(tmp_path.iterdir())
