"""Evidence: every kind of provider is asked in one place, by halves where something fails, and never twice."""

import json
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from faulty_providers import KINDS, NAMES, Said, gather, sound

import medimg_eval
from medimg_eval.errors import UserError
from medimg_eval.evaluation.observe import Source, gather_evidence
from medimg_eval.evaluation.run import Run
from medimg_eval.evidence import Subject
from medimg_eval.instantiate import Annotators, Extractors
from medimg_eval.metrics.registry import Requirement
from medimg_eval.models.hub import Weights
from tests.conftest import HELPERS, environment


class Provider:
    """Says how long a text is; `fault` decides what happens on a batch."""

    preferred_batch = 32

    def __init__(self, fault=sound):
        self.fault, self.sizes = fault, []

    def observe(self, subjects, shared):
        self.sizes.append(len(subjects))
        told = self.fault(subjects)
        return [len(text) for text in subjects] if told is None else told


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def gathered(tmp_path):
    def gather(provider, kind="annotation", name="run"):
        source = Source("who", kind, "who-1", "v1", lambda: nullcontext(provider))
        needs = (Requirement(kind, "who"),)
        subjects = [Subject(case, f"key-{case}", lambda text=case: text) for case in NAMES]
        task = SimpleNamespace(requirements=lambda: needs, subjects=lambda *_: subjects)
        with Run(tmp_path / name, "x") as run:
            return gather_evidence(task, run, [], {"who": source})

    return gather


def raises(names):
    if "c07" in names:
        raise ValueError("no")


FAULTS = {
    "one raises": raises,
    "too few": lambda names: [1] * (len(names) - 1) if "c07" in names else None,
    "one text for a list": lambda names: "said" if "c07" in names else None,
}


def resumed(folder, kind):
    """Whom a sound provider is asked about, in the run of a folder, and what is then known of `c07`."""
    said = Said(sound)
    evidence = gather(folder, kind, said)
    assert evidence.notes() == []
    assert len(evidence.owners("who")) == len(NAMES)
    assert np.array_equal(evidence.of("who", "c07"), KINDS[kind][2])
    return sorted(said.asked)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_costs_its_own_subject_and_that_alone_is_asked_again(tmp_path, kind, fault):
    evidence = gather(tmp_path / "run", kind, Said(FAULTS[fault]))
    assert evidence.notes() == ["who failed on 1 of 32 (c07): not judged"]
    assert evidence.find("who", "c07").status == "failed"
    assert resumed(tmp_path / "run", kind) == ["c07"]
    assert resumed(tmp_path / "run", kind) == []
    assert resumed(tmp_path / "another run", kind) == []


@pytest.mark.parametrize("kind", ["verdict", "annotation", "comparison"])
def test_nothing_said_of_one_is_the_same(tmp_path, kind):
    evidence = gather(tmp_path / "run", kind, Said(lambda names: [None if name == "c07" else 3 for name in names]))
    assert evidence.notes() == ["who failed on 1 of 32 (c07): not judged"]
    assert resumed(tmp_path / "run", kind) == ["c07"]


def refuses(names):
    if "c16" in names:
        raise UserError("the key is refused")


def stops(names):
    if "c16" in names:
        raise KeyboardInterrupt


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", [refuses, stops])
def test_a_key_that_is_refused_ends_the_stage_and_a_stop_keeps_what_was_said(tmp_path, kind, fault):
    said = Said(fault)
    with pytest.raises((UserError, KeyboardInterrupt)) as ended:
        gather(tmp_path / "run", kind, said)
    assert str(ended.value) in ("the key is refused", "")
    assert "c20" not in said.asked
    assert resumed(tmp_path / "run", kind) == NAMES[16:]


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A folder with a run for each kind, and a cache, of processes that were killed while `c16` was shown."""
    folder = tmp_path_factory.mktemp("killed")
    code = f"import json, pathlib, faulty_providers as f; print(json.dumps(f.kill_each(pathlib.Path({str(folder)!r}))))"
    env = environment(HELPERS) | {"MEDIMG_EVAL_CACHE": str(folder / "cache")}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == dict.fromkeys(KINDS, -9)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_that_is_killed_keeps_what_was_said_and_the_rest_is_asked(killed, kind, monkeypatch):
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(killed / "cache"))
    assert resumed(killed / kind, kind) == NAMES[16:]
    assert resumed(killed / kind, kind) == []


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


ROOM = Path(medimg_eval.__file__).parent
ROOMS = (ROOM, *(ROOM.parent / name for name in ("tasks", "models", "metrics", "configs")))


def callers(pattern):
    """The modules in which a pattern stands."""
    files = {file.resolve() for room in ROOMS for file in room.rglob("*.py")}
    return sorted(file.name for file in files if re.search(pattern, file.read_text(encoding="utf-8")))


def test_one_place_asks_providers():
    # `label` has no run: it asks about reports, of which it makes a table.
    assert callers(r"provider\.observe\(") == ["observe.py", "report_labels.py"]


def test_one_function_looks_for_weights(monkeypatch):
    looked = []

    def find(weights, given, who, role="annotator"):
        looked.append((role, who, weights.argument))
        raise UserError("nowhere")

    monkeypatch.setattr(Weights, "find", find)
    lacking = []
    for providers in (Annotators({}), Extractors({})):
        for name, spec in providers.items():
            provider = spec.load()
            provider.name = name
            lacking += [
                (provider.role, name, lack.key.rpartition(".")[2])
                for lack in provider.missing()
                if lack.message == "nowhere"
            ]
            assert {argument for _, who, argument in lacking if who == name} == {one.argument for one in provider.needs}
    assert set(looked) == set(lacking)
    assert len(lacking) > 20
    assert callers("try_to_load_from_cache") == ["hub.py"]
