"""What holds of every metric of reports that needs neither weights nor a judge: found in the registry, not listed."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from medimg_eval.commands.cli import start
from medimg_eval.errors import UsageError
from medimg_eval.metrics import available, parse, text_scores
from medimg_eval.results import build_table, load_runs

TEXTS = [
    "The heart is mildly enlarged. There is a small right pleural effusion of 2.5 cm. No pneumothorax is seen.",
    "Low lung volumes with atelectasis, increased since the prior. The endotracheal tube ends 4 cm above the carina.",
    "Possible pneumonia in the left lower lobe. No effusion. Stable heart size. Rib fracture on the left.",
    "Normal chest radiograph with clear lungs and normal heart size.",
    "Mild pulmonary edema is worse. Liver uptake is increased. Brain uptake is physiologic.",
]
SAID = [
    "The heart is enlarged. There is a right pleural effusion of 2 cm.",
    "Low lung volumes. The endotracheal tube ends 3 cm above the carina, stable.",
    "Pneumonia in the left lower lobe. Small effusion.",
    "Normal heart size. A nodule of 5 mm in the right lung.",
    "Pulmonary edema has improved. Liver uptake is decreased.",
]
PARAMETERS = {
    **dict.fromkeys(("bleu", "bleu_13a", "bleu_13a_exp", "sentence_bleu"), ("1", "4")),
    **{
        f"rule_labeler_{what}": ("micro-all", "weighted-all+", "samples-all+") for what in ("f1", "precision", "recall")
    },
    **{f"pet_uptake_{what}": ("micro-all", "weighted-all") for what in ("f1", "precision", "recall")},
    "rule_labeler_example_f1": ("all", "5", "all+"),
    "pet_uptake_example_f1": ("all",),
    "length_ratio_quantile": ("50",),
    "open_accuracy": ("0.75",),
}
APART = {
    "refused": "an empty text is no refusal",
    "rule_labeler_support": "counts what the references have",
    "pet_uptake_support": "counts what the references have",
    "phi_placeholders": "judges the report alone",
    "phi_suspected": "judges the report alone",
    "judged": "needs a judge, as its parameter names the question",
    "accuracy_or_judged": "needs a judge, as its parameter names the question",
}
EMPTY = {
    **dict.fromkeys(("measurement_mae", "measurement_invented", "ett_carina_mae", "ett_carina_invented"), math.nan),
    **dict.fromkeys(("measurement_missing", "ett_carina_missing"), 1.0),
}
"""What empty reports have where "worst" is not the smallest number: what is not stated is missing, and has no error."""


def _judges_reports(found):
    needs = [parse(one)[0] for one in found.needs] or [found]
    if found.intermediate or any(one.kind != "answer" or one.reads or one.asks for one in needs):
        return False
    return found.parameter is None or found.parameter_optional or found.name in PARAMETERS


def _names():
    for name, found in available().items():
        if name in APART or not _judges_reports(found):
            continue
        if name not in PARAMETERS:
            if not np.isnan(text_scores(TEXTS, TEXTS, [name]).values[name]):
                yield name
            continue
        yield from (f"{name}@{parameter}" for parameter in PARAMETERS[name])


NAMES = tuple(_names())


def _stated_best(name, count):
    """Of METEOR identical texts have a little less than its best, as its docstring says."""
    if name != "meteor_no_synonyms":
        return np.full(count, parse(name)[0].best)
    return np.array([1 - 0.5 / len(text_words) ** 3 for text_words in map(_runs, TEXTS)])


def _runs(text):
    return "".join(char if char.isalnum() else " " for char in text).split()


def test_the_families_of_text_metrics_are_all_met():
    bare = {name.partition("@")[0] for name in NAMES}
    assert bare >= {"bleu", "rouge_l", "meteor_no_synonyms", "cider_d", "length_ratio", "finding_f1", "temporal_f1"}
    assert bare >= {
        "rule_labeler_f1",
        "rule_labeler_example_f1",
        "pet_uptake_f1",
        "measurement_mae",
        "ett_carina_missing",
        "token_f1",
    }
    assert set(APART) <= set(available())


@pytest.mark.parametrize("name", NAMES)
def test_identical_texts_have_the_stated_maximum(name):
    found = text_scores(TEXTS, TEXTS, [name])
    if name in found.per_report and parse(name)[0].kind != "run":
        assert found.per_report[name] == pytest.approx(_stated_best(name, len(TEXTS)), abs=1e-12)
    assert found.values[name] == pytest.approx(_stated_best(name, len(TEXTS)).mean(), abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("said", ["", " \n\t "])
def test_empty_predictions_have_exactly_the_stated_worst(name, said):
    known = parse(name)[0]
    worst = EMPTY.get(name, 0.0 if known.kind == "run" else known.worst)
    found = text_scores(TEXTS, [said] * len(TEXTS), [name])
    assert found.values[name] == pytest.approx(worst, abs=0, nan_ok=True)
    if known.kind != "run":
        assert found.per_report[name].tolist() == [worst] * len(TEXTS)


def test_order_and_company_do_not_matter():
    """Each metric sees all reports in another order, and one of means each report alone, but for CIDEr-D."""
    whole = text_scores(TEXTS, SAID, NAMES)
    order = [3, 0, 4, 1, 2]
    other = text_scores([TEXTS[at] for at in order], [SAID[at] for at in order], NAMES)
    assert dict(other.values) == pytest.approx(dict(whole.values), abs=1e-12, nan_ok=True)
    each = [name for name in whole.per_report if name != "cider_d"]
    for name in each:
        assert other.per_report[name] == pytest.approx(whole.per_report[name][order], abs=1e-12, nan_ok=True)
    for at, (right, said) in enumerate(zip(TEXTS, SAID, strict=True)):
        alone = text_scores([right], [said], each)
        for name in each:
            assert alone.values[name] == pytest.approx(whole.per_report[name][at], abs=1e-12, nan_ok=True), name


def test_the_table_of_a_file_has_the_values_of_the_function(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "cache"))
    with Path("all.csv").open("w", newline="", encoding="utf-8") as file:
        rows = [(f"r{at}", *texts) for at, texts in enumerate(zip(TEXTS, SAID, strict=True))]
        csv.writer(file).writerows([("id", "reference", "prediction"), *rows])
    asked = ",".join(NAMES)
    assert start(["score", "reports=all.csv", f"metrics=[{asked}]"]) == 0
    (folder,) = (one.parent for one in tmp_path.glob("runs/reports/*/manifest.json"))
    frame = build_table(load_runs([folder]), resamples=10).frame().set_index("metric")["mean"]
    expected = text_scores(TEXTS, SAID, NAMES).values
    for name in NAMES:
        assert frame[name] == pytest.approx(expected[name], abs=1e-9, nan_ok=True), name


def test_a_report_whose_references_a_metric_cannot_take_is_named():
    with pytest.raises(UsageError, match="Report 2 of 2: rule_labeler compares with one reference, and there are 2"):
        text_scores(["Edema.", ["Edema.", "Mild edema."]], ["Edema.", "Edema."], ["rule_labeler_f1@micro-all"])
