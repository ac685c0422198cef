"""Systems of films, poses and clips, from their files to their table in at most three commands."""

import csv
import json
from collections.abc import Mapping

import numpy as np
import pytest

from medimg_eval.commands.cli import start
from tests.helpers import film_sets, tiny_vlm
from tests.helpers.benchmark_files import config, picture, task

pytestmark = pytest.mark.slow

FILMS = {
    "cholec80": film_sets.write_cholec80,
    "cholect45": film_sets.write_cholect45,
    "cholect50": film_sets.write_cholect50,
    "pitvis": film_sets.write_pitvis,
    "endoscapes_cvs": film_sets.write_endoscapes,
    "heichole": film_sets.write_heichole,
    "autolaparo": film_sets.write_autolaparo,
    "multibypass140": film_sets.write_multibypass,
    "multibypass140_steps": film_sets.write_multibypass,
    "sar_rarp50": film_sets.write_sar_rarp,
    "jigsaws_suturing": film_sets.write_jigsaws,
    "bleedorigin_onset": film_sets.write_bleedorigin,
}


def write_answers(benchmark, folder):
    """The right labels as a program writes them down, a table for each video; frames of no class have no row."""
    folder.mkdir()
    columns = ()
    called = benchmark.phases if isinstance(benchmark.phases, Mapping) else {name: name for name in benchmark.phases}
    for case in benchmark.cases("test"):
        truth = case.target.read()
        phase = [name for name in truth.columns if benchmark.phases and name == benchmark.phase]
        columns = (*phase, *(name for name in truth.columns if name in benchmark.presence_names))
        values = {name: [called.get(one) if name in phase else one for one in truth.columns[name]] for name in columns}
        rows = [[frame, *(values[name][place] for name in columns)] for place, frame in enumerate(truth.frames)]
        with (folder / f"{case.id}.csv").open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["frame", *columns])
            writer.writerows(row for row in rows if None not in row)
    return columns


@pytest.mark.parametrize("name", sorted(FILMS))
def test_films_go_from_their_labels_to_a_table(name, tmp_path):
    root, run = tmp_path / "data", tmp_path / "run"
    root.mkdir()
    FILMS[name](root)
    benchmark = task(name, root)
    columns = write_answers(benchmark, tmp_path / "labels")
    words = [f"task={name}", f"task.layout.root={root}", "model=precomputed_frames", f"model.root={tmp_path}/labels"]
    words.append(f"model.columns={json.dumps(columns)}")
    expected = config(name).get("expected", {})
    words += [
        f"task.expected.{key}={len(benchmark.cases('test'))}"
        for key in expected
        if key in ("test", benchmark.splits["test"])
    ]
    assert start(["test", *words, f"run={run}"]) == 0
    assert start(["table", f"runs={run}", f"out={tmp_path}/table"]) == 0
    assert (tmp_path / "table" / "table.csv").read_text().count("\n") > 1
    manifest = json.loads((run / "manifest.json").read_text())
    assert (manifest["status"], manifest["failed_cases"]) == ("finished", 0)


@pytest.mark.parametrize(
    ("name", "write", "parts"),
    [
        ("scoliosis1k_pose", film_sets.write_scoliosis, ("fit", "test")),
        ("strokevision_poses", film_sets.write_strokevision, ()),
    ],
)
def test_poses_are_fitted_tested_and_put_into_a_table(name, write, parts, tmp_path):
    root, fit, run = (tmp_path / folder for folder in ("data", "fit", "run"))
    root.mkdir()
    write(root)
    if name == "strokevision_poses":
        table = root / "clips.csv"
        table.write_text(table.read_text() + "3,s03,grasp,tune,keypoints/1.npz\n")
    benchmark = task(name, root)
    words = [f"task={name}", f"task.layout.root={root}", "model=pose_classifier", "trainer.accelerator=cpu"]
    words.append("task.metrics=[top1_accuracy]")
    words += [f"task.expected.{part}={len(benchmark.cases(part))}" for part in parts]
    assert start(["fit", *words, "trainer.max_epochs=1", f"run={fit}"]) == 0
    assert start(["test", *words, f"model.checkpoint={fit}", f"run={run}"]) == 0
    assert start(["table", f"runs={run}", f"out={tmp_path}/table"]) == 0
    assert (tmp_path / "table" / "table.csv").read_text().count("\n") > 1


def test_clips_are_fitted_tested_and_put_into_a_table(tmp_path):
    root, fit, run = (tmp_path / folder for folder in ("data", "fit", "run"))
    root.mkdir()
    film_sets.write_strokevision_clips(root)
    transformers = pytest.importorskip("transformers")
    encoder = transformers.VideoMAEConfig(
        image_size=16, patch_size=8, num_frames=4, tubelet_size=2, hidden_size=8, num_hidden_layers=1,
        num_attention_heads=2, intermediate_size=8,
    )  # fmt: skip
    transformers.VideoMAEForVideoClassification(encoder).save_pretrained(tmp_path / "videomae")
    words = ["task=strokevision_clips", f"task.layout.root={root}", "model=clip_classifier"]
    words += [f"model.encoder={tmp_path}/videomae", "model.new_head=true", "trainer.accelerator=cpu"]
    words.append("task.metrics=[top1_accuracy]")
    assert start(["fit", *words, "trainer.max_epochs=1", f"run={fit}"]) == 0
    assert start(["test", *words, f"model.checkpoint={fit}", f"run={run}"]) == 0
    assert start(["table", f"runs={run}", f"out={tmp_path}/table"]) == 0
    assert (tmp_path / "table" / "table.csv").read_text().count("\n") > 1


def test_points_of_a_bleeding_are_found_in_its_frames(tmp_path):
    root, run = tmp_path / "data", tmp_path / "run"
    root.mkdir()
    film_sets.write_bleedorigin(root)
    (tmp_path / "points.csv").write_text("case,x,y\nesd1-000001,5,63\nesd1-000002,6,203\n")
    words = ["task=bleedorigin_points", f"task.layout.root={root}", "model=precomputed_points", "model.score=''"]
    words += [f"model.root={tmp_path}/points.csv", "model.columns=[x,y]", "model.space=voxel", "model.case=case"]
    assert start(["test", *words, f"run={run}"]) == 0
    assert start(["table", f"runs={run}", f"out={tmp_path}/table"]) == 0
    with (tmp_path / "table" / "table.csv").open(newline="") as stream:
        values = {row["metric"]: float(row["mean"]) for row in csv.DictReader(stream)}
    assert values == {"sdr@25": 0, "sdr@50": 0, "sdr@100": 0.5, "landmark_distance": 130}  # 60 and 200 pixels away
    summary = json.loads((run / "manifest.json").read_text())
    assert (summary["status"], summary["failed_cases"]) == ("finished", 0)


@pytest.mark.parametrize("name", ["sar_rarp50_segmentation", "endoscapes_boxes"])
def test_masks_and_boxes_of_films_go_from_their_files_to_a_table(name, tmp_path):
    root, run = tmp_path / "data", tmp_path / "run"
    root.mkdir()
    words = [f"task={name}", f"task.layout.root={root}", f"run={run}"]
    if name == "endoscapes_boxes":
        film_sets.write_endoscapes(root)
        (tmp_path / "boxes.json").write_text(
            json.dumps([{"image_id": 7, "category_id": 5, "score": 0.9, "bbox": [10, 4, 30, 20]}])
        )
        words += ["model=precomputed_coco", f"model.root={tmp_path}/boxes.json"]
        words.append(f"model.annotations={root}/test/annotation_coco.json")
    else:
        film_sets.write_sar_masks(root)
        words += ["model=precomputed", f"model.root={root}/test", "model.pattern='{case}.png'"]
    assert start(["test", *words]) == 0
    assert start(["table", f"runs={run}", f"out={tmp_path}/table"]) == 0
    with (tmp_path / "table" / "table.csv").open(newline="") as stream:
        values = {row["metric"]: float(row["mean"]) for row in csv.DictReader(stream)}
    assert values == pytest.approx(dict.fromkeys(config(name).metrics, 1.0))


def write_frames(name, root, write):
    """A set of films with a picture for each frame of its first film that is tested; returns words that name them."""
    root.mkdir(parents=True)
    write(root)
    case = task(name, root).cases("test")[0]
    every = int(config(name).layout.get("every", 1))
    for frame in case.target.read().frames * every:
        picture(root / "shown" / case.id / f"{frame}.png", np.full((8, 8, 3), frame % 200))
    return [f"tasks.{name}.layout.video='shown/{{video}}/{{frame}}.png'"]


def test_the_sets_of_surgvlm_bench_are_asked_of_a_vision_language_model(tmp_path, monkeypatch):
    monkeypatch.setattr("medimg_eval.results.statistics.summaries.MOST_RESAMPLES", 20)
    monkeypatch.setenv("MEDIMG_EVAL_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    checkpoint = tiny_vlm.save(tmp_path / "tiny", context=16_384)
    words = ["suite=surgvlm_bench", "model=asked_frames", "+model@model.vlm=huggingface_vlm", "model.every=5"]
    words += [f"model.vlm.checkpoint={checkpoint}", "model.vlm.dtype=float32", "model.max_new_tokens=4"]
    words += ["trainer.accelerator=cpu", "tasks.cholec80.metrics=[frame_accuracy]"]
    for name in ("cholec80", "sar_rarp50", "cholect50", "endoscapes_cvs"):
        words += write_frames(name, tmp_path / "data" / name.removesuffix("_cvs"), FILMS[name])
        words += [f"~tasks.{name}.expected"] if "expected" in config(name) else []
    assert start(["test", *words, "limit=1", "runs=made"]) == 0
    assert start(["table", "runs=made", "out=table", "resamples=20"]) == 0
    manifests = [json.loads(path.read_text()) for path in (tmp_path / "made").rglob("manifest.json")]
    assert sorted(manifest["task"] for manifest in manifests) == [
        "cholec80",
        "cholect50",
        "endoscapes_cvs",
        "sar_rarp50",
    ]
    assert {(manifest["status"], manifest["failed_cases"]) for manifest in manifests} == {("finished", 0)}


def test_skill_is_rated(tmp_path):
    trials = tmp_path / "trials"
    trials.mkdir()
    film_sets.write_jigsaws(trials)
    cases = task("jigsaws_skill", trials).cases("test")
    numbers = [f"{case.id},{case.target.read().values['grs']}" for case in cases]
    (tmp_path / "skill.csv").write_text("\n".join(["case,grs", *numbers]) + "\n")
    skill = [
        "task=jigsaws_skill",
        f"task.layout.root={trials}",
        "model=precomputed_numbers",
        f"model.root={tmp_path}/skill.csv",
    ]
    assert start(["test", *skill, f"run={tmp_path}/run"]) == 0
    assert start(["table", f"runs={tmp_path}/run", f"out={tmp_path}/table"]) == 0
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert (manifest["status"], manifest["failed_cases"]) == ("finished", 0)
