"""What fails in code of the user's own is placed, and what fails alike is told once."""

import json
import re
import sys

import numpy as np
import pytest

from medimg_eval.commands.cli import start
from medimg_eval.commands.console import SHOWN, fail_if_cases_failed
from medimg_eval.errors import CaseError, UserError, cause_of, error_in_words, users_frame

OWN = """
from medimg_eval.models import Segmenter

class Own(Segmenter):
    uses_torch = False

    def __init__(self, fails="asked"):
        self.fails = fails
        if fails == "made":
            {}["weights"]

    def prepare(self, labels, example):
        if self.fails == "prepared":
            labels["no label"]

    def segment(self, prompts):
        raise ValueError("slice %d is bad" % (len(prompts[0].case_id) + hash(prompts[0].case_id) % 9))
"""


@pytest.fixture
def own(monkeypatch, tmp_path):
    (tmp_path / "own_models.py").write_text(OWN)
    (tmp_path / "own_broken.py").write_text("\nhalf = 1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["medimg_eval"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    yield ["test", "task=brain_tissue", "model._target_=own_models.Own"]
    for name in ("own_models", "own_broken"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("fails", "place", "line"),
    [("made", "line 10, in __init__", '{}["weights"]'), ("prepared", "line 14, in prepare", 'labels["no label"]')],
)
def test_an_error_in_code_of_the_users_own_is_three_lines_with_its_place(own, fails, place, line, capfd):
    assert start([*own, f"+model.fails={fails}"]) == 1
    told = [row for row in capfd.readouterr().err.splitlines() if "loading" not in row]
    assert len(told) == 3
    assert told[0].startswith("medimg_eval: KeyError: ")
    assert told[1].endswith(f"own_models.py, {place}: {line}")
    assert "debug=true" in told[2]


def test_its_traceback_is_shown_on_demand(own, capfd):
    assert start([*own, "+model.fails=made", "debug=true"]) == 1
    told = capfd.readouterr().err
    assert "Traceback" in told
    assert told.splitlines()[-1] == "KeyError: 'weights'"


def test_a_module_of_the_users_own_that_cannot_be_imported_is_placed(own, capfd):
    assert start([*own[:-1], "model._target_=own_broken.Own"]) == 2
    assert "(division by zero; " in (told := capfd.readouterr().err)
    assert "own_broken.py, line 2); install" in told


def test_failures_of_one_cause_are_told_once_with_one_case_and_their_number(own, capfd):
    assert start([*own, "limit=3"]) == 1
    told = capfd.readouterr().err
    assert told.count(" is bad (own_models.py:17 in segment)") == 2  # when it happened, and at the end
    assert "  3 times, such as " in told
    assert told.splitlines()[-1].endswith("summary.json has them all; debug=true shows tracebacks")


def folder_of(tmp_path, failures):
    (tmp_path / "manifest.json").write_text(json.dumps({"schema": 2, "metrics": [], "baseline": False}))
    (tmp_path / "summary.json").write_text(json.dumps({"metrics": [], "failures": failures}))
    return tmp_path


def test_the_most_frequent_causes_come_first_and_the_others_are_counted(tmp_path):
    texts = [f"cause {'abcdefgh'[place]}" for place in range(SHOWN + 2) for _ in range(place + 1)]
    failures = [{"case": f"c{n}", "stage": "answer", "message": text} for n, text in enumerate(texts)]
    with pytest.raises(UserError) as caught:
        fail_if_cases_failed([folder_of(tmp_path, failures)])
    lines = str(caught.value).splitlines()
    assert lines[0].startswith(f"{len(failures)} cases failed in ")
    assert lines[1] == "  7 times, such as c21 (answer): cause g"
    assert lines[-2] == "  ... and 2 further causes"
    assert len(lines) == SHOWN + 3


def test_a_cause_is_a_message_without_its_case_and_numbers():
    assert cause_of("/data/a1/a1.nii.gz: 3 labels", "a1") == cause_of("/data/b/b.nii.gz: 12 labels", "b")
    assert cause_of("/data/x/4fe: is cut short", "a1") == cause_of("/data/y/c0d: is cut short", "b")
    assert cause_of("an answer", "a") == "an answer"
    assert cause_of("status 429", "a") != cause_of("status 500", "a")


def test_only_code_that_is_neither_ours_nor_installed_is_the_users():
    with pytest.raises(ValueError, match="reshape") as caught:
        np.zeros(3).reshape(7)
    assert users_frame(caught.value).filename == __file__
    assert re.search(r" \(test_failures\.py:\d+ in test_only_code_\w+\)$", error_in_words(caught.value))
    with pytest.raises(ValueError, match="Expecting") as caught:
        json.loads("{")
    caught.value.__traceback__ = caught.value.__traceback__.tb_next  # as where another library has called it
    assert users_frame(caught.value) is None
    assert error_in_words(CaseError("as it is")) == "as it is"
