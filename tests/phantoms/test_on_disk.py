"""Phantoms on disk: written whole, once, never over something else; and as the catalogue counts them."""

import csv
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import yaml

from medimg_eval.errors import UsageError, UserError
from medimg_eval.phantoms import KINDS, Phantom, ct, endoscopy, mr, pathology, write_phantoms, xray
from medimg_eval.phantoms.cohort import cohort
from medimg_eval.phantoms.shapes import box, cylinder_noise, texture
from tests.helpers.config_files import config_file


def test_every_larger_cohort_starts_with_a_smaller_one_and_keeps_patients_in_one_split():
    large, small = cohort("ct", 40, 5), cohort("ct", 13, 5)
    assert large[:13] == small
    splits = {member.patient: set() for member in large}
    for member in large:
        splits[member.patient].add(member.split)
    assert all(len(found) == 1 for found in splits.values())
    assert [sum(m.split == s for m in large[:16]) for s in ("fit", "validate", "test")] == [8, 2, 6]


@pytest.mark.parametrize("kind", KINDS)
def test_the_catalogue_counts_the_phantoms_it_makes(kind):
    card = yaml.safe_load(config_file(f"phantom_{kind}").read_text())
    per = {"fit": 0, "validate": 0, "test": 0}
    for member in cohort(kind, card["layout"]["count"], 0):
        per[member.split] += 1 if kind != "endoscopy" else 0 if member.healthy else endoscopy.LABELLED
    assert per == card["expected"]
    assert "phantom" in card["title"].lower()
    names = {"ct": ct, "mr": mr, "xray": xray, "endoscopy": endoscopy, "pathology": pathology}[kind].LABELS
    assert card["labels"] == names
    assert {"description", "source", "licence", "access", "split", "notes"} <= set(card["card"])


def test_phantoms_are_written_into_the_cache_once_by_many_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path))
    folder = tmp_path / "direct"
    left = folder.with_name(".direct.partial")
    left.mkdir()  # of a process that was killed
    (left / "half").write_text("")
    with ThreadPoolExecutor(3) as pool:
        wrote = list(pool.map(lambda _: write_phantoms("xray", folder, cases=2, seed=0), range(3)))
    assert sorted(wrote) == [False, False, True]
    assert not left.exists()
    assert not (folder / "half").exists()
    cases = Phantom("xray", count=2).cases("test")
    assert len(cases) == 2
    assert tmp_path / "phantoms" in cases[0].files[0].parents


def test_folders_that_hold_something_else_are_refused_by_name(tmp_path):
    made = tmp_path / "made"
    write_phantoms("xray", made / "xray", cases=1, seed=0)
    with pytest.raises(UserError, match=r"xray: holds phantoms of .*cases=1.*not of .*cases=4"):
        write_phantoms("xray", made / "xray", cases=4, seed=0)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="holds other files"):
        write_phantoms("xray", tmp_path, cases=1, seed=0)
    with pytest.raises(UserError, match="notes.txt: is a file"):
        write_phantoms("xray", tmp_path / "notes.txt", cases=1, seed=0)
    with pytest.raises(UsageError, match="got 'xrays'; did you mean 'xray'"):
        write_phantoms("xrays", tmp_path / "new", cases=1, seed=0)
    with pytest.raises(UsageError, match="at least one case"):
        write_phantoms("xray", tmp_path / "new", cases=0, seed=0)
    with pytest.raises(UserError, match="got 'cat'"):
        Phantom("cat").cases("test")
    assert {entry.name for entry in tmp_path.iterdir()} == {"made", "notes.txt"}


def test_textures_have_mean_zero_and_spread_one_and_go_round_without_a_seam():
    rng = np.random.default_rng(0)
    for shape, cell in (((40, 50), 6), ((20, 30, 12), (5, 3, 4)), ((64,), 9)):
        field = texture(rng, shape, cell)
        assert field.shape == shape
        assert field.dtype == np.float32
        assert abs(field.mean()) < 1e-5
        assert field.std() == pytest.approx(1, abs=1e-4)
    wall = cylinder_noise(rng, 60, 256, (12, 12))
    steps = np.abs(np.diff(wall, axis=1)).mean()
    assert np.abs(wall[:, -1] - wall[:, 0]).mean() < 2 * steps
    with pytest.raises(ValueError, match="something in it"):
        box(np.zeros((3, 3), bool))


@pytest.mark.slow
def test_the_command_writes_phantoms_once_and_says_so(program, tmp_path):
    first = program("phantom", "out=made", "kinds=[xray,mr]", "cases=1")
    assert first.returncode == 0, first.stderr
    assert "made/xray: wrote 1 phantoms" in first.stdout
    with (tmp_path / "made" / "mr" / "cases.csv").open() as stream:
        assert len(list(csv.DictReader(stream))) == 1
    again = program("phantom", "out=made", "kinds=mr", "cases=1")
    assert "was there already" in again.stdout
    other = program("phantom", "out=made", "kinds=mr", "cases=2")
    assert other.returncode == 1
    assert "holds phantoms of" in other.stderr
    wrong = program("phantom", "out=made", "kinds=[petscan]")
    assert wrong.returncode == 2
    assert "got 'petscan'" in wrong.stderr
    assert "out is not set" in program("phantom").stderr
