"""COCO's annotations and results from the files to the table, beside pycocotools."""

import json
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import lightning.pytorch as pl
import numpy as np
import pytest
from PIL import Image as Pillow

from medimg_eval.case import Boxes, Geometry, Mask, Prompt
from medimg_eval.data.layouts import Coco
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.metrics.run_lengths import mask_runs
from medimg_eval.models import PrecomputedCoco
from medimg_eval.tasks.detection import DetectionTask
from tests.helpers.coco import ASKED, SIDE, content_of, made_up, pycocotools_says
from tests.helpers.running import evaluate

quiet = pytest.mark.filterwarnings(
    "ignore:You have overridden `transfer_batch_to_device`",
    "ignore:.*isinstance.treespec, LeafSpec",
)


def write(folder, content, results):
    for image in content["images"]:
        (folder / "images").mkdir(exist_ok=True)
        Pillow.fromarray(np.zeros((SIDE, SIDE), np.uint8)).save(folder / "images" / image["file_name"])
    (folder / "instances.json").write_text(json.dumps(content))
    (folder / "results.json").write_text(json.dumps(results))
    return str(folder / "results.json"), str(folder / "instances.json")


def task_of(folder, content, **settings):
    layout = Coco(
        root=str(folder), annotations={"test": "instances.json"}, truth_kind=settings.pop("truth_kind", "boxes")
    )
    labels = [category["name"] for category in content["categories"]]
    return DetectionTask(name="cells", layout=layout, **{"labels": labels, "metrics": list(ASKED)} | settings)


def values(task, folder, *files):
    trainer = partial(
        pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, use_distributed_sampler=False
    )
    settings = Settings(runs=folder / "runs", run=None, trainer=trainer, config={}, score_workers=0)
    config = dict(zip(("root", "annotations"), files, strict=True))
    spec = ModelSpec("Results", PrecomputedCoco, config, load=lambda: PrecomputedCoco(*files))
    summary = json.loads((evaluate(task, spec, settings) / "summary.json").read_text())
    assert summary["failures"] == []
    return {row["metric"]: row["mean"] for row in summary["metrics"]}


@quiet
@pytest.mark.parametrize("kind", ["bbox", "segm"])
@pytest.mark.parametrize("seed", [5, 20])
def test_the_table_holds_what_pycocotools_prints(tmp_path, kind, seed):
    content, results = made_up(seed, masks=kind == "segm")
    files = write(tmp_path, content, results)
    settings = {"matching": "coco-masks", "truth_kind": "objects"} if kind == "segm" else {"matching": "coco"}
    found = values(task_of(tmp_path, content, **settings), tmp_path, *files)
    said = pycocotools_says(content, results, kind)
    known = {name: value for name, value in zip(ASKED, said, strict=True) if not np.isnan(value)}
    assert len(known) > 8
    assert {name: found[name] for name in known} == pytest.approx(known, rel=0, abs=1e-9)


TRUTH = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [10, 20, 30, 40], "area": 1000}
RESULT = {"image_id": 1, "category_id": 1, "bbox": [10, 20, 30, 40], "score": 0.5}


def test_what_layout_and_results_hold(tmp_path):
    crowd = {"id": 2, "iscrowd": 1, "segmentation": {"size": [SIDE, SIDE], "counts": [3, 7, SIDE**2 - 10]}}
    ignored = {"id": 3, "ignore": 1, "segmentation": [[0, 0, 2, 0, 2, 2, 0, 2]]}
    annotations = [{**TRUTH, "segmentation": []}, {**TRUTH, **crowd}, {**TRUTH, **ignored}]
    del annotations[2]["area"]
    content = content_of(annotations, 2, 1)
    files = write(tmp_path, content, [RESULT])
    case, empty = task_of(tmp_path, content, matching="coco").layout.cases("test")
    boxes = case.target.read()
    assert boxes.masks is None
    assert (boxes.areas.tolist(), boxes.crowds.tolist()) == ([1000, 1000, 1200], [False, True, False])
    assert boxes.ignored.tolist() == [False, False, True]
    assert empty.target.read().names == ()
    objects = (
        task_of(tmp_path, content, matching="coco-masks", truth_kind="objects").layout.cases("test")[0].target.read()
    )
    assert [runs.tolist() for runs in objects.masks] == [[], [[3, 10]], [[0, 2], [SIDE, SIDE + 2]]]
    assert objects.areas.tolist() == [1000, 1000, 4]
    found, nothing = PrecomputedCoco(*files).detect([Prompt("0001.png", ()), Prompt("0002.png", ())])
    assert (found.corners.tolist(), found.names, found.areas.tolist()) == ([[20, 10, 59, 39]], ("class 1",), [1200])
    assert (nothing.corners.shape, nothing.masks) == ((0, 4), None)


def test_boxes_of_masks_alone_and_boxes_without_width(tmp_path):
    runs = {"size": [4, 5], "counts": [5, 2, 2, 2, 9]}
    results = [{**RESULT, "segmentation": runs}, {**RESULT, "bbox": [1, 2, 0, 3], "segmentation": runs}]
    del results[0]["bbox"]
    content = content_of([TRUTH], 1, 1)
    files = write(tmp_path, content, results)
    (boxes,) = PrecomputedCoco(*files).detect([Prompt("0001.png", ())])
    assert boxes.corners.tolist() == [[1, 1, 2, 2], [2, 1, 4, 0]]
    assert [mask.tolist() for mask in boxes.masks] == [[[5, 7], [9, 11]]] * 2
    task = task_of(tmp_path, content, matching="coco", metrics=["coco_ap"])
    task.accept(task.layout.cases("test")[0], boxes)


def test_masks_and_areas_are_stored_and_read_back(tmp_path):
    content, results = made_up(6, masks=True)
    files = write(tmp_path, content, results)
    task = task_of(tmp_path, content, matching="coco-masks", truth_kind="objects")
    for case in task.layout.cases("test"):
        (answer,) = PrecomputedCoco(*files).detect([Prompt(case.id, ())])
        task.codec.save(tmp_path / "stored.json", task.accept(case, answer))
        assert task.score(case, tmp_path / "stored.json") == task.score(case, answer)


def test_rows_of_cases_without_an_answer_and_of_empty_ones(tmp_path):
    content = content_of([TRUTH], 2, 1)
    write(tmp_path, content, [])
    task = task_of(tmp_path, content, matching="coco", metrics=["coco_ap", "detection_recall"])
    case, empty = task.layout.cases("test")
    assert [tuple(row) for row in task.worst(case)] == [
        ("class 1", "coco_object", 1000, "failed"),
        ("class 1", "detection_recall", 0, "failed"),
    ]
    nothing = Boxes(np.zeros((0, 4)), (), np.zeros(0))
    rows = task.score(empty, nothing, metrics=["coco_candidate", "coco_object"])
    assert [(row.metric, row.status) for row in rows] == [("coco_object", "absent")]
    # At an IoU of 0.5 the metrics of single cases are those of the same matches.
    near = Boxes(np.array([[20.0, 10, 59, 30]]), ("class 1",), np.array([0.5]))
    assert task.score(case, near)[-1] == ("class 1", "detection_recall", 1, "present")
    assert task.signature() == "hit: COCO's protocol for boxes (at most 100, crowds ignored)"


def test_numbered_objects_of_a_label_map_are_a_reference_too(tmp_path):
    labels, numbers = np.zeros((2, 8, 9), int)
    labels[1:5, 2:6], numbers[1:5, 2:4], numbers[1:5, 4:6] = 1, 7, 8  # two that touch
    labels[6, 0], numbers[6, 0] = 3, 7  # of another class, which is not asked for
    content = content_of([], 1, 1)
    write(tmp_path, content, [])
    task = task_of(tmp_path, content, matching="coco-masks", metrics=["coco_ap", "coco_ar"])
    held = SimpleNamespace(files=(), read=lambda: Mask(labels, np.eye(4), instances=numbers))
    case = replace(task.layout.cases("test")[0], target=held)
    case = replace(case, images=(SimpleNamespace(files=(), geometry=lambda: Geometry((8, 9), np.eye(4))),))
    masks = tuple(mask_runs((numbers == number) & (labels == 1)) for number in (8, 7))
    answer = Boxes(np.zeros((2, 4)), ("class 1",) * 2, np.array([0.9, 0.8]), masks)
    rows = task.score(case, answer)
    assert [(row.metric, row.value) for row in rows] == [
        *(("coco_candidate", 0.9), ("coco_candidate", 0.8)),
        *(("coco_object", 8), ("coco_object", 8)),
    ]
    assert all(row.status[:10] == "h" * 10 for row in rows[:2])


def test_check_takes_references_without_confidences(tmp_path):
    content = content_of([TRUTH, {**TRUTH, "id": 2, "category_id": 2}], 1, 2)
    write(tmp_path, content, [])
    settings = {"labels": ["class 1"], "metrics": ["coco_ap"]}
    for more, doubts in (({"unscored": ["class 2"]}, []), ({}, ["names 'class 2'; add it to the task's"])):
        task = task_of(tmp_path, content, matching="coco", **settings, **more)
        (case,) = task.layout.cases("test")
        found = task.check_case(case).doubts[1:]  # after that the image is constant
        assert len(found) == len(doubts)
        assert all(words in doubt for words, doubt in zip(doubts, found, strict=True))


def test_what_does_not_go_together_is_told(tmp_path):
    content = content_of([TRUTH], 1, 1)
    write(tmp_path, content, [])
    for settings, words in (
        ({"matching": "iou", "metrics": ["coco_ap"]}, r"coco_ap is of COCO's protocol; set task\.matching=coco"),
        ({"matching": {"preset": "coco", "threshold": 0.3}}, "sets IoUs and limits"),
        ({"matching": {"preset": "iou", "masks": True}}, "matching.masks is of COCO's protocol"),
    ):
        with pytest.raises(UsageError, match=words):
            task_of(tmp_path, content, **settings)
    task = task_of(tmp_path, content, matching="coco-masks")
    (case,) = task.layout.cases("test")
    answer = Boxes(np.array([[0.0, 0, 1, 1]]), ("class 1",), np.ones(1), (np.array([[0, SIDE**2 + 1]]),))
    with pytest.raises(CaseError, match=r"the reference .*no masks.*truth_kind=objects"):
        task.score(case, Boxes(np.zeros((0, 4)), (), np.zeros(0)))
    with pytest.raises(CaseError, match="prediction holds a mask of 40001 pixels or more"):
        task.accept(case, answer)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bbox": [1, 2, 3]}, r"results\.json, item 1: 'bbox' is \[1, 2, 3\], expected x, y, width and height"),
        ({"bbox": [1, 2, -3, 4]}, "item 1: 'bbox' is"),
        ({"score": None}, "item 1: 'score' is None, expected a number"),
        ({"category_id": 9}, r"item 1: category_id 9 is none of .*instances\.json"),
        ({"segmentation": [[1, 2, 3]]}, "item 1: 'segmentation' is not understood"),
    ],
)
def test_a_result_that_is_not_understood_is_named(tmp_path, change, words):
    files = write(tmp_path, content_of([TRUTH], 1, 1), [{**RESULT, **change}])
    with pytest.raises(CaseError, match=words):
        PrecomputedCoco(*files).detect([Prompt("0001.png", ())])


def test_files_that_are_not_understood_are_named(tmp_path):
    content = content_of([TRUTH], 1, 1)
    for results, words in (
        ([{**RESULT, "image_id": 7}], r"results\.json, item 1: image_id 7 is none of"),
        ({"results": []}, r"results\.json: expected a list of objects"),
    ):
        with pytest.raises(UserError, match=words):
            PrecomputedCoco(*write(tmp_path, content, results))
    files = write(tmp_path, content, [])
    with pytest.raises(UserError, match="no such file"):
        PrecomputedCoco(str(tmp_path / "none.json"), files[1])
    with pytest.raises(UserError, match=r"results\.json: expected 'images'"):
        PrecomputedCoco(files[0], files[0])
    with pytest.raises(CaseError, match="has no image of the file_name 'other.png'"):
        PrecomputedCoco(*files).detect([Prompt("other.png", ())])
    (tmp_path / "results.json").write_text("{")
    with pytest.raises(UserError, match="is no JSON"):
        PrecomputedCoco(*files)


@pytest.mark.parametrize(
    ("change", "words"), [({"iscrowd": 2}, "'iscrowd' is 2, expected 0 or 1"), ({"area": -1}, "'area' is -1")]
)
def test_annotations_that_are_not_understood_are_named(tmp_path, change, words):
    content = content_of([{**TRUTH, **change}], 1, 1)
    write(tmp_path, content, [])
    with pytest.raises(UserError, match=words):
        task_of(tmp_path, content, matching="coco").layout.cases("test")
