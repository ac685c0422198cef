"""Unknown inputs of runs and features: by hand, and as the command prints them."""

import numpy as np
import pandas as pd
import pytest

from medimg_eval.commands.cli import start
from medimg_eval.errors import UsageError, UserError
from medimg_eval.results import load_scores
from medimg_eval.results.table import Settings
from medimg_eval.results.unknown_inputs import (
    Scored,
    feature_scores,
    judge_drop,
    judge_unknown,
    output_scores,
)

QUICK = Settings(200, 0.95, 0)


def written(tmp_path, name, number, seed, *, accuracy, task=""):
    """A CSV of classes of which the largest probability is the chance of being right, lower where `accuracy` is."""
    rng = np.random.default_rng(seed)
    rows = []
    for case in range(number):
        sure = np.clip(rng.normal(accuracy, 0.1), 0.4, 0.95)
        right = rng.random() < sure
        for label, value in (("a", sure), ("b", 1 - sure)):
            truth = "present" if (label == "a") == right else "absent"
            rows.append((f"{name}{case}", f"{name}{case // 2}", label, "probability", value, truth))
        rows.append((f"{name}{case}", f"{name}{case // 2}", "all", "accuracy", float(right), "present"))
    frame = pd.DataFrame(rows, columns=["case", "patient", "label", "metric", "value", "status"])
    file = tmp_path / f"{name}.csv"
    frame.assign(model="net", task=task or name).to_csv(file, index=False)
    return file


@pytest.fixture
def two(tmp_path):
    """The files of what is known and of what is not."""
    return written(tmp_path, "skin", 900, 0, accuracy=0.8), written(tmp_path, "nails", 300, 1, accuracy=0.6)


def scored(values, prefix):
    names = np.array([f"{prefix}{place}" for place in range(len(values))])
    return Scored(np.asarray(values, float), names, names)


def test_scores_of_a_case_by_hand(tmp_path):
    rows = [("c", "p", "a", "probability", 0.7, "present"), ("c", "p", "b", "probability", 0.3, "absent")]
    rows += [("c", "p", "x", "confidence", 0.8, "right"), ("c", "p", "liver", "expected_dice", 0.9, "present")]
    rows += [
        ("c", "p", "spleen", "expected_dice", 0.7, "present"),
        ("c", "p", "liver", "voxel_entropy", 0.1, "present"),
    ]
    frame = pd.DataFrame(rows, columns=["case", "patient", "label", "metric", "value", "status"]).assign(model="net")
    frame.to_csv(tmp_path / "c.csv", index=False)
    found = {name: side.scores.tolist() for name, side in output_scores(load_scores(tmp_path / "c.csv")[0]).items()}
    assert found["MSP"] == pytest.approx([0.3])
    assert found["entropy"] == pytest.approx([-(0.7 * np.log(0.7) + 0.3 * np.log(0.3))])
    assert found["1 - confidence"] == pytest.approx([0.2])
    assert found["1 - expected Dice"] == pytest.approx([0.2])  # the mean over labels
    assert found["voxel entropy"] == pytest.approx([0.1])


def test_a_sheet_holds_values_with_intervals_by_patients():
    known, unknown = scored([0.1, 0.2, 0.6, 0.3], "k"), scored([0.5, 0.9], "u")
    frame = judge_unknown({"MSP": (known, unknown)}, ("skin", "nails"), QUICK).frame().set_index("measure")
    assert frame.loc["auroc", "value"] == pytest.approx(7 / 8)
    assert frame.loc["auroc", "low"] < 7 / 8 < frame.loc["auroc", "high"] + 1e-9
    apart = judge_unknown({"MSP": (scored([0, 0.1], "k"), scored([1, 2], "u"))}, ("skin", "nails"), QUICK).frame()
    assert apart["low"].isna().all()  # all resamples agree


def test_what_the_score_foretells_of_a_drop(two):
    known, unknown = (load_scores(file)[0] for file in two)
    frame = judge_drop(known, unknown, "", QUICK).frame().set_index("score")
    means = [run.scores.loc[run.scores["metric"] == "accuracy", "value"].mean() for run in (known, unknown)]
    assert frame.loc["measured", "drop"] == pytest.approx(means[0] - means[1])
    assert frame.loc["measured", "low"] < frame.loc["measured", "drop"] < frame.loc["measured", "high"]
    # Probabilities are honest, so the line through known cases finds most of the drop.
    score = output_scores(known)["MSP"]
    values = known.scores.loc[known.scores["metric"] == "accuracy"].set_index("case")["value"]
    line = np.polyfit(score.scores, values.reindex(score.cases), 1)
    assert frame.loc["MSP", "unknown"] == pytest.approx(np.polyval(line, output_scores(unknown)["MSP"].scores.mean()))
    assert frame.loc["MSP", "drop"] / frame.loc["measured", "drop"] == pytest.approx(1, abs=0.5)


def test_features_of_another_place_are_far():
    rng = np.random.default_rng(0)
    centre = np.array([9.0, 0, 0, 0])
    reference, known = rng.normal(size=(60, 4)) + centre, rng.normal(size=(20, 4)) + centre
    unknown = rng.normal(size=(20, 4)) - centre
    for here, there in feature_scores(known, unknown, reference).values():
        assert np.median(there) > here.max()


def test_what_cannot_be_compared_is_refused(two, tmp_path):
    known, unknown = (load_scores(file)[0] for file in two)
    with pytest.raises(UserError, match="No score is there of both sides"):
        judge_unknown({}, ("skin", "nails"), QUICK)
    with pytest.raises(
        UsageError, match=r"metric is invalid: expected one that both runs have of each case \(accuracy\)"
    ):
        judge_drop(known, unknown, "dice", QUICK)
    assert start(["unknown", f"known={two[0]}", "unknown=nowhere"]) == 2
    other = tmp_path / "other.csv"
    pd.read_csv(two[1]).assign(model="other").to_csv(other, index=False)
    assert start(["unknown", f"known={two[0]}", f"unknown={other}"]) == 2


def test_the_command_prints_both_sheets_and_writes_them(two, tmp_path, capsys):
    words = [f"known={two[0]}", f"unknown={two[1]}", "resamples=50", f"out={tmp_path}/out"]
    assert start(["unknown", *words]) == 0
    printed = capsys.readouterr().out
    assert "nails told from skin" in printed
    assert "accuracy: nails against skin" in printed
    frame = pd.read_csv(tmp_path / "out" / "unknown.csv")
    assert set(frame["score"]) == {"MSP", "entropy", "measured"}
