"""Mitoses and metastases: hit radii in micrometres, masks of lesions, look-alikes, scanners and centres."""

import json
import math

import numpy as np
import pytest
from PIL import Image as Pillow

from medimg_eval.case import Boxes, Points
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.imaging.slides import write_pyramid
from medimg_eval.tasks.detection import DetectionTask
from tests.helpers.benchmark_files import task
from tests.helpers.rows import run_of, summarised


def mitoses(root, **changes):
    """Two images, one a scanner: a mitosis at (60, 60) and a look-alike at (20, 20)."""
    (root / "images").mkdir(parents=True)
    images, annotations = [], []
    for number, scanner in enumerate(("Hamamatsu XR", "Aperio CS2"), start=1):
        Pillow.fromarray(np.zeros((100, 120, 3), np.uint8)).save(root / f"images/{number:03}.png")
        images.append({"id": number, "file_name": f"{number:03}.png", "scanner": scanner})
        annotations += [
            {"image_id": number, "category_id": kind, "bbox": [at - 25, at - 25, 50, 50]}
            for kind, at in ((1, 60), (2, 30))
        ]
    names = [{"id": 1, "name": "mitotic figure"}, {"id": 2, "name": "hard negative"}]
    for split in ("train", "validate", "test"):
        own = [{**one, "file_name": one["file_name"]} for one in images]
        content = {"images": own, "annotations": annotations, "categories": names}
        (root / f"{split}.json").write_text(
            json.dumps(content if split == "test" else content | {"images": [], "annotations": []})
        )
    return task("midog2021", root, **changes)


def said(*places, scores=None):
    scores = np.ones(len(places)) if scores is None else np.array(scores, float)
    return Points(np.array(places, float).reshape(-1, 2), ("mitotic figure",) * len(places), scores=scores)


def statuses(made, case, answer):
    return [score.status for score in made.score(case, answer) if score.metric == "detection_score"]


def test_thirty_pixels_are_seven_and_a_half_micrometres(tmp_path):
    made = mitoses(tmp_path)
    case = made.cases("test")[0]
    centre = 59.5  # of pixels 35 to 84
    for away, status in ((30, "hit"), (30.01, "false")):
        assert statuses(made, case, said((centre, centre + away))) == [status]
    assert statuses(made, case, said((centre, centre), (centre, centre + 1))) == ["hit", "false"]
    assert statuses(made, case, said((29.5, 29.5))) == ["false"]  # a look-alike
    boxes = Boxes(np.array([[35.0, 35, 84, 84]]), ("mitotic figure",), np.ones(1))
    assert statuses(made, case, boxes) == ["hit"]


def test_f1_is_of_all_images_together_and_a_failed_one_misses_its_mitoses(tmp_path):
    made = mitoses(tmp_path)
    one, other = made.cases("test")
    scores = [made.score(one, said((60, 60), (5, 5))), made.worst(other)]
    assert summarised("detection_f1", *scores) == pytest.approx(2 / (2 + 1 + 1))
    assert [case.attributes for case in (one, other)] == [{"scanner": "Hamamatsu XR"}, {"scanner": "Aperio CS2"}]
    assert run_of(*scores).cases == 2


def test_micrometres_need_a_size(tmp_path):
    made = mitoses(tmp_path, um_per_px=None)
    case = made.cases("test")[0]
    with pytest.raises(CaseError, match=r"001\.png states no physical size.*set task\.um_per_px"):
        made.score(case, said((60, 60)))
    assert all(math.isnan(score.value) for score in made.worst(case))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"um_per_px": 0}, "um_per_px to be micrometres above 0, got 0"),
        ({"unscored": ["a"]}, "different names"),
        ({"matching": {"matching": "nearest"}}, "matching.radius_um"),
    ],
)
def test_settings_that_cannot_be_meant(settings, words):
    with pytest.raises(UsageError, match=words):
        DetectionTask(name="m", layout=None, labels=["a"], **settings)


def test_the_signature_says_how_hits_are_measured(tmp_path):
    assert mitoses(tmp_path).signature() == "hit: nearest within 7.5 µm, one each, 0.25 µm per pixel"


XML = """<ASAP_Annotations><Annotations>{}</Annotations></ASAP_Annotations>"""


def area(group, left, top, right, bottom):
    corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
    places = "".join(f'<Coordinate Order="{at}" X="{x}" Y="{y}"/>' for at, (x, y) in enumerate(corners))
    return f'<Annotation Name="a" Type="Polygon" PartOfGroup="{group}"><Coordinates>{places}</Coordinates></Annotation>'


def metastases(root):
    """Two slides of 64 x 96 pixels at level 5, of which the second is normal."""
    (root / "images").mkdir(parents=True)
    (root / "annotations").mkdir()
    (root / "slides.csv").write_text(
        "slide,split,centre,scanner\ntest_001,test,RUMC,3DHISTECH\ntest_002,test,UMCU,Hamamatsu\n"
    )
    for name in ("test_001", "test_002"):
        pixels = np.full((2048, 3072, 3), 230, np.uint8)
        write_pyramid(root / f"images/{name}.tif", pixels, um_per_px=0.243, tile=64, levels=6, compression="deflate")
    drawn = [area("_0", 320, 320, 1920, 1920), area("_2", 640, 640, 960, 960), area("_1", 2720, 320, 2752, 352)]
    (root / "annotations/test_001.xml").write_text(XML.format("".join(drawn)))
    return task("camelyon16", root)


def test_camelyons_slides_are_judged_by_their_outlines(tmp_path):
    made = metastases(tmp_path)
    tumour, normal = made.cases("test")
    assert tumour.images[0].geometry().shape == (64, 96)
    places = [(20, 20), (50, 50), (10, 85), (62, 90)]  # the lesion twice, isolated cells, nothing
    answer = Points(np.array(places, float), ("metastasis",) * 4, scores=np.array([0.9, 0.8, 0.7, 0.6]))
    held = {score.value: score.status for score in made.score(tumour, answer) if score.metric == "detection_score"}
    assert held == {0.9: "hit", 0.8: "ignored", 0.7: "ignored", 0.6: "false"}
    alone = Points(np.array([[5.0, 5]]), ("metastasis",), scores=np.array([0.5]))
    assert statuses(made, normal, alone) == ["false"]
    rows = [made.score(tumour, answer), made.score(normal, alone)]
    assert summarised("froc_score", *rows) == 1
    assert summarised("froc_score", made.worst(tumour), made.score(normal, alone)) == 0
    assert tumour.attributes == {"centre": "RUMC", "scanner": "3DHISTECH"}


def test_masks_are_judged_by_region_alone(tmp_path):
    made = metastases(tmp_path)
    case = made.cases("test")[0]
    other = DetectionTask(name="m", layout=None, labels=["metastasis"], matching="midog", um_per_px=1)
    nothing = Points(np.zeros((0, 2)), (), scores=np.zeros(0))
    with pytest.raises(CaseError, match="is Mask, and matching by nearest needs Points"):
        other.score(case, nothing)
