"""CRG of chest CT: hand-made counts, its range, and VLM3D's own script."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.authors import load_functions, require_clone
from tests.metrics.classification.test_metrics import column, rows, value


def scored(hits, missed, invented, absent):
    truth = [1] * (hits + missed) + [0] * (invented + absent)
    said = [1] * hits + [0] * missed + [1] * invented + [0] * absent
    return value("class_crg@micro", rows(column(*truth), column(*said)))


def plain(hits, missed, invented, absent):
    """As the paper writes it: X labels, A of them present."""
    every, present = hits + missed + invented + absent, hits + missed
    r, half = (every - present) / (2 * present), (every - present) / 2
    return half / (2 * half - (r * hits - r * missed - invented))


def test_by_hand():
    # X 1,000 and A 50: r = 950/100 = 9.5, U = 475, s = 9.5 * 25 - 9.5 * 25 - 10 = -10; 475 / 960
    assert scored(25, 25, 10, 940) == pytest.approx(475 / 960) == pytest.approx(0.494792, abs=1e-6)
    assert scored(30, 20, 40, 1710) == pytest.approx(0.541796, abs=1e-6)


@pytest.mark.parametrize(("counts", "expected"), [((5, 0, 0, 9), 1), ((0, 5, 0, 9), 1 / 3), ((5, 0, 9, 0), 1 / 3)])
def test_all_right_is_1_and_all_or_none_said_to_be_present_a_third(counts, expected):
    assert scored(*counts) == pytest.approx(expected)


@pytest.mark.parametrize("counts", [(0, 0, 3, 4), (3, 2, 0, 0), (0, 0, 1, 0), (1, 0, 0, 0)])
def test_classes_that_are_never_or_always_present_have_none(counts):
    assert np.isnan(scored(*counts))


SOME = st.tuples(st.integers(1, 12), st.integers(0, 12)).map(lambda pair: pair if sum(pair) % 2 else pair[::-1])


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(SOME, SOME)
def test_it_is_the_formula_and_lies_above_a_fifth_and_up_to_1(present, absent):
    counts = (*present, *absent)
    assert scored(*counts) == pytest.approx(plain(*counts))
    assert 1 / 5 <= scored(*counts) <= 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The inplace keyword")
@pytest.mark.parametrize("folder", ["abnclass_evaluation", "reportgen_evaluation"])
def test_vlm3ds_script_gives_the_same(tmp_path, folder):
    clone = require_clone("forithmus/VLM3D-Dockers")
    names = ("LABEL_COLS", "clean_accession", "main")
    given_names = {"pd": pd, "json": json, "Path": type(tmp_path)}
    script = load_functions(clone / folder / "crg_score.py", *names, **given_names)
    labels, rng = script["LABEL_COLS"], np.random.default_rng(5)
    truth, said = (rng.random((40, 18)) < share for share in (0.2, 0.3))
    for name, table in (("truth", truth), ("said", said)):
        frame = pd.DataFrame(table.astype(int), columns=labels)
        frame.insert(0, "AccessionNo", [f"valid_{place}_a_1.nii.gz" for place in range(40)])
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    script["main"](tmp_path / "said.csv", tmp_path / "truth.csv", tmp_path / "crg.json")
    theirs = json.loads((tmp_path / "crg.json").read_text())["CRG"]
    assert value("class_crg@micro", rows(truth, said, labels)) == pytest.approx(theirs, abs=1e-6)
