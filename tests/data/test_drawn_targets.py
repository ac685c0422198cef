"""What is drawn in QuPath, ASAP or ImageScope as the truth of pictures and slides."""

import json

import numpy as np
import pytest
from PIL import Image as Pillow

from medimg_eval.data import targets
from medimg_eval.data.layouts import Volumes
from medimg_eval.data.records import Entry, Row
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.imaging import ImageFile
from medimg_eval.imaging.slides import write_pyramid
from tests.helpers.benchmark_files import task


def square(x, y, size, name):
    ring = [[x, y], [x + size, y], [x + size, y + size], [x, y + size], [x, y]]
    return {"geometry": {"type": "Polygon", "coordinates": [ring]}, "properties": {"classification": {"name": name}}}


def point(x, y, name):
    return {"geometry": {"type": "Point", "coordinates": [x, y]}, "properties": {"classification": {"name": name}}}


def entry(root, drawn, image=None, **options):
    """A case whose picture has 6 rows and 8 columns, unless it has an image of its own."""
    path = root / (image or "a.png")
    if image is None:
        Pillow.fromarray(np.zeros((6, 8, 3), np.uint8)).save(path)
    if drawn is not None:
        (root / "a.geojson").write_text(json.dumps(drawn))
    return Entry("a", root, (Row(root, "", {"case": "a"}),), (ImageFile(path, **options),))


def test_nuclei_that_touch_keep_their_numbers(tmp_path):
    drawn = [square(0, 0, 3, "Epithelial"), square(3, 0, 3, "Epithelial"), square(0, 4, 2, "Lymphocyte")]
    target = targets.DrawnAreas("{case}.geojson", {"Lymphocyte": 2, "Epithelial": 1})
    mask = target.reference(entry(tmp_path, drawn)).read()
    assert mask.labels[0].tolist() == [1] * 6 + [0] * 2
    assert len({mask.instances[0, 0], mask.instances[0, 3], mask.instances[4, 0]}) == 3
    assert (mask.geometry.shape, mask.units, mask.notes) == ((6, 8), "pixel", ())


def test_areas_that_no_pixel_is_left_of_are_counted(tmp_path):
    drawn = [square(0, 0, 3, "a"), square(0, 0, 4, "a"), square(5.6, 0.6, 0.2, "a")]
    mask = targets.DrawnAreas("{case}.geojson", {"a": 1}).reference(entry(tmp_path, drawn)).read()
    assert mask.notes == ("2 of 3 areas hold no pixel's centre, or are covered by others",)


def test_classes_nobody_named(tmp_path):
    one = entry(tmp_path, [square(0, 0, 3, "Tumour")])
    with pytest.raises(CaseError, match=r"a\.geojson: holds the class 'Tumour'; did you mean 'Tumor'.*others=ignore"):
        targets.DrawnAreas("{case}.geojson", {"Tumor": 1}).reference(one).read()
    assert not targets.DrawnAreas("{case}.geojson", {"Tumor": 1}, others="ignore").reference(one).read().labels.any()
    with pytest.raises(UsageError, match="got 'skip'"):
        targets.DrawnAreas("{case}.geojson", {"Tumor": 1}, others="skip")


def test_slides_on_which_nothing_is_drawn(tmp_path):
    one = entry(tmp_path, None)
    with pytest.raises(CaseError, match=r"a\.geojson: no such file"):
        targets.DrawnAreas("{case}.geojson", {"a": 1}).reference(one).read()
    reference = targets.DrawnAreas("{case}.geojson", {"a": 1}, absent="empty").reference(one)
    assert not reference.read().labels.any()
    assert reference.files == (tmp_path / "a.png",)
    assert targets.DrawnPoints("{case}.geojson", absent="empty").reference(one).read().positions.shape == (0, 2)


def test_points_and_centres_of_boxes(tmp_path):
    drawn = [point(2.5, 1.5, "mitosis"), square(2, 1, 4, "mitosis"), point(0.5, 0.5, "imposter")]
    one = entry(tmp_path, drawn)
    points = targets.DrawnPoints("{case}.geojson").reference(one).read()
    assert (points.positions.tolist(), points.names) == (
        [[1, 2], [2.5, 3.5], [0, 0]],
        ("mitosis", "mitosis", "imposter"),
    )
    renamed = targets.DrawnPoints("{case}.geojson", names={"mitosis": "mitotic figure"}, others="ignore")
    assert renamed.reference(one).read().names == ("mitotic figure",) * 2


def test_lines_are_no_points_and_annotations_need_an_image(tmp_path):
    line = {"geometry": {"type": "LineString", "coordinates": [[0, 0], [1, 1]]}, "properties": {}}
    with pytest.raises(CaseError, match="holds a line of class ''"):
        targets.DrawnPoints("{case}.geojson").reference(entry(tmp_path, [line])).read()
    with pytest.raises(UserError, match="annotations need the image they are drawn on"):
        targets.DrawnPoints("{case}.geojson").reference(Entry("a", tmp_path, (Row(tmp_path, "", {}),)))


@pytest.mark.parametrize(
    ("options", "shape", "first", "step"),
    [
        ({}, (48, 64), (0, 0), 1),
        ({"options": {"level": 1}}, (24, 32), (0, 0), 2),
        ({"options": {"um_per_px": 2.0}}, (12, 16), (0, 0), 4),
        ({"options": {"um_per_px": 2.0}, "region": ((8, 40), (16, 64))}, (8, 12), (8, 16), 4),
    ],
)
def test_level_0_pixels_become_those_that_are_read(tmp_path, options, shape, first, step):
    write_pyramid(tmp_path / "s.tif", np.zeros((48, 64, 3), np.uint8), um_per_px=0.5, tile=16, levels=3)
    drawn = [square(24, 16, 8, "tumour"), point(26, 18, "mitosis")]
    one = entry(tmp_path, drawn, "s.tif", **options)
    target = targets.DrawnAreas("{case}.geojson", {"tumour": 1}, others="ignore")
    mask = target.reference(one).read()
    top, left = (16 - first[0]) // step, (24 - first[1]) // step
    expected = np.zeros(shape, int)
    expected[top : top + 8 // step, left : left + 8 // step] = 1
    np.testing.assert_array_equal(mask.labels, expected)
    assert mask.geometry.spacing == pytest.approx((0.0005 * step,) * 2)  # mm, so that radii can be in micrometres
    points = targets.DrawnPoints("{case}.geojson", names={"mitosis": "m"}, others="ignore").reference(one).read()
    assert points.positions.tolist() == [[(18 - first[0]) / step - 0.5, (26 - first[1]) / step - 0.5]]


APERIO = (
    '<Annotations><Annotation><Attributes><Attribute Name="{}"/></Attributes>'
    "<Regions>{}</Regions></Annotation></Annotations>"
)


def test_monusac_is_judged_nucleus_by_nucleus(tmp_path):
    folder = tmp_path / "MoNuSAC Testing Data and Annotations/TCGA-2Z-A9JG-01Z-00-DX1"
    folder.mkdir(parents=True)
    Pillow.fromarray(np.zeros((6, 8, 3), np.uint8)).save(folder / "TCGA-2Z-A9JG-01Z-00-DX1_1.tif")

    def region(left, right):
        corners = [(left, 0), (right, 0), (right, 4), (left, 4)]
        return "<Region>" + "".join(f'<Vertex X="{x}" Y="{y}"/>' for x, y in corners) + "</Region>"

    content = APERIO.format("Epithelial", region(0, 2) + region(2, 4))
    ambiguous = APERIO.format("Ambiguous", region(5, 7)).removeprefix("<Annotations>")
    path = folder / "TCGA-2Z-A9JG-01Z-00-DX1_1.xml"
    path.write_text(content.removesuffix("</Annotations>") + ambiguous)
    made = task("monusac", tmp_path)
    (case,) = made.cases("test")
    assert case.patient == "TCGA-2Z-A9JG"
    truth = case.target.read()
    assert truth.labels[0].tolist() == [1, 1, 1, 1, 0, 5, 5, 0]
    kept = np.where(truth.labels == 1, truth.labels, 0)
    answer = type(truth)(kept, truth.affine, units="pixel", instances=truth.instances * (kept > 0))
    scores = {(one.label, one.metric): one.value for one in made.score(case, answer)}
    assert scores["nucleus", "instances_matched"] == scores["epithelial", "instances_matched"] == 2
    assert scores["nucleus", "pq"] == 1  # what is ambiguous is judged for nobody


def test_layouts_take_drawn_truth(tmp_path):
    entry(tmp_path, [square(0, 0, 3, "a")])
    made = Volumes(root=str(tmp_path), image="{case}.png", target=targets.DrawnAreas("{case}.geojson", {"a": 1}))
    assert made.cases("test")[0].target.read().labels.sum() == 9
