"""Loaders and scorers that others published for surgical films, beside ours; nothing of them is kept here."""

import io
import json
import logging
import os
import pickle
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from medimg_eval.metrics import get
from medimg_eval.metrics.workflow import component_columns, component_groups
from tests.benchmarks.test_workflow_sets import score_table
from tests.helpers.authors import load_functions, require_clone
from tests.helpers.benchmark_files import config, task
from tests.helpers.film_sets import (
    TOOLS,
    triplet_vector,
    write_autolaparo,
    write_cholec80,
    write_endoscapes,
    write_heichole,
    write_jigsaws,
)

pytestmark = pytest.mark.slow


def open_or_read(path, mode="r"):
    """A text's content as a stream, since the authors' programs leave their files open."""
    return Path(path).open(mode) if "b" in mode else io.StringIO(Path(path).read_text())


def surgformer_labels(name, root, tmp_path, **given):
    """What a program of Surgformer makes of a set's labels: video -> a record for each second."""
    script = require_clone("isyangshu/Surgformer") / f"datasets/data_preprosses/generate_labels_{name}.py"
    lines = script.read_text(encoding="utf-8").splitlines()
    lines = [f"    ROOT_DIR = {str(root)!r}" if line.strip().startswith("ROOT_DIR =") else line for line in lines]
    (tmp_path / "labels.py").write_text("\n".join(lines), encoding="utf-8")
    given |= {"np": np, "os": os, "pickle": pickle, "tqdm": iter, "open": open_or_read}
    load_functions(tmp_path / "labels.py", "main", **given)["main"]()
    return {
        video: rows for path in root.rglob("1fps*.pickle") for video, rows in pickle.loads(path.read_bytes()).items()
    }


def test_cholec80_is_read_as_by_surgformer(tmp_path):
    root = tmp_path / "data"
    root.mkdir()
    write_cholec80(root)
    (root / "videos").mkdir()
    for number in range(1, 81):
        (root / f"videos/video{number:02d}.mp4").touch()
    film = SimpleNamespace(get=lambda key: {"fps": 25, "count": 175}[key])
    cv2 = SimpleNamespace(VideoCapture=lambda path: film, CAP_PROP_FPS="fps", CAP_PROP_FRAME_COUNT="count")
    theirs = surgformer_labels("ch80", root, tmp_path, cv2=cv2)
    benchmark = task("cholec80", root)
    cases = [case for part in ("fit", "validate", "test") for case in benchmark.cases(part)]
    assert sorted(theirs) == sorted(case.id for case in cases)
    for case in cases:
        truth, rows = case.target.read(), theirs[case.id]
        assert truth.columns["phase"].tolist() == [row["phase_name"] for row in rows]
        assert np.stack([truth.columns[name] for name in TOOLS], 1).tolist() == [row["tool_gt"] for row in rows]


def test_autolaparo_is_read_as_by_surgformer(tmp_path):
    root = tmp_path / "data"
    root.mkdir()
    write_autolaparo(root)
    for number in range(1, 22):
        for frame in range(3):
            (root / f"frames/{number:02d}").mkdir(parents=True, exist_ok=True)
            (root / f"frames/{number:02d}/{frame}.png").touch()
    theirs = surgformer_labels("autolaparo", root, tmp_path)
    benchmark = task("autolaparo", root)
    cases = [case for part in ("fit", "validate", "test") for case in benchmark.cases(part)]
    assert sorted(theirs) == sorted(case.id for case in cases)
    assert sorted(case.id for case in benchmark.cases("test")) == [f"{number}" for number in range(15, 22)]
    for case in cases:
        said = [benchmark.phases[number] for number in case.target.read().columns["phase"]]
        assert said == [row["phase_name"] for row in theirs[case.id]]


SURG_BENCH_KIT = "anitarau/SurgBenchKit"


@pytest.mark.parametrize("kind", ["phase", "tool", "action"])
def test_heichole_is_read_as_by_surgbenchkit(kind, tmp_path):
    script = require_clone(SURG_BENCH_KIT) / "vlmeval/dataset/heichole_tasks.py"
    loader = load_functions(script, "HeiCholeDataloader", Dataset=object, os=os)["HeiCholeDataloader"]
    write_heichole(tmp_path)
    (tmp_path / "extracted_frames/Hei-Chole4").mkdir(parents=True)
    about = {"name": f"heichole_{kind}", "shots": "zero", "label_names": [], "data_config": {"data_dir": str(tmp_path)}}
    theirs = [label for _, label in loader(about, "test").labels]
    benchmark = task("heichole", tmp_path)
    (case,) = [case for case in benchmark.cases("test") if case.id == "Hei-Chole4"]
    columns = case.target.read().columns
    assert len(theirs) == len(columns["phase"]) == 4
    if kind == "phase":
        assert [label[0] for label in theirs] == columns["phase"].tolist()
    else:
        names = benchmark.presence_names[:7] if kind == "tool" else benchmark.presence_names[7:]
        ours = np.stack([columns[name] for name in names], 1)
        assert ours.tolist() == [label[: len(names)] for label in theirs]


def test_skill_in_jigsaws_is_read_as_by_surgbenchkit(tmp_path):
    script = require_clone(SURG_BENCH_KIT) / "vlmeval/dataset/jigsaws_skill_assessment.py"
    loader = load_functions(script, "JIGSAWSSkillAssessment", Dataset=object, os=os)["JIGSAWSSkillAssessment"]
    write_jigsaws(tmp_path)
    about = {"data_dir": f"{tmp_path}/", "category": "Suturing", "dataset_name": "JIGSAWS", "score": "grs"}
    theirs = {Path(path).stem: float(score) for path, score in loader({"data_config": about}, "test").labels}
    benchmark = task("jigsaws_skill", tmp_path)
    cases = [case for part in ("fit", "test") for case in benchmark.cases(part)]
    assert {case.id.removeprefix("Suturing_"): case.target.read().values["grs"] for case in cases} == theirs


def test_gestures_of_jigsaws_are_read_as_by_surgbenchkit(tmp_path):
    script = require_clone(SURG_BENCH_KIT) / "vlmeval/dataset/jigsaws_gesture_classification.py"
    loader = load_functions(script, "JIGSAWSGestureClassification", Dataset=object, os=os)
    loader = loader["JIGSAWSGestureClassification"]
    loader.video_dir = ""  # which theirs uses and does not set
    write_jigsaws(tmp_path)
    for path in tmp_path.rglob("transcriptions/*.txt"):
        path.write_text("\n".join(line.strip() for line in path.read_text().splitlines()))
    about = {"data_config": {"data_dir": f"{tmp_path}/", "category": "Suturing"}}
    theirs = sorted(Path(path).stem for path, _ in loader(about, "test").labels)
    benchmark, ours = task("jigsaws_suturing", tmp_path), []
    for case in [case for part in ("fit", "test") for case in benchmark.cases(part)]:
        truth = case.target.read()
        for name in np.unique(truth.columns["phase"]):
            frames = truth.frames[truth.columns["phase"] == name] + 1  # theirs count from 1
            ours.append(f"{case.id.removeprefix('Suturing_')}_{frames[0]}_{frames[-1]}_{name}")
    assert sorted(ours) == theirs


def test_cholect50_has_the_labels_and_splits_of_its_loader(tmp_path):
    script = require_clone("CAMMA-public/cholect50") / "dataloader_pth.py"
    theirs = load_functions(script, "T50", "CholecT50", Dataset=object, np=np)
    split = theirs["CholecT50"].split_selector
    parts = {"train": "train", "val": "val", "test": "test"}
    ours = config("cholect50").layout.splits.names
    assert {part: sorted(f"VID{k:02d}" for k in split(None, "cholect50")[part]) for part in parts} == {
        part: sorted(ours[part]) for part in parts
    }
    folds = config("cholect45").layout.splits.names
    assert sorted(map(sorted, folds.values())) == sorted(
        sorted(f"VID{k:02d}" for k in videos) for videos in split(None, "cholect45-crossval").values()
    )
    names, rng = list(config("cholect50").presence), np.random.default_rng(6)
    groups = [component_groups(names, part) for part in "ivt"]
    read = theirs["T50"].get_binary_labels
    for _ in range(20):
        shown = rng.choice(94, rng.integers(0, 3), replace=False)  # the last six are null classes
        vectors = []
        for triplet in shown:
            vector = triplet_vector(int(triplet))
            for place, group in zip((1, 7, 8), groups, strict=True):
                vector[place] = next(k for k, members in enumerate(group.values()) if triplet in members)
            vectors.append(vector)
        columns = np.bincount(shown, minlength=100)
        triplets, *components, _ = read(None, vectors)
        assert (columns == triplets).all()
        for group, component in zip(groups, components, strict=True):
            assert (component_columns(columns[None], group)[0] == (component > 0)[: len(group)]).all()


class _Evaluator:
    """What CocoMetricRGD needs of mmdetection where no boxes are judged."""

    metrics, outfile_prefix, img_ids = (), None, ()
    _coco_api = SimpleNamespace(load_imgs=lambda numbers: [])


@pytest.mark.parametrize(
    ("rule", "key"), [("frame", "ds_average_precision"), ("per_video_per_class", "ds_video_average_precision")]
)
def test_endoscapes_criteria_are_scored_as_by_surglatentgraph(rule, key, tmp_path):
    torch = pytest.importorskip("torch")
    torchmetrics = pytest.importorskip("torchmetrics")
    script = require_clone("CAMMA-public/SurgLatentGraph") / "evaluator/CocoMetricRGD.py"
    registry = SimpleNamespace(register_module=lambda: lambda made: made)
    logger = SimpleNamespace(get_current_instance=lambda: SimpleNamespace(info=lambda text: None))
    given = {"METRICS": registry, "CocoMetric": _Evaluator, "MMLogger": logger, "torch": torch, "Tensor": torch.Tensor}
    given |= {"AP": torchmetrics.AveragePrecision, "Sequence": list}
    theirs = object.__new__(load_functions(script, "CocoMetricRGD", **given)["CocoMetricRGD"])
    theirs.__dict__ |= {"save_lg": False, "additional_metrics": [], "agg": rule, "task_type": "multilabel"}
    theirs.__dict__ |= {"num_classes": 3, "ds_per_class": True}
    rng, images, results = np.random.default_rng(9), [], []
    logits = rng.normal(size=(3, 30, 3))
    for video, frame in np.ndindex(3, 30):
        raters = rng.integers(0, 4, 3) / 3
        images.append({"file_name": f"{162 + video}_{25 * frame}.jpg", "ds": raters.tolist()})
        said = torch.tensor(logits[video, frame])
        results.append(({"ds": raters.tolist()}, {"ds": said, "video_id": video}))
    write_endoscapes(tmp_path)
    (tmp_path / "test/annotation_ds_coco.json").write_text(json.dumps({"images": images}))
    benchmark = task("endoscapes_cvs", tmp_path)
    rows = []
    metric = "presence_map_pooled" if rule == "frame" else "presence_map"
    for number, case in enumerate(benchmark.cases("test")):
        shares = 1 / (1 + np.exp(-logits[int(case.id) - 162]))
        answer = [dict(zip(("C1", "C2", "C3"), map(float, row), strict=True)) for row in shares]
        rows += [(number, row) for row in benchmark.score(case, benchmark.accept(case, answer), [*get(metric).needs])]
    ours = float(get(metric).function(score_table(rows)))
    assert ours == pytest.approx(float(theirs.compute_metrics(results)[key]), abs=1e-6)


def test_multibypass140s_frames_are_those_that_its_loader_reads(tmp_path):
    """The released list of a fold of Bern beside the phases of the released JSON files."""
    clone = require_clone("CAMMA-public/MultiBypass140")
    path = clone / "labels/bern/labels_by70_splits/labels/test/1fps_1.pickle"
    if not path.is_file():
        pytest.skip(f"{path} is not in the clone")
    given = {"os": os, "pickle": pickle, "logging": logging}
    read = load_functions(clone / "util/data_reader.py", "read_pkl_data", **given)["read_pkl_data"]
    images, phases, _ = read(str(path), str(tmp_path))
    lists = {part: [path.relative_to(clone).as_posix()] for part in ("train", "val", "test")}
    splits = {"lists": lists, "fold": 1}
    benchmark = task("multibypass140", clone, layout={"splits": splits, "allow_overlap": "one list for all parts"})
    cases = {case.id: case.target.read() for case in benchmark.cases("test")}
    assert set(cases) == {Path(named[0]).parent.name for named in images}
    numbers = {name: number for number, name in enumerate(benchmark.phase_names)}
    equal = both = 0
    for named, theirs in zip(images, phases, strict=True):
        truth = cases[Path(named[0]).parent.name]
        ours = dict(zip(truth.frames.tolist(), truth.columns["phase"].tolist(), strict=True))
        for image, phase in zip(named, theirs, strict=True):
            name = ours.get(int(Path(image).stem.rpartition("_")[2]) - 1)
            if name in numbers:  # out of the body none is judged here; its lists keep the phase around
                both += 1
                equal += numbers[name] == phase
    assert both > 80_000
    assert equal / both > 0.99
