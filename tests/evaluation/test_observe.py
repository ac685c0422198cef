"""Evidence: every kind of provider is asked in one place, by halves where something fails, and never twice."""

import re
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

import medimg_eval
from medimg_eval.errors import UserError
from medimg_eval.evaluation.observe import Source, gather_evidence
from medimg_eval.evaluation.run import Run
from medimg_eval.evidence import Subject
from medimg_eval.metrics.registry import Requirement

KINDS = ["annotation", "comparison", "distance"]
NAMES = [f"c{number:02d}" for number in range(32)]


class Provider:
    """Says how long a text is; `fault` decides what happens on a batch."""

    preferred_batch = 32

    def __init__(self, fault=lambda texts: None):
        self.fault, self.sizes = fault, []

    def observe(self, subjects, shared):
        self.sizes.append(len(subjects))
        told = self.fault(subjects)
        return [len(text) for text in subjects] if told is None else told


@pytest.fixture
def gathered(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "cache"))

    def gather(provider, kind="annotation", name="run"):
        source = Source("who", kind, "who-1", "v1", lambda: nullcontext(provider))
        needs = (Requirement(kind, "who"),)
        subjects = [Subject(case, f"key-{case}", lambda text=case: text) for case in NAMES]
        task = SimpleNamespace(requirements=lambda: needs, subjects=lambda *_: subjects)
        with Run(tmp_path / name, "x") as run:
            return gather_evidence(task, run, [], {"who": source})

    return gather


def raises(texts):
    if "c07" in texts:
        raise ValueError("no")


FAULTS = {
    "one raises": raises,
    "too few": lambda texts: [1] * (len(texts) - 1) if "c07" in texts else None,
    "one text for a list": lambda texts: "said" if "c07" in texts else None,
    "nothing is said": lambda texts: [None if text == "c07" else 3 for text in texts],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_costs_its_own_subject_and_that_alone_is_asked_again(gathered, kind, fault):
    evidence = gathered(Provider(FAULTS[fault]), kind)
    assert evidence.notes() == ["who failed on 1 of 32 (c07): not judged"]
    sound = Provider()
    assert gathered(sound, kind).notes() == []
    assert sound.sizes == [1]
    unneeded = Provider()
    assert gathered(unneeded, kind, "another run").of("who", "c07") == 3
    assert unneeded.sizes == []


def test_one_bad_subject_among_32_costs_11_calls(gathered):
    provider = Provider(raises)
    gathered(provider)
    assert len(provider.sizes) == 11


def test_a_batch_that_does_not_fit_makes_all_later_ones_smaller(gathered):
    def full(texts):
        if len(texts) > 8:
            raise RuntimeError("CUDA out of memory")

    provider = Provider(full)
    assert gathered(provider).notes() == []
    assert provider.sizes == [32, 16, 8, 8, 8, 8]


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_that_is_refused_ends_the_stage_and_a_stop_keeps_what_was_said(gathered, kind):
    def refused(texts):
        raise UserError("the key is refused")

    with pytest.raises(UserError, match="the key is refused"):
        gathered(Provider(refused), kind)

    def stops(texts):
        if "c04" in texts:
            raise KeyboardInterrupt

    provider = Provider(stops)
    provider.preferred_batch = 4
    with pytest.raises(KeyboardInterrupt):
        gathered(provider, kind)
    later = Provider()
    gathered(later, kind)
    assert sum(later.sizes) == 28


def test_one_place_asks_providers():
    room = Path(medimg_eval.__file__).parent
    callers = [
        path.name
        for path in (*room.rglob("*.py"), *(room.parent / "tasks").rglob("*.py"))
        if re.search(r"provider\.observe\(", path.read_text(encoding="utf-8"))
    ]
    assert callers == ["observe.py"]
