"""Multi-coil phantoms: files as fastMRI has them, splits that share nothing, and baselines in their order."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import yaml

from medimg_eval.errors import UsageError, UserError
from medimg_eval.imaging.kspace import inverse_fft, read_kspace
from medimg_eval.models.reconstruction.linear import SenseCombine, ZeroFilled
from medimg_eval.phantoms.multicoil import (
    LEVELS,
    SEEN_COILS,
    SHAPE,
    MulticoilPhantom,
    coil_maps,
    forward,
    scans,
)
from medimg_eval.tasks.reconstruction import ReconstructionTask
from tests.helpers.config_files import config_file


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Four scans of one patient to test on."""
    return MulticoilPhantom(count=1, slices=1, root=str(tmp_path_factory.mktemp("phantoms") / "multicoil"))


def test_the_config_counts_the_scans_it_makes_and_says_that_they_are_phantoms():
    config = yaml.safe_load(config_file("phantom_multicoil").read_text())
    found = scans(config["layout"]["count"], config["layout"]["seed"])
    assert {split: sum(scan.split == split for scan in found) for split in LEVELS} == config["expected"]
    assert "phantom" in config["title"].lower()


def test_no_patient_and_no_slice_lies_in_two_splits():
    found = scans(24, 0)
    assert len({scan.case for scan in found}) == len(found)
    by_patient = {scan.patient: set() for scan in found}
    for scan in found:
        by_patient[scan.patient].add(scan.split)
    assert all(len(splits) == 1 for splits in by_patient.values())
    levels = [set(range(first, last + 1)) for first, last in LEVELS.values()]
    assert sum(map(len, levels)) == len(set.union(*levels))


def test_tests_have_seen_and_unseen_coils_and_accelerations_and_fits_only_seen_ones():
    found = scans(18, 0)
    said = {
        (scan.attributes["coil_count"], scan.attributes["acceleration_factor"])
        for scan in found
        if scan.split == "test"
    }
    assert said == {(one, two) for one in ("seen", "unseen") for two in ("seen", "unseen")}
    fitted = [scan for scan in found if scan.split == "fit"]
    assert {scan.coils for scan in fitted} == set(SEEN_COILS)
    assert {scan.attributes["acceleration_factor"] for scan in fitted} == {"seen"}
    assert {scan.sampling.lines for scan in fitted} == {"random", "equispaced"}
    assert found[: len(scans(7, 0))] == scans(7, 0)


def test_coils_see_all_together_what_there_is():
    maps = coil_maps(6, np.random.default_rng(0))
    np.testing.assert_allclose(np.square(np.abs(maps)).sum(axis=0), 1, atol=1e-5)
    assert len({int(np.abs(one).argmax()) for one in maps}) == 6
    image = np.random.default_rng(0).random(SHAPE)
    np.testing.assert_allclose(inverse_fft(forward(image), (0, 1)), image, atol=1e-12)


def test_files_are_those_of_fastmri(written):
    cases = written.cases("test")
    assert [case.attributes["coils"] for case in cases] == ["6", "6", "4", "4"]
    assert {case.patient for case in cases} == {"multicoil-000"}
    path = cases[1].files[0]
    with h5py.File(path) as file:
        assert set(file) == {"kspace", "mask", "reconstruction_rss"}
        assert set(file.attrs) == {"acquisition", "max", "norm"}
    data = read_kspace(path, "fastmri")
    assert data.samples.shape == (1, 6, *SHAPE)
    assert data.target.shape == (1, *SHAPE)
    lines = data.mask.astype(bool)
    assert lines.sum() == SHAPE[1] // 8
    assert not data.samples[..., ~lines].any()
    assert data.samples[..., lines].all()
    assert float(data.attributes["max"]) == pytest.approx(float(data.target.max()))


def test_the_reference_is_a_brain_inside_a_dark_frame(written):
    image = written.cases("test")[0].target.read().array[0, 0]
    frame = np.concatenate([image[:8].ravel(), image[:, :8].ravel(), image[:, -8:].ravel()])
    assert np.median(image[80:140, 60:130]) > 10 * np.median(frame)
    assert (image > 0.3 * image.max()).mean() > 0.2


def test_the_same_seed_gives_the_same_scans_and_another_one_others(written, tmp_path):
    first = written.cases("test")[0].images[0].read().array
    for seed, same in ((0, True), (1, False)):
        again = MulticoilPhantom(count=1, slices=1, seed=seed, root=str(tmp_path / str(seed)))
        assert np.array_equal(again.cases("test")[0].images[0].read().array, first) == same


def test_sense_beats_zero_filling_and_four_times_faster_beats_eight(written):
    task = ReconstructionTask(name="m", layout=written, metrics=["psnr@fastmri", "ssim@wang"])
    values = {}
    for case in task.cases("test")[:2]:
        prompt = task.prompt(case, task.read_images(case))
        for model in (ZeroFilled(), SenseCombine()):
            scores = task.score(case, task.ask(model, [prompt])[0])
            values[case.attributes["acceleration"], type(model)] = [score.value for score in scores]
    for better, worse in (
        (("4", SenseCombine), ("4", ZeroFilled)),
        (("8", SenseCombine), ("8", ZeroFilled)),
        (("4", ZeroFilled), ("8", ZeroFilled)),
    ):
        assert all(one > two for one, two in zip(values[better], values[worse], strict=True))
    assert values["4", SenseCombine][0] > values["4", ZeroFilled][0] + 3


def test_folders_that_hold_something_else_are_refused_by_name(written, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "scan.h5").write_text("")
    with pytest.raises(UserError, match="other: holds other files"):
        MulticoilPhantom(count=1, root=str(tmp_path / "other")).cases("test")
    with pytest.raises(UserError, match=r"holds phantoms of .*slices=1.*not of .*slices=3"):
        MulticoilPhantom(count=1, slices=3, root=written.root).cases("test")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file"):
        MulticoilPhantom(count=1, root=str(tmp_path / "file" / "below")).cases("test")
    assert json.loads((Path(written.root) / "phantom.json").read_text())["count"] == 1


@pytest.mark.parametrize("settings", [{"count": 0}, {"slices": 0}, {"slices": 9}, {"seed": -1}])
def test_settings_that_cannot_be_meant_are_refused(settings):
    with pytest.raises(UsageError, match="at least one patient, 1 to 8 slices and a seed from 0 on"):
        MulticoilPhantom(**settings).cases("test")


def test_a_split_that_is_not_there_is_named():
    with pytest.raises(UserError, match="no split 'tests'; did you mean 'test'"):
        MulticoilPhantom().cases("tests")
