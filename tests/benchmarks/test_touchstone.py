"""Touchstone: nine organs in AbdomenAtlas' numbers, whatever the test set calls them."""

from itertools import combinations, permutations
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import wilcoxon

from medimg_eval.errors import UserError
from medimg_eval.results.statistics.hypothesis_tests import holm, signed_rank
from tests.helpers.authors import load_functions, require_clone
from tests.helpers.benchmark_files import boxes, config, ids, scores, task, volume

ORGANS = {
    "aorta": 1,
    "gallbladder": 2,
    "kidney_left": 3,
    "kidney_right": 4,
    "liver": 5,
    "pancreas": 6,
    "inferior_vena_cava": 7,
    "spleen": 8,
}
META = "\ufeffimage_id;age;gender;institute;study_type;split;manufacturer;scanner_model;kvp;pathology\n"


def organs(shape=(20, 4, 4)):
    """Two slices of each organ but the stomach."""
    labels = np.zeros(shape, np.int16)
    for number in ORGANS.values():
        labels[2 * number : 2 * number + 2] = number
    return labels


@pytest.fixture
def totalsegmentator(tmp_path):
    labels = organs()
    for case in ("s0000", "s0011"):
        volume(tmp_path / case / "ct.nii.gz", 10 * labels, (1.5, 1.5, 1.5))
        for organ, number in {**ORGANS, "stomach": 9, "heart": 1}.items():
            volume(tmp_path / case / "segmentations" / f"{organ}.nii.gz", labels == number, (1.5, 1.5, 1.5))
    rows = "s0000;77.00;m;I;ct abdomen;test;siemens;a;100;other\ns0011;;f;D;ct abdomen;train;ge;b;120;tumor\n"
    (tmp_path / "meta.csv").write_text(META + rows, encoding="utf-8")
    return tmp_path


def test_totalsegmentators_organs_get_the_numbers_of_abdomenatlas(totalsegmentator):
    one = task("touchstone_totalsegmentator", totalsegmentator)
    cases = one.cases("test")
    assert ids(cases) == ["s0000", "s0011"]
    assert (cases[0].attributes["age"], cases[1].attributes["pathology"]) == ("77.00", "tumor")
    labels = organs()
    found = scores(one, cases[0], labels)
    assert np.isnan(found.pop("stomach"))  # not in the reference: not counted
    present = ("aorta", "gallbladder", "left kidney", "right kidney", "liver", "pancreas", "postcava", "spleen")
    assert found == dict.fromkeys(present, 1.0)
    swapped = np.select([labels == 3, labels == 4], [4, 3], labels)
    assert [scores(one, cases[0], swapped)[f"{side} kidney"] for side in ("left", "right")] == [0, 0]
    invented = np.where(labels == 0, 9, labels)
    assert np.isnan(scores(one, cases[0], invented)["stomach"])  # as Touchstone's empty cells


def test_a_set_that_is_not_whole_is_refused(totalsegmentator):
    name = "touchstone_totalsegmentator"
    whole = task(name, totalsegmentator, expected=config(name).expected)
    with pytest.raises(UserError, match="expected 1228 cases in split 'all', found 2"):
        whole.cases("test")


DAP = {114: 1, 12: 2, 15: 3, 16: 4, 13: 5, 14: 6, 117: 7, 26: 8, 7: 9}


def test_dap_atlas_numbers_are_translated_and_its_other_structures_are_background(tmp_path):
    labels = organs()
    theirs = np.zeros_like(labels)
    for number, organ in DAP.items():
        theirs[labels == organ] = number
    theirs[0] = 93  # a structure that is not asked for
    name = "AutoPET_0011f3deaf_10445"
    volume(tmp_path / f"images/{name}.nii.gz", labels)
    volume(tmp_path / f"masks/{name}.nii.gz", theirs)
    one = task("touchstone_dap_atlas", tmp_path)
    (case,) = one.cases("test")
    assert case.patient == "0011f3deaf"
    np.testing.assert_array_equal(case.target.read().labels, labels)
    assert scores(one, case, labels)["postcava"] == 1


def test_abdomenatlas_is_cut_into_folds_to_fit_on(tmp_path):
    labels = boxes(at3=np.s_[:2], at9=np.s_[5:7])
    for number in range(20):
        volume(tmp_path / f"BDMAP_{number:08d}/ct.nii.gz", labels)
        volume(tmp_path / f"BDMAP_{number:08d}/combined_labels.nii.gz", labels)
    one = task("abdomenatlas_mini", tmp_path)
    parts = {part: set(ids(one.cases(part))) for part in ("fit", "validate", "test")}
    assert {part: len(cases) for part, cases in parts.items()} == {"fit": 14, "validate": 2, "test": 4}
    assert len(set.union(*parts.values())) == 20
    assert one.labels[3] == "left kidney"
    assert scores(one, one.cases("test")[0], labels)["stomach"] == 1


@pytest.mark.slow
def test_its_significance_maps_are_its_scripts():
    script = require_clone("MrGiovanni/Touchstone") / "plot/SignificanceMaps.py"
    multipletests = pytest.importorskip("statsmodels.stats.multitest").multipletests
    rng = np.random.default_rng(5)
    hard = rng.normal(0.8, 0.08, 80)
    dice = {f"model{number}": np.clip(hard + rng.normal(number / 200, 0.03, 80), 0, 1) for number in range(8)}
    tables = {model: pd.DataFrame({"name": range(80), "liver": values}) for model, values in dice.items()}
    drawn = []
    pyplot = SimpleNamespace(sca=lambda _: None, plot=lambda *_, **__: None, title=lambda _: None)
    names = ("wilcoxon_one_sided", "rank", "allign", "HeatmapOfSignificance")
    theirs = load_functions(
        script, *names, np=np, pd=pd, wilcoxon=wilcoxon, multipletests=multipletests, combinations=combinations,
        Namespace=SimpleNamespace, plt=pyplot, sns=SimpleNamespace(heatmap=lambda map_, **_: drawn.append(map_)),
        read_models_and_groups=lambda _: (tables, None, None, None, None),
    )  # fmt: skip
    settings = {"organ": "liver", "ckpt_root": "", "nsd": False, "test_set_only": False, "split_path": "", "title": ""}
    theirs["HeatmapOfSignificance"](SimpleNamespace(**settings), ax=object())
    pairs = list(permutations(dice, 2))
    corrected = holm([signed_rank(dice[one], dice[other], "greater").p for one, other in pairs])
    better = {pair for pair, p in zip(pairs, corrected, strict=True) if p < 0.05}
    (right,) = drawn
    assert better == {(one, other) for one, other in pairs if right.loc[other, one] == 1}
    assert 5 < len(better) < len(pairs) / 2
