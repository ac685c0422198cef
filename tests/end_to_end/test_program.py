"""The program as its users run it: in another process, from an empty folder."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from tests.conftest import AFFINE, HELPERS, LABELS, environment

pytestmark = pytest.mark.slow

THRESHOLDS = "model._target_=answering.Thresholds"


def one_run(folder):
    (manifest,) = (path for path in Path(folder).rglob("manifest.json"))
    return manifest.parent


def scores(folder):
    return pd.read_parquet(one_run(folder) / "scores.parquet")


def counted(folder):
    return json.loads((one_run(folder) / "manifest.json").read_text())["failed_cases"]


def precomputed_folder(root, folder):
    """The right answers in a folder, each of the ways a folder can be wrong in it."""
    folder.mkdir()
    for path in sorted((root / "labels").iterdir()):
        (folder / path.name).write_bytes(path.read_bytes())
    labels = np.asanyarray(nib.load(folder / "case00.nii.gz").dataobj)
    moved = AFFINE.copy()
    moved[:3, 3] += 4
    nib.save(nib.Nifti1Image(labels, moved), folder / "case01.nii.gz")
    nib.save(nib.Nifti1Image(labels[:-1], AFFINE), folder / "case02.nii.gz")
    (folder / "case03.nii.gz").unlink()
    (folder / "case04.nii.gz").write_bytes((folder / "case04.nii.gz").read_bytes()[:60])
    nib.save(nib.Nifti1Image(labels + np.uint8(5), AFFINE), folder / "case05.nii.gz")


def test_a_folder_of_predictions_is_scored_and_each_fault_is_named(program, write_dataset, config_dir, tmp_path):
    root = write_dataset(8)
    conf = str(config_dir(root))
    words = ["test", "--config-dir", conf, "task=ellipsoids", "model=precomputed", f"model.root={tmp_path / 'given'}"]
    precomputed_folder(root, tmp_path / "given")
    done = program(*words)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    told = done.stderr[done.stderr.index("medimg_eval: 5 cases failed") :]
    for case, fault in {
        "case01": r"another affine: grids are up to .* mm apart of the reference .*labels/case01\.nii\.gz",
        "case02": r"shape \(15, 14, 10\) instead of \(16, 14, 10\)",
        "case03": r"given/case03\.nii\.gz: no prediction for case 'case03'",
        "case04": r"given/case04\.nii\.gz: .*(cannot be read|cut short)",
        "case05": r"unknown labels \[5, 6, 7\]; the task knows 0 background, 1 core, 2 rim",
    }.items():
        assert re.search(rf"{case} \(.*{fault}", told), (case, told)
    assert "5 of 8 cases failed" in done.stdout
    frame = scores(tmp_path / "runs")
    assert len(frame) == 8 * 2 * 3
    dice = frame[frame["metric"] == "dice"].groupby("case")["value"].mean()
    assert dice.to_dict() == {f"case0{i}": (0.0 if 1 <= i <= 5 else 1.0) for i in range(8)}
    # Mended, the same command is another run, for the predictions are others; the table shows the newest.
    for path in (root / "labels").iterdir():
        (tmp_path / "given" / path.name).write_bytes(path.read_bytes())
    mended = program(*words)
    assert mended.returncode == 0, mended.stderr
    table = program("table", f"out={tmp_path / 'paper'}")
    assert "1.000 [n too small]" in table.stdout  # of 4 patients
    assert "1 older run" in table.stdout
    written = sorted(path.name for path in (tmp_path / "paper").iterdir())
    assert written == ["card.json", "card.md", *(f"table.{end}" for end in ("csv", "html", "md", "tex", "xlsx"))]


def test_a_first_look_is_partial_and_says_so(program, write_dataset, config_dir, tmp_path):
    root = write_dataset(3)
    words = ["test", "--config-dir", str(config_dir(root)), "task=ellipsoids", "model=precomputed"]
    words.append(f"model.root={root / 'labels'}")
    lost = program(*words, "only=case0")
    assert lost.returncode == 2
    assert re.search(
        r"task 'ellipsoids' has no case 'case0'; the nearest of 3 are case0\d, case0\d, case0\d", lost.stderr
    )
    look = program(*words, "limit=2", "seed=1")
    assert look.returncode == 0, look.stderr
    assert "a partial run, the first 2 of 3 cases" in look.stdout
    whole = program(*words, "seed=1")
    assert "partial" not in whole.stdout
    assert len(list((tmp_path / "runs").rglob("manifest.json"))) == 1


def waiting(case, gate):
    """Words for a model that has no answer from a case on, until a file is there."""
    return [THRESHOLDS, f"+model.waits_at={case}", f"+model.gate={gate}"]


def wait_for_lines(pattern, wanted, process, timeout=120):
    end = time.monotonic() + timeout
    while time.monotonic() < end and process.poll() is None:
        lines = [line for path in Path().glob(pattern) for line in path.read_text().splitlines()]
        if len(lines) >= wanted:
            return len(lines)
        time.sleep(0.02)
    raise AssertionError(f"{pattern}: never reached {wanted} lines; exit code {process.poll()}")


def test_a_killed_run_loses_a_batch_at_most_and_ends_as_if_nothing_had_happened(
    program, starter, write_dataset, config_dir, tmp_path, monkeypatch
):
    batch_size = 2
    conf = str(config_dir(write_dataset(9)))
    log, gate = tmp_path / "log", tmp_path / "gate"
    words = ["test", "--config-dir", conf, "task=ellipsoids", f"batch_size={batch_size}", *waiting("case06", gate)]
    words += [f"+model.log={log}", "+model.levels=[80,150]"]
    for place in ("whole", "killed"):
        (tmp_path / place).mkdir()
    monkeypatch.chdir(tmp_path / "killed")
    process = starter.begin(words, tmp_path / "killed", environment(HELPERS))
    wait_for_lines("runs/*/*/predictions-0.jsonl", 4, process)
    process.kill()
    process.communicate()
    assert json.loads((one_run("runs") / "manifest.json").read_text())["status"] == "running"
    unfinished = program("table", cwd=tmp_path / "killed")
    assert re.search(r"unfinished \d/9", unfinished.stdout)
    before = len(log.read_text().split())

    gate.touch()
    resumed = program(*words, cwd=tmp_path / "killed")
    assert resumed.returncode == 0, resumed.stderr
    calls = log.read_text().split()
    assert len(calls) <= 9 + batch_size
    assert len(calls) > before

    # The log is an argument of the model, hence of the run's id: the same one, from the start.
    log.unlink()
    whole = program(*words, cwd=tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr
    files = [one_run(tmp_path / place / "runs") / "scores.parquet" for place in ("whole", "killed")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert len(pd.read_parquet(files[0])) == 9 * 2 * 3
    assert resumed.stdout == whole.stdout


def test_no_process_is_left_behind_by_a_kill(write_dataset, config_dir, tmp_path, monkeypatch):
    conf = str(config_dir(write_dataset(9)))
    monkeypatch.chdir(tmp_path)
    mark = f"MEDIMG_EVAL_TEST={tmp_path}"
    monkeypatch.setenv(*mark.split("="))
    words = ["test", "--config-dir", conf, "task=ellipsoids", *waiting("case03", tmp_path / "gate")]
    # Started from nothing, for what it starts is known by the environment.
    command = [sys.executable, "-m", "medimg_eval", *words]
    said = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment(HELPERS), **said)
    wait_for_lines("runs/*/*/predictions-0.jsonl", 3, process)
    wait_for_processes(mark, lambda count: count > 1)  # one of them scores what was predicted
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    wait_for_processes(mark, lambda count: count == 0)


def wait_for_processes(mark, wanted, timeout=60):
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        alive = [path for path in Path("/proc").glob("[0-9]*/environ") if mark in readable(path)]
        if wanted(len(alive)):
            return
        time.sleep(0.05)
    raise AssertionError(f"alive after {timeout} s: {alive}")


def readable(path):
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_and_sigterm_end_with_a_code_of_their_own_and_the_run_goes_on_later(
    program, starter, write_dataset, config_dir, tmp_path, monkeypatch, number, code
):
    conf = str(config_dir(write_dataset(6)))
    monkeypatch.chdir(tmp_path)
    gate = tmp_path / "gate"
    words = ["test", "--config-dir", conf, "task=ellipsoids", *waiting("case02", gate), "num_workers=0"]
    process = starter.begin(words, tmp_path, environment(HELPERS))
    wait_for_lines("runs/*/*/predictions-0.jsonl", 1, process)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert "the same command goes on from here" in err
    assert json.loads((one_run("runs") / "manifest.json").read_text())["status"] == "interrupted"
    gate.touch()
    done = program(*words)
    assert done.returncode == 0, done.stderr
    assert "goes on from an earlier start" in done.stderr


def test_a_second_process_on_a_run_is_refused(program, starter, write_dataset, config_dir, tmp_path, monkeypatch):
    conf = str(config_dir(write_dataset(6)))
    monkeypatch.chdir(tmp_path)
    words = ["test", "--config-dir", conf, "task=ellipsoids", *waiting("case02", tmp_path / "gate")]
    first = starter.begin(words, tmp_path, environment(HELPERS))
    try:
        wait_for_lines("runs/*/*/predictions-0.jsonl", 1, first)
        second = program(*words)
    finally:
        first.kill()
        first.communicate()
    assert second.returncode == 1
    assert re.search(rf"process {first.pid} on .* is at work on this run; wait for it", second.stderr)


def test_two_ranks_of_every_job_score_each_case_once_and_give_the_numbers_of_one(
    program, write_dataset, config_dir, tmp_path
):
    conf = str(config_dir(write_dataset(7)))  # odd: a padding sampler would repeat one
    log = tmp_path / "log"
    words = ["-m", "test", "--config-dir", conf, "task=ellipsoids", THRESHOLDS, f"+model.log={log}"]
    words += ["+model.levels=[80,150],[20,150]"]
    ranks = ["trainer=ddp", "trainer.devices=2", "trainer.accelerator=cpu"]
    one = program(*words, "runs=one")
    assert one.returncode == 0, one.stderr
    log.unlink()
    two = program(*words, *ranks, "runs=two")
    assert two.returncode == 0, two.stderr
    assert sorted(log.read_text().split()) == [f"case0{index}" for index in range(7) for _ in "ab"]
    runs = [path.parent.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("manifest.json")]
    assert len(runs) == 2
    for run in runs:
        shares = [(tmp_path / "two" / run / f"predictions-{rank}.jsonl").read_text().splitlines() for rank in (0, 1)]
        assert [len(share) for share in shares] == [4, 3]
        files = [tmp_path / place / run / "scores.parquet" for place in ("one", "two")]
        assert files[0].read_bytes() == files[1].read_bytes()
    assert one.stdout == two.stdout


def test_a_multirun_runs_every_combination_and_ends_with_the_worst_exit_code(
    program, write_dataset, config_dir, tmp_path
):
    conf = str(config_dir(write_dataset(3)))
    words = ["-m", "test", "--config-dir", conf, "task=ellipsoids", THRESHOLDS, "+model.fails_on=[],[case01]"]
    done = program(*words)
    assert done.returncode == 1, done.stderr
    manifests = [json.loads(path.read_text()) for path in (tmp_path / "runs").glob("*/*/manifest.json")]
    assert sorted((manifest["status"], manifest["failed_cases"]) for manifest in manifests) == [
        ("finished", 0),
        ("finished", 1),
    ]
    assert "1 case failed" in done.stderr


def test_a_suite_runs_its_tasks_with_their_own_settings(program, write_dataset, config_dir, tmp_path):
    conf = config_dir(write_dataset(2))
    one = (conf / "task" / "ellipsoids.yaml").read_text()
    other = one.replace("name: ellipsoids", "name: cores").replace("labels: {1: core, 2: rim}", "labels: {1: core}")
    (conf / "task" / "cores.yaml").write_text(other.replace("Ellipsoids", "Cores"))
    (conf / "suite").mkdir()
    head = "# @package _global_\ndefaults:\n"
    pairs = {"both": ("ellipsoids", "cores"), "twice": ("ellipsoids", "ellipsoids")}
    for name, tasks in pairs.items():
        lines = [f"  - /task@tasks.{key}: {task}\n" for key, task in zip("ab", tasks, strict=True)]
        (conf / "suite" / f"{name}.yaml").write_text(head + "".join(lines))
    words = ["test", "--config-dir", str(conf), THRESHOLDS, "+model.levels=[50,9999]"]
    done = program(*words, "suite=both")
    assert done.returncode == 0, done.stderr
    folders = {path.parent.name: path for path in (tmp_path / "runs").glob("*/*")}
    assert folders.keys() == {"ellipsoids", "cores"}
    assert done.stderr.count("loading") == 1  # one model for the whole suite
    labels = {name: set(pd.read_parquet(path / "scores.parquet")["label"]) for name, path in folders.items()}
    assert labels == {"ellipsoids": {"core", "rim"}, "cores": {"core"}}
    rescored = program("score", f"run={folders['cores']}", "metrics=iou")
    assert rescored.returncode == 0, rescored.stderr
    refused = program(*words, "suite=twice")
    assert refused.returncode == 2
    assert "two tasks called 'ellipsoids'" in refused.stderr


def test_scores_can_be_made_again_after_the_data_have_moved(program, write_dataset, config_dir, tmp_path):
    root = write_dataset(2)
    conf = str(config_dir(root))
    assert program("test", "--config-dir", conf, "task=ellipsoids", THRESHOLDS).returncode == 0
    root.rename(tmp_path / "moved")
    words = ["score", f"run={one_run(tmp_path / 'runs')}"]
    lost = program(*words)
    assert lost.returncode == 1
    assert "no such folder" in lost.stderr
    assert program(*words, f"root={tmp_path / 'moved'}").returncode == 0


def test_a_fitted_network_is_a_model_for_test_and_for_score(program, write_dataset, config_dir, tmp_path):
    conf = str(config_dir(write_dataset(3, fit=2, validate=2)))
    task = ["--config-dir", conf, "task=ellipsoids", "model=unet_small"]
    network = ["model.network.channels=[4, 8]", "model.network.strides=[2]", "model.roi_size=[8,8,8]"]
    fitted = program("fit", *task, *network, "run=fitted", "trainer.max_epochs=2", "trainer.check_val_every_n_epoch=1")
    assert fitted.returncode == 0, fitted.stderr
    assert "to test it: python -m medimg_eval test --config-dir" in fitted.stderr
    folder = tmp_path / "fitted"
    for name in ("checkpoints/best.ckpt", "checkpoints/last.ckpt", "logs/csv/version_0/metrics.csv", "config.yaml"):
        assert (folder / name).is_file()
    assert list((folder / "logs" / "tensorboard").iterdir())
    told = fitted.stderr.partition("to test it: python -m medimg_eval ")[2].splitlines()[0]
    tested = program(*shlex.split(told))
    assert tested.returncode == 0, tested.stderr
    manifest = json.loads((one_run(tmp_path / "runs") / "manifest.json").read_text())
    assert manifest["model_info"]["parameters"] > 0
    rescored = program("score", f"run={one_run(tmp_path / 'runs')}", "metrics=[iou]", "surface=voxel")
    assert rescored.returncode == 0, rescored.stderr
    assert "IoU ↑" in rescored.stdout
    images = f"images={tmp_path / 'data' / 'images' / 'case00.nii.gz'}"
    predicted = program("predict", *task[:2], *task[3:], *network, "model.checkpoint=fitted", images, "out=predicted")
    assert predicted.returncode == 0, predicted.stderr  # with the labels of the task that it was fitted to
    refused = program("score", "run=fitted")
    assert refused.returncode == 1
    assert "holds a fit run; only test runs can be scored again" in refused.stderr
    assert "loading" not in rescored.stderr


def test_check_names_what_is_wrong_with_the_data(program, write_dataset, config_dir, tmp_path):
    root = write_dataset(4)
    conf = str(config_dir(root))
    words = ["check", "--config-dir", conf, "task=ellipsoids", "parts=[test]"]
    assert program(*words).returncode == 0
    (root / "images" / "case00.nii.gz").write_bytes(b"")
    labels = np.asanyarray(nib.load(root / "labels" / "case01.nii.gz").dataobj)
    nib.save(nib.Nifti1Image(labels + np.uint8(4), AFFINE), root / "labels" / "case01.nii.gz")
    nib.save(nib.Nifti1Image(labels, np.eye(4)), root / "labels" / "case02.nii.gz")
    done = program(*words)
    assert done.returncode == 1
    assert "case case00" in done.stdout
    assert "case00.nii.gz: is empty" in done.stdout
    assert "reference holds unknown labels [4, 5, 6]" in done.stdout
    assert "image and reference lie on different grids" in done.stdout
    assert "case case03" not in done.stdout


def test_a_third_partys_model_task_and_metric_work_without_touching_our_files(program, write_dataset, tmp_path, acme):
    root = write_dataset(3)
    listed = program("list", "json=true", paths=(acme,))
    found = json.loads(listed.stdout)
    assert found["tasks"]["acme_blobs"] == "Blobs of a package that is not ours."
    assert found["models"]["bright"] == "everything above a level"
    assert "size_ratio" in found["metrics"]
    done = program("test", "task=acme_blobs", f"task.layout.root={root}", "model=bright", paths=(acme,))
    assert done.returncode == 0, done.stderr
    assert "Size ratio ↑" in done.stdout
    frame = scores(tmp_path / "runs").set_index(["case", "label", "metric"])
    labels = np.asanyarray(nib.load(root / "labels" / "case00.nii.gz").dataobj)
    core, both = (labels == 1).sum(), (labels > 0).sum()
    assert frame.loc[("case00", LABELS[1], "dice"), "value"] == pytest.approx(2 * core / (core + both))
    assert frame.loc[("case00", LABELS[1], "size_ratio"), "value"] == pytest.approx(core / both)
    assert frame.loc[("case00", LABELS[2], "size_ratio"), "status"] == "missed"
    mistyped = program("test", "task=acme_blob", paths=(acme,))
    assert mistyped.returncode == 2
    assert "did you mean 'acme_blobs'?" in mistyped.stderr
