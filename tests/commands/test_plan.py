"""`plan`, and `accept=` and `plan=` of `score` and `test`: exit codes of their own, from a pilot to a verdict."""

from __future__ import annotations

import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

import medimg_eval
from medimg_eval.commands.cli import start
from medimg_eval.errors import UsageError
from medimg_eval.instantiate import build_task
from tests.helpers.printed import said

ACCEPT = "accept={dice: {lower: 0.8}}"


def fill(folder, seed=None, count=7):
    """Boxes of 64 voxels; with a seed each lacks some, so that Dice is about 0.9."""
    rng = np.random.default_rng(seed)
    Path(folder).mkdir(exist_ok=True)
    for number in range(count):
        labels = np.zeros((8, 8, 8), np.uint8)
        labels[2:6, 2:6, 2:6] = 1
        if seed is not None:
            labels[tuple(rng.choice(np.argwhere(labels), rng.integers(2, 24), replace=False).T)] = 0
        nib.save(nib.Nifti1Image(labels, np.eye(4)), f"{folder}/c{number}.nii.gz")


@pytest.fixture
def product(folder):
    for name, seed in (("right", None), ("mine", 1), ("pilot", 2)):
        fill(name, seed)
    return folder


def score(*words):
    return start(["score", "masks=mine", "references=right", "metrics=[dice]", *words])


@pytest.mark.parametrize(
    ("words", "number"),
    [
        ("value=proportion expected=0.9 lower=0.8", "112"),
        ("value=mean expected=0.85 sd=0.1 lower=0.8", "34"),
        ("value=mean expected=0.85 sd=0.1 upper=0.9", "34"),
        ("value=mean expected=0.5 sd=0.1 precision=0.02", "99"),
        ("value=difference expected=0 discordant=0.2 lower=-0.05", "630"),
        ("value=mean expected=0.8 range=[0,1] precision=0.02", "1,540"),
    ],
)
def test_a_number_needs_one_line(words, number, capsys):
    assert start(["plan", *words.split()]) == 0
    assert f"{number} independent patients" in said(capsys)[0]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("value=mean expected=0.8 lower=0.7", "sd= is missing"),
        ("value=mean expected=0.8 sd=0.1", "nothing is asked for"),
        ("value=mean expected=0.8 sd=0.1 lower=0.9", "is not met by what is expected"),
        ("value=mean sd=0.1 lower=0.9", "expected= is missing"),
        ("value=share expected=0.8", "got 'share'"),
        ("value=mean expected=0.8 sd=0.1 lower=0.7 power=2", "expected power to be a number between 0 and 1"),
        ("value=mean expected=0.8 sd=0.1 lower=0.7 out=plan.json", "gives a number only"),
        ("order=both", "got 'both'"),
        ("", "name what is to be shown"),
        ("accept.dice.lower=0.8", "pilot=RUN or expect="),
        ("accept.dice.lower=0.8 out=plan.json", "a plan is of data"),
        ("file=plan.json", "plan.json: no such plan"),
    ],
)
def test_what_cannot_be_planned_is_said(words, told, folder, capsys):
    assert start(["plan", *words.split()]) in (1, 2)
    assert told in said(capsys)[1]


def test_from_a_pilot_to_a_verdict(product, capsys):
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    Path("key.pem").write_bytes(pem)
    Path("pub.pem").write_bytes(
        key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
    )
    words = ["score", "masks=pilot", "references=right", "metrics=[dice]", "runs=pilots"]
    assert start(words) == 0
    planned = ["plan", ACCEPT, "references=right", "metrics=[dice]", "pilot=pilots", "out=plan.json"]
    assert start([*planned, "sign=key.pem"]) == 2
    assert "sign= needs by=" in said(capsys)[1]
    assert start([*planned, "sign=key.pem", 'by="Jane Doe"', "title=Trial"]) == 0
    assert "pilot pilot, 7 cases" in said(capsys)[0]
    assert start(planned) == 2
    assert "is not written over" in said(capsys)[1]
    assert start(["plan", "file=plan.json", "plan_key=pub.pem", "sign=key.pem", 'by="Ed Itor"', "meaning=review"]) == 0
    assert "signed by Jane Doe (author)" in said(capsys)[0]
    assert len(json.loads(Path("plan.json").read_text())["signatures"]) == 2

    assert score("plan=plan.json", "plan_key=pub.pem") == 0
    out, _ = said(capsys)
    assert "accepted: mine meets every primary endpoint" in out
    assert "Signed by Ed Itor (review)" in out
    (kept,) = Path("runs").rglob("acceptance.json")
    assert json.loads(kept.read_text())["accepted"] is True

    # A pilot was there before the plan; other conventions, other criteria and a changed plan are refused, too.
    assert start([*words, "plan=plan.json"]) == 4
    assert "before the plan was fixed" in said(capsys)[1]
    assert score("plan=plan.json", "empty=monai") == 4
    assert "dice is computed by" in said(capsys)[1]
    assert score("plan=plan.json", "accept={dice: {lower: 0.1}}") == 4
    assert "planned was" in said(capsys)[1]
    Path("plan.json").write_text(Path("plan.json").read_text().replace("0.8", "0.1", 1))
    assert score("plan=plan.json") == 4
    assert "was changed after it was written" in said(capsys)[1]


def test_the_bound_has_an_exit_code_of_its_own(product, capsys):
    assert score(ACCEPT) == 0
    assert score("accept.dice.lower=0.99") == 3
    out, err = said(capsys)
    assert "Acceptance of mine on Masks" in out
    assert "not accepted: mine: Dice: lower bound at least 0.99 is not met" in err
    assert score("accept.dice.lowr=0.99") == 2
    assert "has no key 'lowr'" in said(capsys)[1]
    # What failed is told with the verdict, in whose code the command ends.
    Path("mine/c0.nii.gz").write_text("broken")
    assert score("accept.dice.lower=0.99") == 3
    assert "case c0 failed" in said(capsys)[1]


def test_a_plan_refuses_missing_cases(product, capsys):
    assert start(["plan", ACCEPT, "references=right", "metrics=[dice]", "out=plan.json"]) == 0
    Path("mine/c3.nii.gz").unlink()
    assert score("plan=plan.json") == 4
    assert "1 cases failed: c3" in said(capsys)[1]


def test_a_task_may_state_what_it_accepts(tmp_path):
    layout = {"_target_": "medimg_eval.data.layouts.MaskFolder", "root": str(tmp_path)}
    config = {"_target_": "medimg_eval.tasks.SegmentationTask", "name": "livers", "labels": {1: "liver"}}
    task = build_task({**config, "layout": layout, "accept": {"dice": {"lower": 0.8}}})
    assert task.acceptance == {"dice": {"lower": 0.8}}
    assert task.config["acceptance"] == {"dice": {"lower": 0.8}}


def test_from_python_a_run_is_judged_once_it_is_there():
    with pytest.raises(UsageError, match=r"judge_runs\(load_runs"):
        medimg_eval.test("brain_tissue", "gaussian_mixture", accept={"dice": {"lower": 0.5}})


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("accept={dcie: {lower: 0.8}}", "dice"),
        ("accept={dice: {lowr: 0.8}}", "dice has no key"),
        ("accept={dice: {upper: 0.8}}", "higher is better"),
        ("plan=plam.json", "plam.json: no such plan"),
    ],
)
def test_a_misspelt_criterion_is_told_before_anything_is_scored(product, capsys, word, message):
    assert score(word) == 2 - word.startswith("plan")
    assert message in said(capsys)[1]
    assert not Path("runs").exists()
