"""Public sets of surgical videos, over a few files in their authors' layout."""

import json
import pickle
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from medimg_eval.case import Findings
from medimg_eval.errors import UserError
from medimg_eval.imaging.video import write_video
from medimg_eval.metrics import get
from medimg_eval.metrics.registry import ScoreTable
from medimg_eval.metrics.workflow import component_groups
from tests.helpers.authors import import_package, load_functions, require_clone
from tests.helpers.benchmark_files import config, picture, task
from tests.helpers.film_sets import (
    PHASES,
    TOOLS,
    triplet_vector,
    write_autolaparo,
    write_bleedorigin,
    write_cholec80,
    write_cholect45,
    write_cholect50,
    write_endoscapes,
    write_heichole,
    write_jigsaws,
    write_multibypass,
    write_pitvis,
    write_sar_masks,
    write_sar_rarp,
    write_scoliosis,
    write_strokevision,
)


def test_cholec80_from_its_files_to_scores(tmp_path):
    write_cholec80(tmp_path)
    one = task("cholec80", tmp_path)
    assert [len(one.cases(part)) for part in ("fit", "validate", "test")] == [32, 8, 40]
    case = one.cases("test")[0]
    assert case.id == case.patient == "video41"
    truth = case.target.read()
    assert truth.frames.tolist() == list(range(7))
    assert truth.columns["phase"].tolist() == PHASES
    assert np.array_equal(np.stack([truth.columns[name] for name in TOOLS]), np.eye(7))
    assert case.images[0].files == (tmp_path / "videos/video41.mp4",)
    assert case.images[0].every == 25
    said = [{"phase": PHASES[min(k + 1, 6)], **{name: float(j == k) for j, name in enumerate(TOOLS)}} for k in range(7)]
    rows = one.score(case, one.accept(case, said), ["video_accuracy", "edit_score", "presence_ap"])
    found = {(row.metric, row.label): row.value for row in rows}
    assert found["video_accuracy", "all"] == pytest.approx(1 / 7)
    assert found["edit_score", "all"] == pytest.approx(6 / 7)  # one segment is missing, the last two are one
    assert all(found["presence_ap", name] == 1 for name in TOOLS)


@pytest.mark.slow
def test_the_film_phantom_shows_what_its_labels_say(tmp_path):
    from medimg_eval.phantoms import SurgeryFilms

    (case,) = SurgeryFilms(str(tmp_path), count=1).cases("test")
    truth = case.target.read()
    frames = np.stack(list(case.images[0].frames(truth.frames)))
    assert frames.shape[1:] == (3, 160, 192)
    bleeding = truth.columns["bleeding"].astype(bool)
    red = frames[:, 0].astype(float).mean((1, 2)) / frames[:, 1].astype(float).mean((1, 2))
    assert bleeding.any()
    assert red[bleeding].mean() > red[~bleeding].mean()
    assert truth.columns["phase"][0] == "insertion"
    assert set(truth.columns["phase"][truth.columns["snare"] == 1]) == {"resection"}


def score_table(rows, **facts):
    """Rows of cases, (number of the case, row), as summaries take them, with facts of the task."""
    return ScoreTable(
        case=np.array([number for number, _ in rows]),
        metric=np.array([row.metric for _, row in rows]),
        label=np.array([row.label for _, row in rows]),
        value=np.array([row.value for _, row in rows]),
        status=np.array([row.status for _, row in rows]),
        attributes={},
        cases=[],
        facts=facts,
    )


def scores(benchmark, case, answer, *metrics):
    rows = benchmark.score(case, benchmark.accept(case, answer), metrics or None)
    return {(row.metric, row.label): row.value for row in rows}


def pitvis_answer(steps, tools):
    held = [{f"instrument {k}": float(k in pair) for k in range(19)} for pair in tools]
    return [
        {"int_step": "outside" if step < 0 else f"step {step}", **row} for step, row in zip(steps, held, strict=True)
    ]


def test_pitvis_drops_frames_by_the_truth_and_keeps_the_fault_of_columns(tmp_path):
    steps, tools = write_pitvis(tmp_path)
    benchmark = task("pitvis", tmp_path)
    (case,) = benchmark.cases("test")
    truth = case.target.read()
    assert truth.frames.tolist() == list(range(10))
    assert truth.columns["instrument 18"].tolist() == [0] * 8 + [1, 0]
    assert case.images[0].every == 24
    said = [3, *steps[1:6], 4, 4, 2, 2]
    found = scores(benchmark, case, pitvis_answer(said, [(*tools[0][:1], 0), *tools[1:]]))
    # Judged: 0 0 0 0 1 1 2 2 against 3 0 0 0 1 1 2 2: F1 of 0 is 6/7, of 1 and 2 it is 1, of 3 it is 0;
    # one segment of four is too many.
    assert found["pitvis_step_score", "all"] == pytest.approx(((6 / 7 + 2) / 4 + 3 / 4) / 2)
    assert found["pitvis_instrument_score", "all"] == pytest.approx((3 * 1 + 3 * 1 + 1 * 1 + 2 / 3) / 8)
    assert found["pitvis_instrument_score_published", "all"] == found["pitvis_instrument_score", "all"]  # same classes
    other = scores(benchmark, case, pitvis_answer(steps, [(*tools[0][:1], 2), *tools[1:]]))
    assert other["pitvis_step_score", "all"] == other["pitvis_instrument_score", "all"] == 1
    assert other["pitvis_instrument_score_published", "all"] == 0.5  # all after 2 are one column off


@pytest.mark.slow
def test_pitvis_scores_are_those_of_its_scripts(tmp_path):
    clone = require_clone("dreets/pitvis") / "helper_scripts"
    names = ("calculate_insts_evaluation_metric", "clean_insts", "check_insts_lists_are_compatible", "hot_encode_insts")
    import pandas as pd
    from sklearn import metrics
    from sklearn.preprocessing import MultiLabelBinarizer

    given = {"pd": pd, "DataFrame": pd.DataFrame, "metrics": metrics, "MultiLabelBinarizer": MultiLabelBinarizer}
    tools_of = load_functions(clone / "evaluation_instruments.py", *names, **given)[names[0]]
    names = ("calculate_steps_evaluation_metric", "clean_steps", "check_steps_lists_are_compatible")
    from itertools import groupby

    given = {"zeros": np.zeros, "ndarray": np.ndarray, "metrics": metrics, "groupby": groupby}
    more = (*names, "remove_background_steps", "calculate_edit_score")
    steps_of = load_functions(clone / "evaluation_steps.py", *more, **given)[names[0]]
    rng = np.random.default_rng(0)
    for _ in range(5):
        root = tmp_path / str(rng.integers(1 << 30))
        root.mkdir()
        steps = np.repeat(rng.integers(-1, 15, 20), 10)
        tools = rng.integers(-2, 19, (200, 2)) % 7 - 2
        rows = [f"{k},{step},{a},{b}\n" for k, (step, (a, b)) in enumerate(zip(steps, tools, strict=True))]
        (root / "annotations_01.csv").write_text("int_time,int_step,int_instrument1,int_instrument2\n" + "".join(rows))
        said = np.where(rng.random(200) < 0.8, steps, rng.integers(-1, 15, 200))
        seen = np.where(rng.random((200, 2)) < 0.8, tools, rng.integers(0, 9, (200, 2)))
        benchmark = task("pitvis", root)
        (case,) = benchmark.cases("test")
        found = scores(benchmark, case, pitvis_answer(said.tolist(), seen.tolist()))
        assert found["pitvis_step_score", "all"] == pytest.approx(steps_of(steps.tolist(), said.tolist()), abs=1e-12)
        theirs = tools_of(tools.tolist(), seen.tolist())
        assert found["pitvis_instrument_score_published", "all"] == pytest.approx(theirs, abs=1e-12)


def test_cholect50_from_its_files_to_components(tmp_path):
    names = write_cholect50(tmp_path)
    benchmark = task("cholect50", tmp_path)
    assert [len(benchmark.cases(part)) for part in ("fit", "validate", "test")] == [35, 5, 10]
    case = benchmark.cases("test")[0]
    truth = case.target.read()
    assert truth.columns[names[99]].tolist() == [1, 0, 0]
    assert truth.columns[names[1]].tolist() == [0, 1, 0]
    # grasper,dissect,* are triplets 0, 1 and 2: the component `grasper` is in every frame.
    answer = [dict.fromkeys(names, 0.0) | {names[2 - k]: 1.0} for k in range(3)]
    found = scores(benchmark, case, answer, "component_ap")
    assert found["component_ap", "i: grasper"] == 1
    assert found["component_ap", f"ivt: {names[1]}"] == 1
    assert found["component_ap", f"ivt: {names[0]}"] == pytest.approx(1 / 3)  # last, tied with one other frame


def test_the_hundred_triplets_have_as_many_components_as_the_authors_count():
    names = list(config("cholect50").presence)
    counts = {component: len(component_groups(names, component)) for component in ("i", "v", "t", "iv", "it")}
    assert (len(names), counts) == (100, {"i": 6, "v": 10, "t": 15, "iv": 26, "it": 59})
    assert [name.split(",")[1:] for name in names[94:]] == [["null_verb", "null_target"]] * 6


def test_cholect45_reads_the_same_from_tables_and_tests_a_fold(tmp_path):
    names = list(config("cholect45").presence)
    assert names == list(config("cholect50").presence)
    assert len(set(write_cholect45(tmp_path))) == 45
    benchmark = task("cholect45", tmp_path)
    assert [len(benchmark.cases(part)) for part in ("fit", "test")] == [36, 9]
    case = next(case for case in benchmark.cases("test") if case.id == "VID79")
    assert case.target.read().columns[names[1]].tolist() == [0, 1]


@pytest.mark.slow
def test_triplets_are_scored_as_by_ivtmetrics(tmp_path, monkeypatch):
    ivtmetrics = import_package("CAMMA-public/ivtmetrics", "ivtmetrics", monkeypatch)
    names = list(config("cholect50").presence)
    rng = np.random.default_rng(0)
    (tmp_path / "labels").mkdir()
    splits = config("cholect50").layout.splits.names
    truths = {}
    for video in [video for part in splits.values() for video in part]:
        shown = rng.random((40, 100)) < 0.05
        truths[video] = shown
        annotations = {
            str(k): [triplet_vector(int(j)) for j in np.flatnonzero(row)] or [[-1] * 14 + [1]]
            for k, row in enumerate(shown)
        }
        held = {"triplet": {str(k): name for k, name in enumerate(names)}, "phase": {"1": "dissection"}}
        (tmp_path / f"labels/{video}.json").write_text(json.dumps({"categories": held, "annotations": annotations}))
    benchmark = task("cholect50", tmp_path)
    theirs = ivtmetrics.Recognition(num_class=100)
    # It knows absent classes by the -0.0 that scikit-learn gave before 1.3; since then they count as 0 there.
    theirs.resolve_nan = lambda values: np.where(np.asarray(values) == 0, np.nan, values)
    rows, cases = [], benchmark.cases("test")
    for number, case in enumerate(cases):
        guess = np.clip(truths[case.id] * 0.3 + rng.random((40, 100)) * 0.7, 0, 1)
        answer = [dict(zip(names, map(float, row), strict=True)) for row in guess]
        rows += [(number, row) for row in benchmark.score(case, benchmark.accept(case, answer), ["component_ap"])]
        theirs.update(truths[case.id].astype(int), guess)
        theirs.video_end()
    table = score_table(rows)
    for component in ("ivt", "i", "v", "t", "iv", "it"):
        found = get(f"triplet_ap@{component}")
        assert float(found.function(table, component)) == pytest.approx(
            theirs.compute_video_AP(component)["mAP"], abs=1e-12
        ), component


def test_endoscapes_has_a_split_a_folder_and_pools_its_frames(tmp_path):
    write_endoscapes(tmp_path)
    benchmark = task("endoscapes_cvs", tmp_path)
    (case,) = benchmark.cases("test")
    assert (case.id, case.target.read().frames.tolist()) == ("162", [5850, 5975])
    answer = [{"C1": 0.1, "C2": 0.9, "C3": 0.2}, {"C1": 0.2, "C2": 0.8, "C3": 0.4}]
    found = scores(benchmark, case, answer)
    assert [found["presence_ap", name] for name in ("C2", "C3")] == [1, 0.5]
    assert np.isnan(found["presence_ap", "C1"])


def test_boxes_of_endoscapes_lie_in_the_pictures_beside_their_file(tmp_path):
    write_endoscapes(tmp_path)
    benchmark = task("endoscapes_boxes", tmp_path)
    (case,) = benchmark.cases("test")
    assert (case.patient, case.images[0].files) == ("162", (tmp_path / "test/162_5850.jpg",))
    truth = case.target.read()
    assert truth.names == ("gallbladder",)
    assert truth.corners.tolist() == [[4, 10, 23, 39]]  # rows and columns of pixels within


def test_heichole_counts_videos_of_50_frames_a_second_once_a_second(tmp_path):
    write_heichole(tmp_path)
    benchmark = task("heichole", tmp_path)
    assert [len(benchmark.cases(part)) for part in ("fit", "validate", "test")] == [14, 5, 5]
    phases = {case.id: case.target.read().columns["phase"].tolist() for case in benchmark.cases("test")}
    assert phases["Hei-Chole16"] == [0, 1]
    assert phases["Hei-Chole4"] == [0, 1, 2, 3]
    columns = benchmark.cases("test")[0].target.read().columns
    assert [name for name in benchmark.presence_names if columns[name].all()] == ["Clipper", "cut"]


def test_autolaparo_counts_frames_from_one(tmp_path):
    write_autolaparo(tmp_path)
    benchmark = task("autolaparo", tmp_path)
    assert [len(benchmark.cases(part)) for part in ("fit", "validate", "test")] == [10, 4, 7]
    case = benchmark.cases("test")[0]
    assert (case.id, case.target.read().frames.tolist()) == ("15", [0, 1, 2])
    found = scores(benchmark, case, ["Preparation", "Preparation", "Washing"], "video_accuracy")
    assert found["video_accuracy", "all"] == 1


def test_multibypass_spans_nest_and_its_pickles_are_read_without_running_them(tmp_path):
    write_multibypass(tmp_path)
    benchmark = task("multibypass140", tmp_path)
    assert [case.id for case in benchmark.cases("test")] == ["BBP02", "SBP01"]
    truth = benchmark.cases("test")[0].target.read()
    # The third second is out of the body, the fifth a severe event within the preparation.
    names = ["preparation"] * 2 + ["out_of_body"] + ["preparation"] * 3 + ["gastric_pouch_creation"] * 2
    assert truth.columns["phase"].tolist() == names
    answer = ["preparation"] * 6 + ["gastric_pouch_creation"] * 2
    assert scores(benchmark, benchmark.cases("test")[0], answer, "video_accuracy") == {("video_accuracy", "all"): 1}
    steps = task("multibypass140_steps", tmp_path).cases("fit")[0].target.read()
    assert (steps.frames.tolist(), set(steps.columns["phase"])) == ([1, 2], {"s1_cavity_exploration"})
    path = tmp_path / "labels/bern/labels_by70_splits/labels/test/1fps_0.pickle"
    path.write_bytes(pickle.dumps({"BBP02": np.zeros(2)}))
    with pytest.raises(UserError, match="no pickle of plain values"):
        benchmark.cases("test")


def test_sar_rarp_multiplies_means_over_videos(tmp_path):
    write_sar_rarp(tmp_path)
    benchmark = task("sar_rarp50", tmp_path)
    assert [len(benchmark.cases(part)) for part in ("fit", "test")] == [2, 2]
    first, second = benchmark.cases("test")
    assert first.target.read().frames.tolist() == list(range(10))
    names = list(benchmark.phase_names)
    answers = [[names[0]] * 5 + [names[1]] * 5, [names[0]] * 10]  # right; half right, one segment of two
    rows = [
        (number, row)
        for number, (case, answer) in enumerate(zip((first, second), answers, strict=True))
        for row in benchmark.score(case, benchmark.accept(case, answer), ["video_accuracy", "segment_counts"])
    ]
    table = score_table(rows)
    assert float(get("sar_rarp_action_score").function(table)) == pytest.approx(np.sqrt(0.75 * (1 + 2 / 3) / 2))


@pytest.mark.slow
def test_sar_rarp_scores_are_those_of_its_toolkit(tmp_path):
    clone = require_clone("surgical-vision/SAR_RARP50-evaluation")
    numpy = type("Numpy", (), {name: getattr(np, name) for name in dir(np) if name != "float"} | {"float": float})
    names = ("segment_labels", "segment_intervals", "_accuracy", "_f1k")
    theirs = load_functions(clone / "sarrarp50/metrics/action_recognition.py", *names, np=numpy, warnings=warnings)
    rng = np.random.default_rng(0)
    truth = np.repeat(rng.integers(0, 8, 30), 7)
    for name in ("train1/video_01", "train2/video_02", "test/video_41"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "action_discrete.txt").write_text("".join(f"{6 * k},{c}\n" for k, c in enumerate(truth)))
    benchmark = task("sar_rarp50", tmp_path)
    (case,) = benchmark.cases("test")
    said = np.where(rng.random(len(truth)) < 0.85, truth, rng.integers(0, 8, len(truth)))
    names = list(benchmark.phase_names)
    found = scores(benchmark, case, [names[c] for c in said], "video_accuracy", "segment_f1@10")
    assert found["video_accuracy", "all"] == pytest.approx(theirs["_accuracy"](said, truth), abs=1e-12)
    assert found["segment_f1@10", "all"] == pytest.approx(theirs["_f1k"](said, truth, n_classes=8), abs=1e-12)


def sar_segmentation_score(benchmark, answer):
    """The run's score of answers, a function of a case's true labels and id."""
    rows, videos = [], []
    for number, case in enumerate(benchmark.cases("test")):
        prediction = benchmark.accept(case, answer(case.target.read().labels, case.id))
        rows += [(number, row) for row in benchmark.score(case, prediction, ["iou", "nsd@10"])]
        videos += [case.patient] * (len(rows) - len(videos))
    table = replace(score_table(rows), attributes={"patient": np.array(videos)})
    return float(get("sar_rarp_segmentation_score").function(table))


def test_sar_rarp_masks_are_means_of_labels_frames_and_videos(tmp_path):
    write_sar_masks(tmp_path)
    benchmark = task("sar_rarp50_segmentation", tmp_path)
    cases = {case.id: case for case in benchmark.cases("test")}
    frames = ("41/segmentation/000000000", "41/segmentation/000000060", "42/segmentation/000000000")
    assert sorted(cases) == [f"video_{name}" for name in frames]
    case = cases["video_41/segmentation/000000060"]
    assert (case.patient, np.unique(case.target.read().labels).tolist()) == ("video_41", [0, 1])
    assert (case.images[0].read().array == 60).all()
    assert sar_segmentation_score(benchmark, lambda truth, name: truth) == pytest.approx(1)
    # Nothing is said of the second video: of nine labels two are missed, and those in neither count as right.
    score = sar_segmentation_score(benchmark, lambda truth, name: truth * name.startswith("video_41"))
    assert score == pytest.approx((1 + 7 / 9) / 2)
    # The thread is missed in one frame of two of the first video, and called a catheter there.
    score = sar_segmentation_score(
        benchmark, lambda truth, name: np.where((truth == 5) & ("41" in name), 9, truth).astype(np.uint8)
    )
    assert score == pytest.approx(((7 / 9 + 1) / 2 + 1) / 2)


@pytest.mark.slow
def test_sar_rarp_masks_are_scored_as_by_its_toolkit(tmp_path):
    clone = require_clone("surgical-vision/SAR_RARP50-evaluation")
    cv2, torch = (pytest.importorskip(name) for name in ("cv2", "torch"))
    import monai.metrics

    given = {"np": np, "Path": Path, "warnings": warnings, "cv2": cv2, "monai": monai, "torch": torch}
    names = ("imread_one_hot", "get_val_func", "mIoU", "mNSD")
    theirs = load_functions(clone / "sarrarp50/metrics/segmentation.py", *names, **given)
    write_sar_masks(tmp_path / "data")
    rng, answers = np.random.default_rng(5), {}
    benchmark = task("sar_rarp50_segmentation", tmp_path / "data")
    for case in benchmark.cases("test"):
        blocks = np.kron(rng.integers(0, 11, (8, 8)), np.ones((20, 20), int))  # some labels in neither, some in one
        truth = np.where(blocks < 9, blocks * (blocks != 3), 0)
        for folder in ("segmentation", "rgb"):
            picture(tmp_path / f"data/test/{case.id.replace('segmentation', folder)}.png", truth)
        answers[case.id] = (np.roll(truth, 12, (0, 1)) * (truth != 4)).astype(np.uint8)
        picture(tmp_path / f"said/{case.id}.png", answers[case.id])
    videos = [tmp_path / f"data/test/video_{number}" for number in (41, 42)]
    means = [
        np.mean([measure(tmp_path / "said" / video.name, video).mean() for video in videos])
        for measure in (theirs["mIoU"], partial(theirs["mNSD"], channel_tau=[10] * 9))  # as scripts/evaluate.py asks
    ]
    assert 0.1 < means[0] < means[1] < 0.9
    ours = sar_segmentation_score(benchmark, lambda truth, name: answers[name])
    assert ours == pytest.approx(np.sqrt(means[0] * means[1]), abs=1e-6)


def test_jigsaws_leaves_out_a_surgeon_or_a_trial_of_each(tmp_path):
    write_jigsaws(tmp_path)
    benchmark = task("jigsaws_suturing", tmp_path)
    assert [case.id for case in benchmark.cases("test")] == ["Suturing_B001", "Suturing_B002"]
    truth = benchmark.cases("test")[0].target.read()
    assert (truth.frames.tolist(), truth.columns["phase"].tolist()) == ([0, 1, 2], ["G1", "G1", "G5"])
    trials = task(
        "jigsaws_suturing", tmp_path, layout={"splits": {"group": "{video~\\d$}", "fold": 1}, "patient": "{video}"}
    )
    assert [case.id for case in trials.cases("test")] == [f"Suturing_{surgeon}002" for surgeon in "BCDEFGHI"]
    with pytest.raises(UserError, match="expected 0 to 7, for the groups B, C"):
        task("jigsaws_suturing", tmp_path, layout={"splits": {"fold": 8}}).cases("test")
    skill = task("jigsaws_skill", tmp_path)
    case = skill.cases("test")[1]
    assert (case.patient, case.attributes["practice"], case.target.read()) == ("B", "N", Findings({"grs": 12.0}))


def test_bleedorigin_asks_when_and_where(tmp_path):
    write_bleedorigin(tmp_path)
    onset = task("bleedorigin_onset", tmp_path)
    (case,) = onset.cases("test")
    found = scores(onset, case, [{"visible": 0.0}, {"visible": 0.2}, {"visible": 0.9}])
    assert found["onset_accuracy@4", "visible"] == 1
    assert scores(onset, case, [{"visible": 0.0}] * 3)["onset_accuracy@30", "visible"] == 0
    points = task("bleedorigin_points", tmp_path)
    cases = points.cases("test")
    assert [case.id for case in cases] == ["esd1-000000", "esd1-000001", "esd1-000002"]
    np.testing.assert_array_equal(cases[1].target.read().positions, [[3, 5]])
    assert cases[0].target.read().positions.shape == (0, 2)


def test_scoliosis1k_is_read_from_its_pickles_and_split(tmp_path):
    write_scoliosis(tmp_path)
    benchmark = task("scoliosis1k_pose", tmp_path)
    assert [case.id for case in benchmark.cases("fit")] == ["00000", "00001"]
    (case,) = benchmark.cases("test")
    assert case.target.read() == Findings({"Positive": 0, "Neutral": 0, "Negative": 1})
    image = case.images[0].read()
    assert image.array.shape == (3, 4, 17)
    assert (image.array == 2).all()


@pytest.mark.slow
def test_scoliosis1ks_scores_are_open_gaits(tmp_path):
    clone = require_clone("ShiqiYu/OpenGait")
    script = clone / "opengait/evaluation/evaluator.py"
    pytest.importorskip("sklearn")
    silent = type("Silent", (), {"log_info": lambda self, text: None})
    evaluate = load_functions(script, "evaluate_scoliosis", np=np, get_msg_mgr=silent)["evaluate_scoliosis"]
    rng, names = np.random.default_rng(3), ["Negative", "Neutral", "Positive"]
    split = json.loads((clone / "datasets/Scoliosis1K/Scoliosis1K_118.json").read_text())
    assert (len(split["TRAIN_SET"]), len(split["TEST_SET"])) == (744, 749)
    split = {"TRAIN_SET": [], "TEST_SET": sorted(split["TEST_SET"])[:30]}
    kinds = rng.permutation(30) % 3
    for number, kind in zip(split["TEST_SET"], kinds, strict=True):
        folder = tmp_path / f"Scoliosis1K-pose-pkl/{number}/{names[kind]}/000_180"
        folder.mkdir(parents=True)
        (folder / "000_180.pkl").write_bytes(pickle.dumps(np.zeros((2, 17, 3))))
    (tmp_path / "Scoliosis1K_118.json").write_text(json.dumps(split))
    logits = rng.random((30, 3, 2))
    theirs = evaluate({"embeddings": logits, "types": [names[kind].lower() for kind in kinds]}, "Scoliosis1K")
    benchmark = task("scoliosis1k_pose", tmp_path)
    shares = logits.mean(-1)
    answers = [dict(zip(names, (row / row.sum()).tolist(), strict=True)) for row in shares]
    rows = [
        (number, row)
        for number, (case, answer) in enumerate(zip(benchmark.cases("test"), answers, strict=True))
        for row in benchmark.score(case, benchmark.accept(case, answer), None)
    ]
    table = score_table([pair for pair in rows if pair[1].metric == "probability"], classes="exclusive")
    found = {"balanced_accuracy": float(get("balanced_accuracy").function(table))}
    found["f1_score@macro"] = float(get("f1_score@macro").function(table, "macro"))
    right = [row.value for _, row in rows if row.metric == "top1_accuracy"]
    assert np.mean(right) == pytest.approx(theirs["scalar/test_accuracy/"])
    assert found["balanced_accuracy"] == pytest.approx(theirs["scalar/test_recall/"])
    assert found["f1_score@macro"] == pytest.approx(theirs["scalar/test_f1/"])


def test_strokevision_clips_are_split_by_subject(tmp_path):
    write_strokevision(tmp_path)
    (case,) = task("strokevision_poses", tmp_path).cases("test")
    assert (case.id, case.patient) == ("2", "s02")
    assert (case.images[0].read().array == 2).all()
    assert case.target.read() == Findings(dict.fromkeys(("grasp", "transport", "return"), 0) | {"release": 1})
    table = tmp_path / "clips.csv"
    table.write_text(table.read_text().replace("s02", "s01"))
    with pytest.raises(UserError, match="lie in more than one split"):
        task("strokevision_poses", tmp_path).cases("test")


def test_strokevision_clips_are_read_whole(tmp_path):
    write_video(tmp_path / "1.mp4", np.stack([np.full((16, 16, 3), 20 * k, np.uint8) for k in range(3)]), 4)
    (tmp_path / "clips.csv").write_text("clip,subject,label,split,video\n1,s01,grasp,test,1.mp4\n")
    (case,) = task("strokevision_clips", tmp_path).cases("test")
    assert case.images[0].read().array.mean((0, 2, 3)).tolist() == [0, 20, 40]
