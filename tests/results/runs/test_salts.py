"""Runs that name their patients with different salts are not joined in silence."""

import pytest

from medimg_eval.errors import UserError
from medimg_eval.patients import patient_key
from medimg_eval.results.comparison.fields import make_fields
from medimg_eval.results.ranking.ranking import pool
from medimg_eval.results.runs.loading import load_runs
from medimg_eval.results.table.footnotes import comparability


@pytest.fixture
def scored(write_run, tmp_path, monkeypatch):
    """Writes a run of two patients, named with a salt, or as they were before there were any."""

    def write(name, salt, **manifest):
        (tmp_path / "salt" / salt).parent.mkdir(exist_ok=True)
        (tmp_path / "salt" / salt).write_text(f"the salt of {salt}, long enough")
        monkeypatch.setenv("MEDIMG_EVAL_SALT", str(tmp_path / "salt" / salt))
        named = [patient_key(patient) if salt != "none" else patient for patient in ("1234567", "7654321")]
        rows = [(f"c{k}", named[k % 2], "a", "dice", 0.5 + k / 10, "present") for k in range(4)]
        return write_run(name, rows, **manifest)

    return write


@pytest.mark.parametrize("other", ["another", "none"])
def test_runs_of_one_task_with_different_salts_are_not_compared(scored, other):
    runs = load_runs([scored("first", "one"), scored("second", other)])
    with pytest.raises(
        UserError, match="first and .*second name patients with different salts .*MEDIMG_EVAL_SALT=FILE"
    ):
        make_fields(runs, "dice", by_label=False)
    said = " ".join(comparability("Organs", {run.run: run for run in runs}))
    assert "Warning: patients of Organs are named with different salts, so its rows cannot be paired" in said


def test_runs_with_one_salt_are_compared(scored):
    runs = load_runs([scored("first", "one"), scored("second", "one")])
    (field,) = make_fields(runs, "dice", by_label=False)
    assert len(set(field.owners)) == 2
    assert "salts" not in " ".join(comparability("Organs", {run.run: run for run in runs}))


def test_tasks_are_pooled_by_patient_only_with_one_salt(scored):
    first = scored("first", "one")
    lungs = {"task": "lungs", "task_title": "Lungs", "model": "First"}
    with pytest.raises(UserError, match="different salts"):
        pool(load_runs([first, scored("other", "another", **lungs)]))
    (pooled,) = pool(load_runs([first, scored("second", "one", **lungs)]))
    assert pooled.scores["patient"].nunique() == 2
    (pooled,) = pool(load_runs([first, scored("third", "none", **lungs)]))  # of another kind, as of a table
    assert pooled.scores["patient"].nunique() == 4


def test_a_run_with_two_salts_is_refused(write_run, scored, tmp_path, monkeypatch):
    scored("first", "one")
    keys = [patient_key("1234567")]
    scored("second", "another")
    keys.append(patient_key("1234567"))
    rows = [(f"c{k}", keys[k], "a", "dice", 0.5, "present") for k in range(2)]
    with pytest.raises(UserError, match="names its patients with several salts"):
        load_runs([write_run("torn", rows)])
