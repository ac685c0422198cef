"""What a report shows of cases: volumes and label maps on one grid, marks, prompts, answers, and what is unreadable."""

import base64
import gzip
import re
from functools import partial
from pathlib import Path

import lightning.pytorch as pl
import nibabel as nib
import numpy as np
import pytest
import yaml
from answering import Thresholds
from asking import Quiz, Says
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

import medimg_eval
from medimg_eval.case import NO_IMAGE, Boxes, Condition, Image, Mask, Points
from medimg_eval.commands import report
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.results import load_runs
from medimg_eval.results.report import by_task
from medimg_eval.results.table.table import named_runs
from medimg_eval.tasks import QuestionTask
from medimg_eval.viewer.examples import draw_examples
from medimg_eval.viewer.overlays import Grid, label_map, marks, pictures, stored_values, volume, window_of
from medimg_eval.viewer.scene import CaseView
from tests.conftest import AFFINE, LABELS, SHAPE, ellipsoid, ellipsoids
from tests.helpers.running import evaluate

pytestmark = [
    pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
]


def read_nifti(text):
    """An image as the page is given it."""
    return nib.Nifti1Image.from_bytes(gzip.decompress(base64.b64decode(text)))


def read_stack(shown):
    values = np.frombuffer(gzip.decompress(base64.b64decode(shown["data"])), np.int16).reshape(shown["shape"])
    return values * shown["slope"] + shown["intercept"]


@pytest.fixture
def evaluated(tmp_path):
    """Runs models on a task; returns its cases and what can be shown of them."""
    trainer = partial(
        pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, use_distributed_sampler=False
    )

    def run(task, *models, conditions=(), **more):
        settings = Settings(runs=tmp_path / "runs", trainer=trainer, score_workers=0, conditions=conditions)
        for name, wrapper, arguments in models:
            evaluate(task, ModelSpec(name, wrapper, arguments, load=partial(wrapper, **arguments)), settings)
        runs = load_runs([tmp_path / "runs"])
        (cases,) = by_task(runs, named_runs(runs))
        return cases, CaseView(task, cases.runs, **more)

    return run


def test_a_volume_and_its_label_map_lie_on_the_page_where_they_lay_in_the_patient():
    labels = ellipsoid(0)
    image = Image((labels * 100).astype(np.int16)[None], AFFINE, "CT")
    grid = Grid.of(image, 1_000_000)
    shown, mask = (
        read_nifti(volume(image.array[0], grid, "CT")["nifti"]),
        read_nifti(label_map(grid.labels(Mask(labels, AFFINE)), [1, 2], grid)["nifti"]),
    )
    assert nib.aff2axcodes(shown.affine) == ("R", "A", "S")
    np.testing.assert_array_equal(np.asarray(shown.dataobj), 100 * np.asarray(mask.dataobj))
    before = AFFINE @ [*np.argwhere(labels == 1).mean(0), 1]
    after = shown.affine @ [*np.argwhere(np.asarray(mask.dataobj) == 1).mean(0), 1]
    np.testing.assert_allclose(before, after, atol=1e-6)


def test_what_is_too_large_is_thinned_about_the_same_middle_and_says_so():
    values = np.arange(64 * 64 * 40, dtype=np.float32).reshape(64, 64, 40)
    image = Image(values[None], np.diag([1.0, 1, 2, 1]))
    grid = Grid.of(image, 30_000)
    shown = volume(values, grid)
    assert shown["steps"] == (2, 2, 2)
    assert tuple(shown["shape"]) == (32, 32, 20)
    read = read_nifti(shown["nifti"])
    np.testing.assert_allclose(read.get_fdata()[0, 0, 0], values[:2, :2, :2].mean(), atol=3)
    np.testing.assert_allclose(read.affine @ [0, 0, 0, 1], [0.5, 0.5, 1, 1])
    np.testing.assert_allclose(grid.places(np.array([[0.5, 0.5, 0.5]])), [[0, 0, 0]], atol=1e-9)


def test_few_slices_stay_whole_where_a_volume_is_thinned():
    grid = Grid.of(Image(np.zeros((1, 256, 256, 12), np.int16), np.eye(4)), 200_000)
    assert grid.steps == (2, 2, 1)


@pytest.mark.parametrize("code", ["RAS", "LPS", "AIR"])
def test_points_and_boxes_go_with_the_volume(code):
    image = Image(
        np.zeros((1, *SHAPE), np.int16), nib.orientations.inv_ornt_aff(nib.orientations.axcodes2ornt(code), SHAPE)
    )
    grid = Grid.of(image, 1_000_000)
    corner = np.array([[1.0, 2, 3, 4, 5, 6]])
    (box,) = marks(Boxes(corner, ("one",)), grid)
    (point,) = marks(Points(np.array([[4.0, 5, 6]]), ("two",), scores=np.array([0.5])), grid)
    world = image.geometry.world(corner.reshape(2, 3))
    placed = Grid.of(image, 1_000_000).affine
    moved = (placed[:3, :3] @ np.asarray(box["place"]).reshape(2, 3).T).T + placed[:3, 3]
    np.testing.assert_allclose(moved.min(0), world.min(0), atol=1e-6)
    np.testing.assert_allclose(moved.max(0), world.max(0), atol=1e-6)
    assert point["score"] == 0.5
    assert point["name"] == "two"


def test_a_label_map_of_another_grid_is_brought_onto_the_images():
    image = Image(np.zeros((1, 20, 20, 20), np.int16), np.eye(4))
    half = Mask(np.pad(np.ones((4, 4, 4), np.uint8), 3), np.diag([2.0, 2, 2, 1]))
    shown = Grid.of(image, 1_000_000).labels(half)
    assert shown.shape == (20, 20, 20)
    assert shown[10, 10, 10] == 1
    assert shown[1, 1, 1] == 0


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(-1e6, 1e6) | st.just(float("nan")) | st.just(float("inf")), min_size=1, max_size=20))
def test_values_come_back_within_a_step_of_what_they_were(given_values):
    values = np.array(given_values)
    stored, slope, intercept = stored_values(values)
    known = np.isfinite(values)
    assert stored.dtype == np.int16
    if known.any():
        np.testing.assert_allclose((stored * slope + intercept)[known], values[known], atol=abs(slope) * 0.51 + 1e-6)


def test_integers_of_16_bits_stay_what_they_are():
    stored, slope, intercept = stored_values(np.array([-1000, 0, 3000], np.int32))
    assert (stored.tolist(), slope, intercept) == ([-1000, 0, 3000], 1.0, 0.0)


@pytest.mark.parametrize("values", [[], [np.nan], [3, 3, 3], [1, np.nan, np.inf]])
def test_a_window_has_a_width_whatever_the_values_are(values):
    low, high = window_of(np.array(values, float))
    assert high > low


def test_pictures_are_written_as_they_are_seen(tmp_path):
    from PIL import Image as Pictures

    colours = Image(np.random.default_rng(0).integers(0, 255, (3, 20, 30), dtype=np.uint8), np.eye(4), units="pixel")
    (shown,) = pictures(colours, Grid.of(colours, 1000), tmp_path, "0")
    assert shown["shape"] == [1, 20, 30]
    np.testing.assert_array_equal(np.asarray(Pictures.open(tmp_path / "0.png")), np.moveaxis(colours.array, 0, -1))
    deep = Image(np.arange(600, dtype=np.uint16).reshape(1, 20, 30), np.eye(4), units="pixel")
    (grey,) = pictures(deep, Grid.of(deep, 1000), tmp_path, "1")
    np.testing.assert_array_equal(read_stack(grey)[0], deep.array[0])
    clip = Image(np.zeros((3, 30, 8, 8), np.uint8), np.eye(4), units="pixel")
    assert [one["title"] for one in pictures(clip, None, tmp_path, "2")][-1] == "frame 30"


def test_a_long_picture_is_thinned_and_its_boxes_with_it(tmp_path):
    image = Image(np.zeros((3, 4000, 1000), np.uint8), np.eye(4), units="pixel")
    grid = Grid.of(image, 1000)
    (shown,) = pictures(image, grid, tmp_path, "0")
    assert shown["shape"] == [1, 1333, 333]
    (box,) = marks(Boxes(np.array([[0.0, 3, 2999, 305]]), ("a",)), grid)
    np.testing.assert_allclose(box["place"], [-0.33, 0.67, 999.33, 101.33], atol=0.01)


def test_what_nobody_can_look_at_is_said(tmp_path):
    with pytest.raises(CaseError, match="k-space"):
        pictures(Image(np.zeros((4, 8, 8), np.complex64), np.eye(4)), None, tmp_path, "0")


def test_a_scene_has_truth_and_what_each_model_made_of_it(evaluated, write_dataset, tmp_path):
    task = ellipsoids(write_dataset(2))
    models = [(f"at {level}", Thresholds, {"levels": [level, 150]}) for level in (50, 120)]
    cases, shown = evaluated(task, *models)
    scene = shown.scene("case00", tmp_path / "scene")
    assert scene["problems"] == []
    assert scene["labels"] == ["core", "rim"]
    (picture,) = scene["pictures"]
    assert picture["kind"] == "volume"
    truth, *answers = (read_nifti(one["nifti"]) for one in (scene["masks"]["truth"], *scene["masks"]["models"]))
    volumes = [np.asarray(one.dataobj) for one in (truth, *answers)]
    names = list(cases.runs)
    np.testing.assert_array_equal(volumes[0], volumes[1 + names.index("at 50")])
    assert (volumes[0] != volumes[1 + names.index("at 120")]).any()
    assert shown.texts("case00") == {"answers": [None, None]}
    assert shown.key("case00") != shown.key("case01")


def test_an_image_that_cannot_be_read_is_said_and_the_rest_is_shown(evaluated, write_dataset, tmp_path):
    root = write_dataset(2)
    task = ellipsoids(root)
    _, shown = evaluated(task, ("Thresholds", Thresholds, {}))
    (root / "images" / "case01.nii.gz").write_bytes(b"nothing")
    scene = shown.scene("case01", tmp_path / "scene")
    assert any("case01.nii.gz" in problem for problem in scene["problems"])
    assert scene["pictures"] == []
    assert shown.scene("case00", tmp_path / "other")["problems"] == []
    assert shown.scene("gone", tmp_path / "other")["problems"]


def test_data_that_have_changed_and_data_that_may_not_be_passed_on_are_said(evaluated, write_dataset):
    root = write_dataset(2)
    cases, _ = evaluated(ellipsoids(root), ("Thresholds", Thresholds, {}))
    nib.save(nib.Nifti1Image(np.ones(SHAPE, np.int16), AFFINE), root / "images" / "case01.nii.gz")
    said = CaseView(ellipsoids(root, card={"may_leave": "no"}), cases.runs).warnings
    assert "changed since the runs of Thresholds" in said[0]
    assert "may_leave: no" in said[1]
    assert len(CaseView(ellipsoids(root, card={"may_leave": "yes"}), cases.runs).warnings) == 1
    assert len(CaseView(ellipsoids(root, card={"access": "Credentialed"}), cases.runs).warnings) == 2


@pytest.fixture
def quiz():
    items = [
        {"text": "Which?", "options": {"A": "left", "B": "right"}, "right": "B", "images": [10]},
        {"text": "What is it?", "kind": "open", "right": ["a cyst", "cyst"], "images": []},
        {"text": "Where?", "kind": "box", "right": (2, 1, 6, 5), "more": {"size": (8, 8)}, "images": [20]},
    ]
    return QuestionTask(
        name="quiz", layout=Quiz(items), template={"system": "Be brief.", "user": "{question}<<\n{options}>>"}
    )


def test_prompt_output_reference_and_what_was_taken_for_the_answer_are_shown(evaluated, quiz, tmp_path):
    replies = {"q0": "<script>alert(1)</script> The answer is A.", "q1": "I do not know", "q2": "[1, 1, 5, 5]"}
    _, shown = evaluated(quiz, ("Says", Says, {"replies": replies}))
    texts = shown.texts("q0")
    assert texts["prompt"][0] == {"role": "system", "parts": ["Be brief."]}
    assert texts["prompt"][1]["parts"][0] == 0
    assert texts["options"] == [["A", "left"], ["B", "right"]]
    assert texts["reference"] == "B"
    (answer,) = texts["answers"]
    assert answer["outputs"] == [replies["q0"]]
    assert answer["extracted"] == "A"
    assert shown.texts("q1")["reference"] == "a cyst / cyst"
    assert shown.about("q1") == "What is it?"
    scene = shown.scene("q2", tmp_path)
    assert scene["marks"]["truth"][0]["place"].tolist() == [1, 2, 4, 5]
    assert scene["marks"]["models"][0][0]["kind"] == "box"


class Describes(Says):
    """Writes how many images it sees."""

    def _reply(self, prompt):
        return f"{len(prompt.images)} images"


def test_what_a_model_said_without_images_stands_beside_what_it_said_of_them(evaluated, quiz):
    cases, shown = evaluated(quiz, ("Says", Describes, {}), conditions=[Condition(NO_IMAGE)])
    assert list(cases.runs) == ["Says", "Says (blind)"]
    assert [answer["outputs"] for answer in shown.texts("q0")["answers"]] == [["1 images"], ["0 images"]]


def test_a_question_that_failed_says_why(evaluated, quiz):
    _, shown = evaluated(quiz, ("Says", Says, {"fails_on": ["q1"]}))
    assert "no answer to q1" in shown.texts("q1")["answers"][0]["failure"]


def test_examples_are_the_worst_the_median_and_the_best(evaluated, write_dataset):
    task = ellipsoids(write_dataset(5))
    models = [(name, Thresholds, {"levels": levels}) for name, levels in (("Good", [50, 150]), ("Bad", [104, 196]))]
    cases, shown = evaluated(task, *models)
    drawn = draw_examples(cases, shown, metric="dice")
    means = drawn.frame.groupby("pick", sort=False)["value"].mean()
    assert list(means.index) == ["worst", "median", "best"]
    assert means["worst"] <= means["median"] <= means["best"]
    assert len(drawn.figure.axes) == 3 * (2 + 2)
    assert [axes.get_title() for axes in drawn.figure.axes[:2]] == ["Image", "Truth"]
    assert all(name in drawn.caption for name in LABELS.values())
    again = draw_examples(cases, shown, picks=["worst"], count=2, width="single")
    assert drawn.size[0] > again.size[0]
    for wrong, arguments in {
        "dicee": {"metric": "dicee"},
        "wurst": {"picks": ["wurst"]},
        "lung": {"window": "lung"},
    }.items():
        with pytest.raises(UsageError, match=re.escape(wrong)):
            draw_examples(cases, shown, **arguments)


def command(**changed):
    """Runs `report` as the program does."""
    own = yaml.safe_load((Path(medimg_eval.__file__).parent / "configs" / "report.yaml").read_text())
    keys = {key: value for key, value in own.items() if key != "defaults"}
    report.run(
        OmegaConf.create({"runs": "runs", "scores": None, "direction": None, **keys, "resamples": 50, **changed})
    )


def test_scores_computed_elsewhere_get_pages_without_pictures(tmp_path, capsys):
    lines = ["case,model,metric,value,site", "a,One,dice,0.5,north", "b,One,dice,0.7,south", "a,Two,my_score,3,north"]
    (tmp_path / "mine.csv").write_text("\n".join(lines) + "\n")
    command(scores=str(tmp_path / "mine.csv"), out=str(tmp_path / "out"), title="Mine <b>")
    assert "wrote" in capsys.readouterr().err
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "<h1>Mine &lt;b&gt;</h1>" in page
    assert not list((tmp_path / "out").glob("cases/*"))
    assert '"drawable":false' in (tmp_path / "out" / "data" / "report.js").read_text()


def test_without_the_data_the_scores_are_still_reported(evaluated, write_dataset, config_dir, tmp_path):
    root = write_dataset(2)
    config = yaml.safe_load((config_dir(root) / "task" / "ellipsoids.yaml").read_text())
    task = ellipsoids(root, config=config)
    evaluated(task, ("Thresholds", Thresholds, {}))
    runs, out = str(tmp_path / "runs"), tmp_path / "out"
    command(runs=runs, out=str(out), cases=["case01"])
    assert [path.name for path in (out / "cases" / "0").glob("*.js")] == ["1.js"]
    moved = root.rename(tmp_path / "moved")
    command(runs=runs, out=str(tmp_path / "other"))
    assert "cannot be read" in (tmp_path / "other" / "index.html").read_text(encoding="utf-8")
    command(runs=runs, out=str(out), cases="all", root=str(moved))
    assert sorted(path.name for path in (out / "cases" / "0").glob("*.js")) == ["0.js", "1.js"]
    wrong = ({"root": {"elips": "x"}}, {"voxels": 3}, {"examples": -1}, {"cases": "worts:3"})
    for one in wrong:
        with pytest.raises(UsageError, match=re.escape(next(iter(one)))):
            command(**{"runs": runs, "out": str(out), **one})
