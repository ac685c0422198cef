"""Pictures of a synthesis run as cases, and real cases blended with them: by patients, nested, never for testing."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pictures

from medimg_eval.case import Case, Findings, Text
from medimg_eval.data.layouts import Generated, MixedDataset
from medimg_eval.data.records import Given
from medimg_eval.data.targets import ClassColumns, MaskTarget, ReportText
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.question import Key


@dataclass
class Cohort:
    """Three cases to fit on, of two patients; the last has no patient of its own."""

    attributes: dict = field(default_factory=dict)

    def cases(self, split):
        told = {"a": ("p1", "1", "AP"), "b": ("p1", "0", "PA"), "c": (None, "-1", "AP")}
        return [
            Case(
                name, (), Given(Text(f"chest {name}"), (Path("prompts.csv"),)), patient, {"Edema": edema, "view": view}
            )
            for name, (patient, edema, view) in told.items()
        ]


@pytest.fixture
def run(tmp_path):
    """A finished run that made two pictures of each prompt."""
    return write_run(tmp_path / "made")


def write_run(folder, cases="abc", **manifest):
    for place, name in enumerate(cases):
        (folder / "predictions" / name).mkdir(parents=True)
        for number in range(2):
            Pictures.fromarray(np.full((4, 5), 10 * place + number, np.uint8)).save(
                folder / "predictions" / name / f"{number:03d}.png"
            )
        (folder / "predictions" / f"{name}.json").write_text(
            json.dumps({"pictures": [f"{name}/000.png", f"{name}/001.png"], "seeds": [1, 2]})
        )
    lines = [{"case": name, "file": f"predictions/{name}.json"} for name in cases]
    (folder / "predictions-0.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in [{"case": "a", "stage": "answer", "failure": "once"}, *lines])
    )
    told = {"status": "finished", "run": "r1", "task_config": {"splits": {"test": "fit"}}} | manifest
    (folder / "manifest.json").write_text(json.dumps(told))
    return folder


def test_each_picture_is_a_case_of_its_prompts_patient(run):
    cases = Generated(run=str(run), prompts=Cohort()).cases("fit")
    assert [case.id for case in cases] == ["a-000", "a-001", "b-000", "b-001", "c-000", "c-001"]
    assert [case.patient for case in cases] == ["p1"] * 4 + [None] * 2
    assert cases[1].attributes == {"Edema": "1", "view": "AP", "prompt": "a"}
    assert [int(case.images[0].read().array.max()) for case in cases] == [0, 1, 10, 11, 20, 21]
    assert cases[2].target.read() == Text("chest b")
    assert Path("prompts.csv") in cases[0].files


def test_findings_are_those_of_the_prompt(run):
    cases = Generated(run=str(run), prompts=Cohort(), classes=["Edema", "Nodule"]).cases("fit")
    found = [case.target.read() for case in cases[::2]]
    assert all(isinstance(one, Findings) for one in found)
    assert [one.values["Edema"] for one in found[:2]] == [1.0, 0.0]
    assert math.isnan(found[2].values["Edema"])  # uncertain
    assert {one.values["Nodule"] for one in found} == {0.0}  # not stated


def test_the_prompt_is_the_report_that_a_question_asks_for(run):
    case = Generated(run=str(run), prompts=Cohort(), question="Write.").cases("fit")[4]
    assert case.target.read() == Key("chest c")
    assert (case.question.text, case.question.kind) == ("Write.", "report")


def test_any_target_can_say_what_is_right(run, tmp_path):
    made = {"run": str(run), "prompts": Cohort()}
    for number in range(2):
        Pictures.fromarray(np.full((4, 5), number, np.uint8)).save(tmp_path / f"b-{number:03d}.png")
    masks = Generated(**made, root=str(tmp_path), target=MaskTarget("{case}-{number}.png")).cases("fit")
    assert [int(case.target.read().labels.max()) for case in masks[2:4]] == [0, 1]
    with pytest.raises(CaseError, match=r"a-000\.png"):
        masks[0].target.read()
    texts = Generated(**made, target=ReportText("text")).cases("fit")
    assert texts[0].target.read() == Text("chest a")
    findings = Generated(**made, target=ClassColumns({"oedema": "Edema"}, uncertain="ones")).cases("fit")
    assert [case.target.read().values["oedema"] for case in findings[::2]] == [1, 0, 1]
    with pytest.raises(UserError, match=r"prompts\.csv, prompt 'a': there is no column 'Oedema'; did you mean 'Edema'"):
        Generated(**made, target=ClassColumns(["Oedema"])).cases("fit")


def test_prompts_are_found_as_the_run_found_them(tmp_path):
    config = {
        "splits": {"test": "fit"},
        "layout": {"_target_": "medimg_eval.phantoms.prompts.ChestPrompts", "count": 4},
    }
    from medimg_eval.phantoms.prompts import ChestPrompts

    known = ChestPrompts(count=4).cases("fit")
    folder = write_run(tmp_path / "made", cases=[known[0].id], task_config=config)
    cases = Generated(run=str(folder), classes=["edema"]).cases("fit")
    assert [case.attributes["prompt"] for case in cases] == [known[0].id] * 2
    assert cases[0].images[0].read().modality == "DX"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"status": "interrupted"}, "is not finished but 'interrupted'; run its test again"),
        ({"task_config": {}}, "does not say where its prompts lie; set `prompts`"),
    ],
)
def test_runs_that_cannot_be_used_are_named(tmp_path, change, words):
    folder = write_run(tmp_path / "made", **change)
    with pytest.raises(UserError, match=words):
        Generated(run=str(folder)).cases("fit")


def test_faults_name_what_is_missing(run, tmp_path):
    with pytest.raises(UserError, match=r"nowhere/manifest.json: cannot be read .* name the folder of a run"):
        Generated(run=str(tmp_path / "nowhere")).cases("fit")
    with pytest.raises(UsageError, match="each say what is right; set one of them"):
        Generated(run=str(run), classes=["Edema"], question="Write.")
    (run / "predictions" / "b" / "001.png").unlink()
    with pytest.raises(UserError, match=r"b/001\.png: is missing; delete b\.json"):
        Generated(run=str(run), prompts=Cohort()).cases("fit")
    (run / "predictions" / "b.json").write_text('{"text": "a reply"}')
    with pytest.raises(UserError, match=r"b\.json: names no pictures"):
        Generated(run=str(run), prompts=Cohort()).cases("fit")
    other = write_run(tmp_path / "other", cases="az")
    with pytest.raises(UserError, match="has pictures of the prompt 'z', which is not among the 3 prompts"):
        Generated(run=str(other), prompts=Cohort()).cases("fit")
    (other / "predictions-0.jsonl").unlink()
    with pytest.raises(UserError, match="holds no pictures"):
        Generated(run=str(other), prompts=Cohort()).cases("fit")


def test_prompts_without_pictures_are_left_out_and_counted(tmp_path, caplog):
    folder = write_run(tmp_path / "made", cases="ab")
    with caplog.at_level("WARNING", logger="medimg_eval"):
        cases = Generated(run=str(folder), prompts=Cohort()).cases("fit")
    assert len(cases) == 4
    assert "1 of 3 prompts have no pictures, and are left out" in caplog.text


@dataclass
class Cases:
    """Patients with one or two cases each."""

    name: str
    patients: int

    def cases(self, split):
        held = {"fit": range(self.patients), "test": range(100, 103)}[split]
        return [
            Case(f"{self.name}{patient}-{number}", (), Given(Text(""), ()), f"p{patient}")
            for patient in held
            for number in range(1 + patient % 2)
        ]


def blend(setting, fraction=1.0, seed=0, real=20, made=20):
    layout = MixedDataset(
        real=Cases("r", real), synthetic=Cases("s", made), setting=setting, fraction=fraction, seed=seed
    )
    return [case.id for case in layout.cases("fit")]


def test_settings_take_real_cases_synthetic_ones_half_of_each_or_all():
    real, made = ([case.id for case in Cases(name, 20).cases("fit")] for name in "rs")
    assert blend("real") == real
    assert blend("synthetic") == made
    assert blend("augmented") == real + made
    mixed = blend("mixed")
    assert len(mixed) == len(real)
    assert sum(one.startswith("s") for one in mixed) == pytest.approx(len(real) / 2, abs=3)
    # whose real cases are gone, theirs are the synthetic ones
    assert sorted(one[1:] for one in mixed) == sorted(one[1:] for one in real)


def test_a_synthetic_case_called_as_a_real_one_is_renamed():
    layout = MixedDataset(real=Cases("r", 2), synthetic=Cases("r", 2), setting="augmented")
    assert [case.id for case in layout.cases("fit")] == [
        "r0-0",
        "r1-0",
        "r1-1",
        *(f"{n}-synthetic" for n in ("r0-0", "r1-0", "r1-1")),
    ]


def test_validation_and_test_cases_stay_real():
    layout = MixedDataset(real=Cases("r", 4), synthetic=Cases("s", 4), setting="synthetic")
    assert all(case.id.startswith("r") for case in layout.cases("test"))


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from(["real", "synthetic", "augmented"]),
    st.floats(0.01, 1),
    st.floats(0.01, 1),
    st.integers(0, 5),
    st.integers(1, 30),
)
def test_a_smaller_fraction_is_a_part_of_a_larger_one_and_keeps_patients_whole(setting, one, other, seed, patients):
    small, large = (blend(setting, part, seed, patients, patients) for part in sorted((one, other)))
    assert set(small) <= set(large)
    assert len(small) == len(set(small))
    whole = blend(setting, 1.0, seed, patients, patients)
    for patient in {name[1:].partition("-")[0] for name in small}:
        own = [name for name in whole if name[1:].partition("-")[0] == patient]
        assert set(own) <= set(small)
    count = {name[1:].partition("-")[0] for name in small}
    assert len(count) == max(1, round(min(one, other) * patients))


def test_real_and_synthetic_cases_of_a_fraction_are_of_the_same_patients_and_seeds_draw_others():
    real, made = (blend(setting, 0.3) for setting in ("real", "synthetic"))
    assert [one[1:] for one in real] == [one[1:] for one in made]
    assert {tuple(blend("real", 0.3, seed)) for seed in range(4)} != {tuple(real)}


def test_patients_of_their_own_are_mixed_in_by_number():
    layout = MixedDataset(real=Cases("r", 10), synthetic=Cases("s", 3), setting="mixed")
    real, made = layout.parts()
    assert len(real) + len(made) <= len(Cases("r", 10).cases("fit"))
    assert len(made) == len(Cases("s", 3).cases("fit"))  # all there are


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"setting": "blended"}, "got 'blended'"),
        ({"fraction": 0}, "fraction: expected a number above 0 and up to 1, got 0"),
        ({"fraction": True}, "got True"),
        ({"setting": "mixed"}, "setting 'mixed' needs the layout of the synthetic cases"),
    ],
)
def test_mixtures_that_cannot_be_meant_are_refused(arguments, words):
    with pytest.raises(UsageError, match=words):
        MixedDataset(real=Cases("r", 4), **arguments)


def test_no_synthetic_case_is_said():
    with pytest.raises(UserError, match="there are no synthetic cases to train on"):
        blend("augmented", made=0)
