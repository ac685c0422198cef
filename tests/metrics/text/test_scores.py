"""Scores of texts without a task: values of the packages that profiles name, properties, and edge cases."""

import math
import random
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medimg_eval
from medimg_eval.errors import UsageError
from medimg_eval.metrics import get, registry, text_scores
from medimg_eval.metrics.registry import judge_says, read_by
from medimg_eval.metrics.text.profiles import PROFILES
from tests.conftest import environment

FEW = settings(deadline=None, max_examples=15)
ALL = (
    *("bleu@1", "bleu@2", "bleu@3", "bleu@4", "bleu_13a@4", "bleu_13a_exp@4", "sentence_bleu@4", "rouge_1", "rouge_2"),
    *("rouge_l", "rouge_1_stem", "rouge_2_stem", "rouge_l_stem", "rouge_l_coco", "meteor_no_synonyms", "cider_d"),
)
MEANS = tuple(name for name in ALL if not name.startswith("bleu"))
REPORTS = (
    (
        "The heart is normal in size. No pleural effusion or pneumothorax is seen.",
        "Heart size is normal. There is no pleural effusion or pneumothorax.",
    ),
    (
        "1. Small left pleural effusion, unchanged. 2. No consolidation.",
        "Small left pleural effusions.  2. Consolidation in the left base has resolved.",
    ),
    (
        "Lungs are clear. The mediastinal contours are stable since ___.",
        "Lungs are clear.\nThe mediastinal contour is stable.",
    ),
    (
        "A 3.5-cm nodule in the right upper lobe; follow-up is advised.",
        "A nodule of 3.5 cm is seen in the right upper lobe; follow-up is advised.",
    ),
    (
        "Moderate pulmonary edema with enlarged heart.",
        "Moderately severe pulmonary edema, with an enlarged heart, and bilateral effusions.",
    ),
    ("No acute cardiopulmonary process.", "No acute cardiopulmonary process."),
)
RIGHT, SAID = map(list, zip(*REPORTS, strict=True))
SEVERAL = (
    (["No pleural effusion is seen.", "There is no effusion."], "There is no pleural effusion."),
    (["The heart is enlarged.", "Cardiomegaly."], "Cardiomegaly is present in the heart."),
    (["Clear lungs."], "Lungs are clear."),
)
CHINESE, ARABIC = "右肺上叶可见结节。", "لا يوجد انصباب جنبي في الصدر"
TEXTS = st.lists(st.lists(st.sampled_from(["no", "edema", "Edema.", "3.5", "cm", "右肺"]), max_size=8).map(" ".join))


@pytest.mark.parametrize(
    ("profile", "values"),
    [
        (
            "coco",  # pycocoevalcap 1.2
            {
                "bleu@1": 0.5081967213,
                "bleu@2": 0.4078221757,
                "bleu@3": 0.3533699775,
                "bleu@4": 0.3010077099,
                "rouge_l_coco": 0.5350510871,
                "cider_d": 3.8396161086,
            },
        ),
        (
            "radeval",  # rouge-score 0.1.2 with its stemmer
            {"rouge_1_stem": 0.806233246, "rouge_2_stem": 0.5877761279, "rouge_l_stem": 0.76770278},
        ),
        ("sacrebleu-13a", {"bleu_13a_exp@4": 0.3750819455}),  # sacrebleu 2.6.0
        (
            "r2gen",  # R2Gen's cleaner, then pycocoevalcap 1.2
            {"bleu@1": 0.6956521739, "bleu@4": 0.3989484855, "rouge_l_coco": 0.7490164436},
        ),
        ("r2gen-iu", {"bleu@1": 0.6811594203, "bleu@4": 0.3492454802, "rouge_l_coco": 0.7342272542}),
        (
            "",  # rouge-score without its stemmer; nltk 3.10.4 without WordNet; sacrebleu without smoothing
            {
                "rouge_1": 0.7511445438,
                "rouge_2": 0.548010046,
                "rouge_l": 0.7126140779,
                "meteor_no_synonyms": 0.7882032799,
                "bleu_13a@4": 0.3750819455,
                "bleu_13a@2": 0.527465066,
            },
        ),
    ],
)
def test_values_are_those_of_the_packages_that_profiles_name(profile, values):
    found = text_scores(RIGHT, SAID, list(values), profile)
    assert dict(found.values) == pytest.approx(values, abs=1e-9)


def test_values_of_each_report_are_those_of_pycocoevalcap():
    found = text_scores(RIGHT, SAID, profile="coco").per_report
    assert found["bleu@4"] == pytest.approx([2.795e-05, 2.865e-05, 0.4026191, 0.50317476, 0.0, 1.0], abs=1e-8)
    cider = [1.60280117, 1.49437935, 4.46595399, 4.82219421, 0.65236793, 10.0]
    assert found["cider_d"] == pytest.approx(cider, abs=1e-8)


def test_values_with_several_references_are_those_of_the_packages():
    right, said = zip(*SEVERAL, strict=True)
    values = {
        "bleu@1": 0.4285714285,
        "bleu@2": 0.2791452631,
        "bleu@3": 0.2135617705,
        "bleu@4": 3.73594e-05,
        "rouge_l_coco": 0.3715153967,
        "cider_d": 0.8906512633,
        "bleu_13a@2": 0.4299697077,
        "bleu_13a_exp@4": 0.1800282927,
        "rouge_1": 0.762962963,
        "rouge_l": 0.562962963,
        "meteor_no_synonyms": 0.666430077,
    }
    found = text_scores(right, said, list(values))
    assert dict(found.values) == pytest.approx(values, abs=1e-9)
    assert "references:1 to 2" in found.signatures["bleu@4"]


def test_signatures_say_all_that_decides_a_number():
    found = text_scores(RIGHT, SAID, ["bleu@4"], "r2gen")
    assert found.signatures["bleu@4"] == (
        "bleu@4|tokeniser:blanks|case:kept|aggregation:counts of the set|smoothing:tiny (COCO)|references:1|reports:6|"
        f"clean:r2gen_mimic|version:{medimg_eval.__version__}"
    )
    lines = str(text_scores(["a b"] * 3, ["a", "a b", "a b c d"], ["rouge_1"])).splitlines()
    assert lines[0].startswith("0.7778  rouge_1|tokeniser:runs of letters and digits|case:lower|")
    assert lines[1] == "words for each word of the reference: median 1.00, quartiles 0.75 and 1.50"


def test_without_a_profile_or_metrics_the_usual_ones_are_scored():
    found = text_scores(RIGHT, SAID)
    assert list(found.values) == ["bleu@1", "bleu@4", "rouge_l", "meteor_no_synonyms", "cider_d", "length_ratio"]
    assert found.lengths.median == np.median(found.per_report["length_ratio"])
    assert list(text_scores(RIGHT, SAID, "rouge_l").values) == ["rouge_l"]
    quantile = text_scores(RIGHT, SAID, ["length_ratio_quantile@25"])
    assert quantile.values["length_ratio_quantile@25"] == pytest.approx(found.lengths.lower)
    assert not quantile.per_report


def test_it_needs_no_torch_and_no_pandas():
    code = (
        "import sys; from medimg_eval.metrics import text_scores; text_scores(['a'], ['a']);"
        "sys.exit(bool({'torch', 'pandas', 'transformers', 'nltk'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=environment())


@pytest.mark.parametrize("name", ALL)
def test_identical_texts_have_the_stated_maximum(name):
    texts = [text for text in RIGHT if len(text.split()) > 3]
    found = text_scores(texts, texts, [name])
    if name == "meteor_no_synonyms":
        assert found.values[name] == pytest.approx(1, abs=0.01)
        assert (found.per_report[name] < 1).all()
    else:
        best = get(name).best
        assert found.values[name] == pytest.approx(best, abs=1e-12)
        assert found.per_report[name] == pytest.approx(np.full(len(texts), best), abs=1e-12)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("said", ["", "  ", "\n\t"])
def test_empty_predictions_have_exactly_the_stated_worst(name, said):
    found = text_scores(RIGHT, [said] * len(RIGHT), [name])
    assert found.values[name] == 0.0
    assert (found.per_report[name] == 0).all()
    with_one = text_scores([*RIGHT, "No edema is seen."], [*SAID, said], [name])
    assert with_one.per_report[name][-1] == 0.0
    better = text_scores([*RIGHT, "No edema is seen."], [*SAID, "No edema is seen."], [name])
    assert with_one.values[name] < better.values[name]


@given(TEXTS, st.randoms(use_true_random=False))
@FEW
def test_the_order_of_reports_does_not_matter(texts, rng):
    right, said = [*RIGHT, *(text or "x" for text in texts)], [*SAID, *texts]
    order = list(range(len(right)))
    rng.shuffle(order)
    one = text_scores(right, said, ALL)
    other = text_scores([right[at] for at in order], [said[at] for at in order], ALL)
    assert dict(other.values) == pytest.approx(dict(one.values), abs=1e-12)
    for name in ALL:
        assert other.per_report[name] == pytest.approx(one.per_report[name][order], abs=1e-12)


@pytest.mark.parametrize("name", [*ALL, "length_ratio"])
def test_a_single_call_equals_the_call_on_the_set_for_each_report(name):
    """But for CIDEr-D, whose weights are the set's: a set of one has none."""
    whole = text_scores(RIGHT, SAID, [name]).per_report[name]
    for at, (right, said) in enumerate(REPORTS):
        alone = text_scores([right], [said], [name])
        assert alone.per_report[name] == pytest.approx([0.0 if name == "cider_d" else whole[at]], abs=1e-12)
        assert alone.values[name] == pytest.approx(alone.per_report[name][0], abs=1e-12)


def test_the_mean_over_reports_is_the_value_only_of_metrics_that_are_means():
    found = text_scores(RIGHT, SAID, ALL)
    for name in ALL:
        same = found.per_report[name].mean() == pytest.approx(found.values[name], abs=1e-9)
        assert same == (name in MEANS), name


@given(TEXTS, TEXTS)
@FEW
def test_values_lie_in_their_range(said, right):
    number = min(len(said), len(right))
    found = text_scores([*right[:number], "edema"], [*said[:number], "no"], ALL)
    for name in ALL:
        for value in (found.values[name], *found.per_report[name]):
            assert math.isnan(value) or 0 <= value <= get(name).best + 1e-9


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("reference", ["", " \n", [], ["", " "]])
def test_a_report_without_a_reference_is_not_judged_whatever_was_written(name, reference):
    found = text_scores([*RIGHT, reference, reference], [*SAID, "No edema.", ""], [name])
    assert np.isnan(found.per_report[name][-2:]).all()
    assert found.values[name] == pytest.approx(text_scores(RIGHT, SAID, [name]).values[name], abs=1e-12)
    assert "reports:6|" in found.signatures[name]
    nothing = text_scores([reference], ["No edema."], [name])
    assert math.isnan(nothing.values[name])
    assert np.isnan(nothing.per_report[name]).tolist() == [True]
    assert math.isnan(nothing.lengths.median)


def test_a_set_of_one_report_has_cider_0():
    assert text_scores(["No edema is seen."], ["No edema is seen."], ["cider_d"]).values["cider_d"] == 0.0


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("change", ["line\nbreak", "double  blank"])
def test_line_breaks_and_double_blanks_are_blanks_but_for_cocos_rouge(name, change):
    said = [*SAID, f"there is a small {change} of lines"]
    tidy = [*SAID, " ".join(said[-1].split())]
    right = [*RIGHT, tidy[-1]]
    one, other = (text_scores(right, texts, [name]).values[name] for texts in (said, tidy))
    assert (one == other) == (name != "rouge_l_coco")


def test_numbered_lists_without_blanks_decimals_and_blanks_of_de_identification():
    def one(name, said, right):
        return text_scores([right], [said], [name]).values[name]

    glued, spaced = "1.Stable.2.No effusion", "1. Stable. 2. No effusion"
    assert one("bleu@1", glued, spaced) == pytest.approx(1 / 2 * math.exp(1 - 5 / 2))  # "1.Stable.2.No" is one word
    assert one("rouge_1", glued, spaced) == 1.0
    assert one("rouge_1", "35 mm", "3.5 mm") == pytest.approx(2 * 1 / 5)  # 3, 5 and mm
    assert one("bleu_13a@1", "3.5 mm.", "3.5 mm .") == 1.0
    assert one("bleu@1", "compared with ___", "compared with [**]") == pytest.approx(2 / 3)
    assert one("rouge_1", "compared with ___", "compared with [**]") == 1.0


@pytest.mark.parametrize(
    "text", [CHINESE, ARABIC, "Ärztlich geprüft, unauffällig, keine Ergüsse.", "폐에 결절이 보인다 오늘 또"]
)
def test_other_scripts_are_tokenised_and_not_emptied(text):
    names = ["bleu@1", "bleu_13a@1", "rouge_1", "rouge_l", "rouge_l_stem", "rouge_l_coco"]
    assert set(text_scores([text], [text], names).values.values()) == {1.0}
    assert text_scores([text], [text[: len(text) // 2]], ["rouge_1"]).values["rouge_1"] > 0.3
    assert text_scores([text], [text], ["meteor_no_synonyms"]).values["meteor_no_synonyms"] > 0.95


def test_case_counts_between_blanks_and_not_in_runs_of_letters():
    found = text_scores(
        ["No Edema"], ["no edema"], ["bleu@1", "bleu_13a@1", "rouge_1", "rouge_l_stem", "meteor_no_synonyms"]
    )
    assert found.values["bleu@1"] == pytest.approx(0, abs=1e-14)
    assert found.values["bleu_13a@1"] == 0
    assert found.values["rouge_1"] == found.values["rouge_l_stem"] == 1
    assert found.values["meteor_no_synonyms"] == 1 - 0.5 / 8


def test_texts_of_10000_words_are_judged_whole():
    rng = random.Random(0)  # noqa: S311 - texts, not secrets
    long = " ".join(rng.choice(["no", "edema", "is", "seen", "today", "."]) for _ in range(10_000))
    found = text_scores([long, "No edema."], [f"{long} further", "edema"], ALL)
    assert found.per_report["rouge_l"][0] > 0.999
    assert found.per_report["bleu@4"][0] > 0.999


@pytest.mark.parametrize("gap", [None, math.nan])
def test_a_missing_prediction_is_an_error_or_counts_as_empty_by_a_stated_rule(gap):
    with pytest.raises(UsageError, match=r"Prediction 2 of 2 is (None|nan), expected a text; give missing='empty'"):
        text_scores(["a", "b"], ["a", gap])
    found = text_scores(["a", "b"], ["a", gap], ["rouge_1", "bleu@1"], missing="empty")
    assert found.per_report["rouge_1"].tolist() == [1, 0]
    assert found.values["bleu@1"] == pytest.approx(math.exp(-1))
    with pytest.raises(UsageError, match="The reference of report 1 of 1 is"):
        text_scores([gap], ["a"], missing="empty")
    with pytest.raises(UsageError, match="The reference of report 1 of 1 is"):
        text_scores([["a", gap]], ["a"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((["a", "b"], ["a"]), "as many references as predictions and at least one, got 2 and 1"),
        (([], []), "at least one, got 0 and 0"),
        (("a", ["a"]), "references to be a list of texts or of lists, got str"),
        ((["a"], "a"), "predictions to be a list of texts, got str"),
        ((["a"], [3]), "Prediction 1 of 1 is 3, expected a text$"),
        ((["a"], ["a"], ["rouge"]), "got 'rouge'; did you mean"),
        ((["a"], ["a"], ["dice"]), "Metric 'dice' does not judge texts"),
        ((["a"], ["a"], ["bleu@7"]), "n of metric 'bleu' to be 1, 2, 3 or 4"),
        ((["a"], ["a"], ["rouge_l"], "radeval"), "'radeval' has no metric 'rouge_l'; did you mean 'rouge_l_stem'"),
        ((["a"], ["a"], None, "mimic"), "got 'mimic'"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_sentence(arguments, said):
    with pytest.raises(UsageError, match=said):
        text_scores(*arguments)


def test_settings_that_cannot_be_meant_are_refused():
    with pytest.raises(UsageError, match="missing is invalid: .*got 'skip'"):
        text_scores(["a"], ["a"], missing="skip")
    with pytest.raises(UsageError, match="got 'r2gen'"):
        text_scores(["a"], ["a"], clean="r2gen")
    with pytest.raises(UsageError, match="Profile 'coco' cleans texts in its own way; leave clean='r2gen_iu' out"):
        text_scores(["a"], ["a"], profile="coco", clean="r2gen_iu")


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        ({"requires": read_by("chexbert")}, "the annotator 'chexbert'"),
        ({"requires": judge_says("green")}, "the judge's question 'green'"),
    ],
)
def test_a_metric_that_needs_weights_or_a_judge_is_refused_before_anything_is_scored(monkeypatch, needs, said):
    needy = replace(get("rouge_l"), name="needy", function=lambda pair: pytest.fail("scored"), **needs)
    monkeypatch.setitem(registry._METRICS, "needy", needy)
    monkeypatch.setitem(registry._METRICS, "sum", replace(get("bleu"), name="sum", needs=("needy",), parameter=None))
    for name in ("needy", "sum"):
        with pytest.raises(UsageError, match=f"Metric '{name}' needs {said}; score a table with"):
            text_scores(["a"], ["a"], ["rouge_1", name])


def test_a_metric_that_judges_several_things_of_a_report_counts_with_their_mean(monkeypatch):
    told = replace(get("rouge_l"), name="told", function=lambda pair: {"a": 0.0, "b": float(len(pair.text))})
    monkeypatch.setitem(registry._METRICS, "told", told)
    asked = replace(
        get("length_ratio_quantile"),
        name="asked",
        needs=("told",),
        parameter=None,
        function=lambda rows: float(rows.value[rows.label == "b"].sum()) + rows.cases,
    )
    monkeypatch.setitem(registry._METRICS, "asked", asked)
    found = text_scores(["a", "a"], ["xy", "xyz"], ["told", "asked"])
    assert found.per_report["told"].tolist() == [1, 1.5]
    assert dict(found.values) == {"told": 1.25, "asked": 7.0}


def test_a_cleaner_may_be_asked_for_without_a_profile():
    found = text_scores(["1. No EDEMA!"], ["no edema ."], ["bleu@1", "sentence_bleu@2"], clean="r2gen_iu")
    assert dict(found.values) == {"bleu@1": 1.0, "sentence_bleu@2": 1.0}
    assert "|clean:r2gen_iu|" in found.signatures["bleu@1"]


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_scores(profile):
    found = text_scores(RIGHT, SAID, profile=profile)
    assert tuple(found.values) == PROFILES[profile].metrics == tuple(found.per_report)
    assert all(0 < value < 10 for value in found.values.values())
