"""`check metrics=`: what metrics of reports lack, without loading anything."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from medimg_eval import metrics
from medimg_eval.case import Case
from medimg_eval.commands.cli import start
from medimg_eval.errors import UserError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.metrics.registry import ALL
from medimg_eval.models.annotators.chexbert import CheXbert
from medimg_eval.models.base import VisionLanguageModel
from medimg_eval.question import Key, Question
from medimg_eval.tasks import ReportTask
from tests.conftest import environment
from tests.helpers.asking import Known
from tests.helpers.running import evaluate


@pytest.fixture(autouse=True)
def no_weights(tmp_path, monkeypatch):
    """A machine whose cache of the hub is empty."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture
def asked(capfd):
    def ask(*words):
        code = start(["check", *words])
        found = capfd.readouterr()
        return code, found.out, found.err

    return ask


def needing():
    """Every metric that has an annotator or a judge read for it."""
    found = metrics.available()
    direct = {
        name
        for name, one in found.items()
        if isinstance(one.requires, tuple) and any(need.topic != ALL for need in one.requires)
    }
    summed = {name for name, one in found.items() if any(metrics.parse(need)[0].name in direct for need in one.needs)}
    return {name for name in direct | summed if not found[name].intermediate}


def test_all_metrics_that_need_something_are_listed_a_line_each(asked):
    code, out, err = asked("metrics=all")
    listed = [line.partition(":")[0] for line in out.splitlines() if ": lacks " in line or line.endswith(": ready")]
    assert (code, err) == (0, "")
    assert set(listed) == needing()
    assert len(set(listed)) == len(listed)
    assert "chexbert_f1: lacks annotators.chexbert.weights, annotators.chexbert.vocabulary\n" in out
    assert "licence: that of stanfordmlgroup/CheXbert" in out
    assert "python -m medimg_eval download annotator=chexbert" in out
    assert f"of {len(listed)} metrics are ready" in out


def test_a_named_metric_that_is_not_ready_fails_the_command(asked):
    code, out, err = asked("metrics=[chexbert_f1@micro-14+,rouge_l,rule_labeler_f1@Pleural Effusion+]")
    assert code == 1
    assert "chexbert_f1@micro-14+: lacks annotators.chexbert.weights" in out
    assert "rouge_l: ready; needs no weights and no judge" in out
    assert "rule_labeler_f1@Pleural Effusion+: ready; needs no weights" in out
    assert "1 of 3 metrics are not ready" in err


def test_weights_that_are_there_make_it_ready(asked, tmp_path):
    for file in ("chexbert.pth", "config.json", "vocab.txt"):
        (tmp_path / file).touch()
    given = [f"annotators.chexbert.{key}={tmp_path}" for key in ("weights", "vocabulary")]
    code, out, _ = asked("metrics=chexbert_f1@micro-14", *given)
    assert (code, "chexbert_f1@micro-14: ready\n" in out) == (0, True)
    code, out, _ = asked("metrics=chexbert_f1@micro-14", given[0])
    assert (code, "chexbert_f1@micro-14: lacks annotators.chexbert.vocabulary\n" in out) == (1, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["metrics=chexbrt_f1"], "got 'chexbrt_f1'; did you mean 'chexbert_f1'"),
        (["metrics=all", "annotators.chexbrt.weights=x"], "got 'chexbrt'; did you mean 'chexbert'"),
    ],
)
def test_names_that_there_are_not_are_refused(asked, words, told):
    code, _, err = asked(*words)
    assert (code, told in err) == (2, True)


def test_it_imports_no_torch_and_no_transformers(tmp_path):
    code = (
        "import sys\nfrom medimg_eval.commands.cli import start\nassert start(['check', 'metrics=all']) == 0\n"
        "sys.exit(bool({'torch', 'transformers', 'lightning', 'pandas'} & set(sys.modules)))"
    )
    shown = environment() | {"HF_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=shown, stdout=subprocess.DEVNULL)


class Never(VisionLanguageModel):
    """A model that must not be made."""

    def __init__(self):
        raise AssertionError

    def generate(self, prompts, decoding):
        raise AssertionError


class Layout:
    """One report."""

    def cases(self, split):
        return [Case("a", (), Known(Key("edema")), question=Question("Report.", "report"))]


def test_without_its_weights_a_metric_fails_within_a_second_and_before_any_model_is_loaded(tmp_path):
    task = ReportTask(
        name="r",
        layout=Layout(),
        template={"user": "{question}"},
        splits={"test": "test"},
        metrics=["chexbert_f1@micro-14+", "chexbert_f1@micro-14"],
    )
    chexbert = ModelSpec("chexbert", CheXbert, {}, CheXbert)
    made = Settings(tmp_path / "runs", None, lambda **_: None, {}, annotators={"chexbert": chexbert})
    begun = time.perf_counter()
    with pytest.raises(UserError) as caught:
        evaluate(task, ModelSpec("m", Never, {}, Never), made)
    assert time.perf_counter() - begun < 1
    for part in (
        "chexbert_f1@micro-14",
        "chexbert.pth",
        "StanfordAIMI/RRG_scorers",
        "commercial use restricted",
        "annotators.chexbert.weights=PATH",
        "HF_HOME",
        "download annotator=chexbert",
        "check metrics=all",
    ):
        assert part in str(caught.value)
    assert not (tmp_path / "runs").exists()
