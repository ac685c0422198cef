"""Labels of reports: the arithmetic against scikit-learn, and the metrics made of it."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import precision_recall_fscore_support

from medimg_eval import metrics
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.metrics.answers.reply import AnsweredQuestion, Read
from medimg_eval.metrics.registry import ScoreTable, read_by
from medimg_eval.metrics.reports.labels.f1 import label_scores
from medimg_eval.metrics.reports.labels.family import codes, example_scores, label_family, sums_of, value_of_sums
from medimg_eval.metrics.reports.labels.metrics import uptake_labels
from medimg_eval.metrics.reports.labels.taxonomies import CHEXPERT, CHEXPERT_5, CHEXPERT_13, CHEXPERT_14, Taxonomy

NAMES = ("Edema", "Fracture", "Pneumonia")
BLANK, YES, NO, MAYBE = range(4)


def reports(*states, names=NAMES):
    return [dict(zip(names, some, strict=True)) for some in states]


REFERENCE = reports((YES, NO, BLANK), (MAYBE, YES, BLANK), (BLANK, BLANK, BLANK))
PREDICTED = reports((YES, YES, BLANK), (YES, MAYBE, BLANK), (BLANK, BLANK, MAYBE))


def scores(average, uncertain, labels=NAMES):
    return label_scores(REFERENCE, PREDICTED, labels=labels, average=average, uncertain=uncertain)


def test_scores_by_hand():
    # Uncertain as positive: 1 1/1 0/1, 1 1/1 1/1, and one Pneumonia that is invented.
    assert scores("micro", "positive") == pytest.approx((3 / 5, 1, 6 / 8, 3))
    assert scores("macro", "positive") == pytest.approx(((1 + 0.5 + 0) / 3, 2 / 3, (1 + 2 / 3) / 3, 2))
    assert scores("weighted", "positive") == pytest.approx((2 / 3 + 0.5 / 3, 1, 2 / 3 + 2 / 9, 3))
    assert scores("samples", "positive") == pytest.approx(((0.5 + 1) / 3, 2 / 3, (2 / 3 + 1) / 3, 2))
    # As negative: the reference has Edema, then Fracture; the prediction Edema and Fracture, then Edema.
    assert scores("micro", "negative") == pytest.approx((1 / 3, 1 / 2, 2 / 5, 2))
    assert scores(None, "negative") == {
        "Edema": pytest.approx((1 / 2, 1, 2 / 3, 1)),
        "Fracture": (0, 0, 0, 1),
        "Pneumonia": (0, 0, 0, 0),
    }


def test_the_mean_of_f1_is_not_the_f1_of_the_means():
    found = scores("macro", "positive")
    assert found.f1 != pytest.approx(2 * found.precision * found.recall / (found.precision + found.recall))


def test_labels_are_joined_by_name_whatever_their_order():
    turned = [dict(reversed(report.items())) for report in PREDICTED]
    for average in ("micro", "macro", "weighted", "samples", None):
        found = label_scores(REFERENCE, turned, labels=NAMES[::-1], average=average, uncertain="positive")
        expected = scores(average, "positive")
        if average is None:
            assert found == expected
        else:
            assert found == pytest.approx(expected)


def test_chexperts_sets():
    assert len(CHEXPERT_14) == 14
    assert set(CHEXPERT_14) - set(CHEXPERT_13) == {"No Finding"}
    assert CHEXPERT_5 == ("Cardiomegaly", "Edema", "Consolidation", "Atelectasis", "Pleural Effusion")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"labels": ("Edma",)}, "no label 'Edma'; did you mean 'Edema'"),
        ({"labels": ()}, "at least one name"),
        ({"labels": "Edema"}, "a sequence"),
        ({"average": "mean"}, "micro, macro, weighted, samples or None, got 'mean'"),
        ({"uncertain": "blank"}, "'positive' or 'negative', got 'blank'"),
        ({"predicted": PREDICTED[:2]}, "got 2 and 3"),
        ({"predicted": [*PREDICTED[:2], {"Edema": 1}]}, "predicted 2 lacks"),
        ({"predicted": [*PREDICTED[:2], {**PREDICTED[2], "edema": 1}]}, "predicted 2 has 'edema'"),
        ({"reference": reports((YES, -1, 0), (0, 0, 0), (0, 0, 0))}, "reference 0 has -1 of 'Fracture'"),
        ({"reference": reports((YES, math.nan, 0), (0, 0, 0), (0, 0, 0))}, "reference 0 has nan"),
        ({"reference": reports((YES, None, 0), (0, 0, 0), (0, 0, 0))}, "reference 0 has None"),
    ],
)
def test_what_cannot_be_meant_is_refused(change, said):
    given = {"reference": REFERENCE, "predicted": PREDICTED, "labels": NAMES, "average": "micro", **change}
    uncertain = given.pop("uncertain", "positive")
    with pytest.raises(ValueError, match=said):
        label_scores(given.pop("reference"), given.pop("predicted"), uncertain=uncertain, **given)


def test_the_uncertain_rule_must_be_chosen():
    with pytest.raises(TypeError, match="uncertain"):
        label_scores(REFERENCE, PREDICTED, labels=NAMES, average="micro")


def test_no_reports_have_no_scores():
    found = label_scores([], [], labels=NAMES, average="micro", uncertain="positive")
    assert all(math.isnan(one) for one in found[:3])
    assert found.support == 0


states = st.lists(st.lists(st.integers(0, 3), min_size=14, max_size=14), min_size=1, max_size=12)


def made(rows):
    return reports(*rows, names=CHEXPERT_14)


def rows_of(reference, predicted, name="rule_labeler_states"):
    found = [(case, label, code) for case, pair in enumerate(zip(reference, predicted, strict=True))
             for label, code in codes(*pair).items()]  # fmt: skip
    case, label, value = (np.array(part) for part in zip(*found, strict=True))
    text = np.full(len(case), name)
    return ScoreTable(case, text, label, value.astype(float), np.full(len(case), "right"), {}, len(reference), {})


@settings(deadline=None, max_examples=10)
@given(states, st.randoms(use_true_random=False), st.sampled_from(["positive", "negative"]))
def test_scores_are_scikit_learns_and_the_summaries_are_both(rows, random, uncertain):
    reference, predicted = made(rows), made([random.choices(range(4), k=14) for _ in rows])
    positive = (1, 3) if uncertain == "positive" else (1,)
    for size, labels in {"14": CHEXPERT_14, "13": CHEXPERT_13, "5": CHEXPERT_5}.items():
        right, said = (
            [[int(one[label] in positive) for label in labels] for one in side] for side in (reference, predicted)
        )
        plus = "+" if uncertain == "positive" else ""
        for average in ("micro", "macro", "weighted", "samples"):
            expected = precision_recall_fscore_support(right, said, average=average, zero_division=0)[:3]
            found = label_scores(reference, predicted, labels=labels, average=average, uncertain=uncertain)
            assert found[:3] == pytest.approx(expected)
            evidence = rows_of(reference, predicted)
            for what, value in found._asdict().items():
                summary, choice = metrics.parse(f"rule_labeler_{what}@{average}-{size}{plus}")
                assert summary.function(evidence, choice) == pytest.approx(value)
        each = precision_recall_fscore_support(right, said, average=None, zero_division=0)
        found = label_scores(reference, predicted, labels=labels, average=None, uncertain=uncertain)
        for place, label in enumerate(labels):
            assert found[label] == pytest.approx([one[place] for one in each])
            assert metrics.get("rule_labeler_f1").function(
                rows_of(reference, predicted), label + plus
            ) == pytest.approx(found[label].f1)


@settings(deadline=None, max_examples=15)
@given(states, st.randoms(use_true_random=False))
def test_the_order_of_reports_does_not_matter_and_identical_ones_score_the_most(rows, random):
    reference, predicted = made(rows), made([random.choices(range(4), k=14) for _ in rows])
    order = random.sample(range(len(rows)), len(rows))
    for average in ("micro", "macro", "weighted", "samples"):
        asked = {"labels": CHEXPERT_14, "average": average, "uncertain": "positive"}
        turned = [[side[place] for place in order] for side in (reference, predicted)]
        assert label_scores(*turned, **asked) == pytest.approx(label_scores(reference, predicted, **asked))
        best = label_scores(reference, reference, **asked)
        # What there is nothing to find of counts 0, on both sides of a perfect prediction too.
        whole = {"macro": 14, "samples": len(rows)}.get(average, max(best.support, 1))
        assert best.f1 == pytest.approx(best.support / whole)
        nothing = label_scores(reference, made([[0] * 14] * len(rows)), **asked)
        assert nothing[:3] == (0, 0, 0)


def test_a_single_report_scores_alone_as_in_the_set():
    evidence, choice = rows_of(REFERENCE, PREDICTED), Taxonomy(NAMES).choice("samples-all+", "x")
    alone = [
        float(value_of_sums(sums_of(rows_of([a], [b]), choice).sum(0), choice, "f1"))
        for a, b in zip(REFERENCE, PREDICTED, strict=True)
    ]
    assert value_of_sums(sums_of(evidence, choice).sum(0), choice, "f1") == pytest.approx(np.mean(alone))
    singly = [example_scores(a, b, choice).f1 for a, b in zip(REFERENCE, PREDICTED, strict=True)]
    assert singly == pytest.approx(alone)
    assert example_scores(REFERENCE[2], REFERENCE[2], choice) == (1, 1, 1, 0)


def test_evidence_holds_what_either_side_says_and_one_row_of_a_report_at_least():
    assert codes(REFERENCE[0], PREDICTED[0]) == {"Edema": 5, "Fracture": 9}
    assert codes(REFERENCE[2], REFERENCE[2]) == {"Edema": 0}


def test_rows_that_were_not_judged_are_left_out():
    rows = rows_of(REFERENCE, PREDICTED)
    columns = rows.case, rows.metric, rows.label, rows.value, rows.status
    unread = (3, "x", "unread", math.nan, "failed")
    whole = ScoreTable(*(np.append(part, [new]) for part, new in zip(columns, unread, strict=True)), {}, 4, {})
    taxonomy = Taxonomy(NAMES)
    for text in ("micro-all+", "macro-all", "samples-all"):
        choice = taxonomy.choice(text, "x")
        assert sums_of(whole, choice).sum(0) == pytest.approx(sums_of(rows, choice).sum(0))


def pair(reference, text, kind="report", **more):
    return AnsweredQuestion(kind, text, reference, **more)


def read(states):
    return {**dict.fromkeys(CHEXPERT_14, 0), **states}


def annotated(reference, prediction, text="a report", **more):
    return pair("a reference", text, readings={"chexbert": Read(reference, prediction)}, **more)


def value(name, given):
    found, parameter = metrics.parse(name)
    return found.function(given) if parameter is None else found.function(given, parameter)


def test_what_an_annotator_read_becomes_evidence_by_name():
    given = annotated(read({"Edema": 1}), {"Edema": 3, "Fracture": 2, "cut": True})
    assert value("chexbert_states", given) == {"Edema": 7, "Fracture": 2}
    assert value("chexbert_example_f1@14+", given) == 1
    assert value("chexbert_example_f1@14", given) == 0
    assert value("chexbert_example_f1@5", annotated(read({"Fracture": 1}), read({}))) == 1


def test_an_annotator_that_failed_or_gives_other_labels():
    assert math.isnan(value("chexbert_states", pair("a", "b", readings={"chexbert": None})))
    with pytest.raises(UserError, match="annotator chexbert gives the label 'Oedema', which its taxonomy lacks"):
        value("chexbert_states", annotated({"Oedema": 1}, {}))
    with pytest.raises(UserError, match="gives 'Edema' the state -1"):
        value("chexbert_states", annotated({"Edema": -1}, {}))
    with pytest.raises(CaseError, match="has not read this report"):
        value("chexbert_states", pair("a", "b"))


def test_an_empty_prediction_has_no_label_and_scores_the_worst():
    for text in ("", "  \n "):
        given = annotated(read({"No Finding": 1}), read({"No Finding": 1}), text)
        assert value("chexbert_states", given) == {"No Finding": 4}
        assert value("chexbert_example_f1@14+", given) == 0
        assert value("rule_labeler_example_f1@14+", pair("Mild edema.", text)) == 0


@pytest.mark.parametrize(
    "given", [pair("", "edema"), pair(" ", ""), pair(None, "edema"), pair("yes", "yes", "yes_no"), pair([], "edema")]
)
def test_what_has_no_reference_or_is_no_report_is_not_judged(given):
    for name in (
        "rule_labeler_states",
        "rule_labeler_example_f1@14",
        "chexbert_states",
        "chexbert_similarity",
        "pet_uptake_states",
    ):
        assert math.isnan(value(name, given))


def test_several_references_are_refused():
    with pytest.raises(CaseError, match="rule_labeler compares with one reference, and there are 2"):
        value("rule_labeler_states", pair(["a", "b"], "c"))


def test_rules_read_reports_as_they_are():
    given = pair("Mild pulmonary edema. No pneumothorax.", "Possible pulmonary edema.")
    assert value("rule_labeler_states", given)["Edema"] == 7
    assert value("rule_labeler_states", given)["Pneumothorax"] == 8
    assert value("rule_labeler_example_f1@14+", given) == 1
    assert value("rule_labeler_example_f1@13", given) == 0
    assert value("rule_labeler_example_f1@14", pair(given.value, given.value)) == 1


def test_the_similarity_is_what_the_annotator_says():
    assert (
        value("chexbert_similarity", pair("a", "b", readings={"chexbert_similarity": {"cosine": 0.5, "cut": True}}))
        == 0.5
    )
    assert math.isnan(value("chexbert_similarity", pair("a", "b", readings={"chexbert_similarity": None})))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("micro-15", "no set of labels '15' (in 'micro-15')"),
        ("micro-", "no set of labels ''"),
        ("micro", "no set of labels '' (in 'micro') (available: 13, 14, 5, all)"),
        ("edema", "no choice 'edema'; did you mean 'Edema'"),
        ("mean-14", "no choice 'mean-14'"),
        ("Edema++", "no choice 'Edema++'"),
    ],
)
def test_a_parameter_that_cannot_be_meant_is_refused_with_the_nearest_one(text, said):
    with pytest.raises(UsageError) as caught:
        value(f"rule_labeler_f1@{text}", rows_of(made([[1] * 14]), made([[1] * 14])))
    assert "rule_labeler_f1" in str(caught.value)
    assert said in str(caught.value)
    with pytest.raises(UsageError, match="no set of labels 'micro-14'"):
        value("rule_labeler_example_f1@micro-14", pair("a", "b"))
    with pytest.raises(UsageError, match="needs a parameter"):
        metrics.parse("rule_labeler_f1")


def test_every_table_says_what_decides_the_numbers():
    for name in ("rule_labeler", "chexbert", "radbert_ct", "srr_bert_leaves", "pet_uptake"):
        for what in ("f1", "precision", "recall", "support", "example_f1"):
            told = metrics.get(f"{name}_{what}").settings
            assert "uncertain label counts as positive, without +: as negative" in told
            assert "counts 0 in means" in told
    assert "14 labels; 13: without No Finding; 5: Cardiomegaly, Edema" in metrics.get("rule_labeler_f1").settings
    assert "agreement with CheXbert on real reports is unknown" in metrics.get("rule_labeler_f1").settings
    assert metrics.get("chexbert_states").requires == read_by("chexbert")
    assert metrics.get("chexbert_f1").needs == ("chexbert_states",)


@pytest.fixture
def own_metrics():
    metrics.available()
    known = dict(metrics.registry._METRICS)
    yield
    metrics.registry._METRICS.clear()
    metrics.registry._METRICS.update(known)


def test_a_taxonomy_of_ones_own_takes_one_call_and_a_file(own_metrics, tmp_path):
    file = tmp_path / "spine.yaml"
    file.write_text("labels: [Stenosis, Herniation, Listhesis]\nsets: {discs: [Herniation]}\n")

    def read_spine(text):
        return {name: 1 for name in ("Stenosis", "Herniation") if name.lower() in text.lower()}

    label_family("spine", str(file), title="Spine", source="our clinic", labeller=read_spine, by="our words")
    given = pair("Stenosis and herniation of L4/5.", "Herniation.")
    assert value("spine_states", given) == {"Stenosis": 4, "Herniation": 5}
    assert value("spine_example_f1@all", given) == pytest.approx(2 / 3)
    assert value("spine_example_f1@discs", given) == 1
    names = Taxonomy.load(file).labels
    full = [{name: found.get(name, 0) for name in names} for found in map(read_spine, (given.value, given.text))]
    assert value("spine_recall@micro-3", rows_of(full[:1], full[1:])) == 0.5
    assert "labels and sets of" in metrics.get("spine_f1").settings


def test_a_family_needs_exactly_one_reader(own_metrics):
    for readers in ({}, {"labeller": dict, "annotator": "x"}):
        with pytest.raises(ValueError, match="one of `labeller` and `annotator`"):
            label_family("odd", CHEXPERT, title="Odd", source="", **readers)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("labels: []", "names, each once"),
        ("labels: [a, a]", "names, each once"),
        ("labels: [a]\nset: {}", "no key 'set'"),
        ("labels: [a]\nsets: {x: [b]}", "set 'x' of labels names 'b'"),
        ("- a", "expected keys such as `labels`, got list"),
        ("labels: [a", "cannot be read as YAML"),
    ],
)
def test_a_file_that_is_no_taxonomy_is_refused(tmp_path, text, said):
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(UserError, match=said):
        Taxonomy.load(tmp_path / "bad.yaml")
    with pytest.raises(UserError, match="there is no such taxonomy"):
        Taxonomy.load("nothing")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FDG uptake of the thyroid is normal.", {"Thyroid: normal"}),
        ("The liver shows a nodule of 3.5 cm. Increased FDG uptake is seen.", {"Liver: increased"}),
        ("Hypermetabolic lymph nodes, no abnormal uptake of the lungs.", {"Lymph nodes: increased", "Lungs: normal"}),
        ("The spleen is normal in size. The brain is uniform.", set()),
        ("The left kidney is small, FDG uptake is absent.", {"Kidneys: decreased"}),
        ("甲状腺大小正常，FDG摄取未见异常。肝右叶见肿块，FDG摄取增高。", {"Thyroid: normal", "Liver: increased"}),
        ("肝胃间隙见淋巴结，FDG摄取轻度增高；脾脏FDG摄取减低", {"Lymph nodes: increased", "Spleen: decreased"}),
        ("双侧肾上腺显影，FDG摄取未见异常", {"Adrenal glands: normal"}),
        ("FDG uptake of the liver is normal. Increased uptake in the left liver.", {"Liver: increased"}),
        ("Increased uptake.", set()),
        ("", set()),
    ],
)
def test_uptake_is_read_of_the_organ_that_a_clause_is_about(text, expected):
    taxonomy = Taxonomy.load("pet_uptake")
    found = uptake_labels(text, taxonomy)
    assert set(found) == expected
    assert set(found) <= set(taxonomy.labels)


def test_correctness_of_uptake_per_organ_is_the_recall_of_its_labels():
    given = pair(
        "The liver has increased uptake. FDG uptake of the lungs is normal.", "Increased uptake in liver and lungs."
    )
    assert value("pet_uptake_example_f1@all", given) == pytest.approx(0.5)
    assert value("pet_uptake_example_f1@Liver", given) == 1
    assert value("pet_uptake_example_f1@Lungs", given) == 0
    assert set(Taxonomy.load("pet_uptake").averaged) >= {"all", "60", "Liver", "increased"}


def test_summaries_of_5000_reports_take_little_time():
    rng = np.random.default_rng(0)
    drawn = rng.choice(4, size=(2, 5000, 14), p=(0.6, 0.2, 0.15, 0.05)).tolist()
    rows = rows_of(*(made(side) for side in drawn))
    begun = time.process_time()
    for average in ("micro", "macro", "weighted", "samples"):
        for size in ("14+", "5", "13+"):
            metrics.get("chexbert_f1").pieces(rows, f"{average}-{size}")
    assert time.process_time() - begun < 5
