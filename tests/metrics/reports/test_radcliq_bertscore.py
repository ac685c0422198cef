"""BERTScore of token embeddings and RadCliQ of its parts: arithmetic on intermediate results."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from medimg_eval.errors import UsageError
from medimg_eval.metrics import get
from medimg_eval.metrics.answers.reply import AnsweredQuestion, Read
from medimg_eval.metrics.nlp.corpus import Corpus
from medimg_eval.metrics.registry import ScoreTable, comparisons, read_by
from medimg_eval.metrics.reports.radcliq import bleu_2, radcliq_of
from medimg_eval.metrics.reports.token_matching import DISTILROBERTA_5, BertScores, bertscore_of, rarity, rescaled

EAST, NORTH, BOTH = [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]
HALF = math.sqrt(0.5)


def scores(reference, prediction, due=None, said=None, baseline=None):
    reference, prediction = np.array(reference, dtype=float), np.array(prediction, dtype=float)
    due = np.ones(len(reference)) if due is None else due
    said = np.ones(len(prediction)) if said is None else said
    return bertscore_of(reference, prediction, due, said, baseline)


def test_each_token_takes_its_nearest_by_hand():
    found = scores([EAST, NORTH], [BOTH])
    assert found == pytest.approx((HALF, HALF, HALF))
    found = scores([EAST, NORTH], [EAST])
    assert found == pytest.approx((1.0, 0.5, 2 / 3))
    assert scores([EAST, NORTH], [EAST], due=[3, 1]) == pytest.approx((1.0, 0.75, 6 / 7))


def test_lengths_of_vectors_do_not_count():
    assert scores([[5, 0], [0, 0.1]], [EAST, NORTH]) == pytest.approx((1, 1, 1))


def test_a_token_without_weight_may_still_be_matched():
    assert scores([EAST, NORTH], [NORTH], due=[1, 0]).precision == 1.0
    assert scores([EAST, NORTH], [NORTH], due=[1, 0]).recall == 0.0


def test_a_prediction_that_says_nothing_has_0_and_a_reference_without_weight_is_not_judged():
    assert scores([EAST], [NORTH, EAST], said=[0, 0]) == (0, 0, 0)
    assert np.isnan(scores([EAST, NORTH], [EAST], due=[0, 0])).all()
    assert np.isnan(scores([EAST], [EAST], due=[0], said=[0])).all()
    nothing = scores([EAST], [EAST], said=[0], baseline=DISTILROBERTA_5)
    assert nothing.f1 == pytest.approx(-5.5501568)


def test_f1_is_0_where_a_part_is_not_above_0():
    assert scores([EAST], [[-1.0, 0.0]]) == pytest.approx((-1, -1, 0))
    assert scores([BOTH], [EAST, [-1.0, 0.0]], said=[1, 9]) == pytest.approx((-0.8 * HALF, HALF, 0))


def test_rescaling_moves_the_baseline_to_0_and_leaves_1():
    baseline = BertScores(0.5, 0.6, 0.8)
    assert rescaled(baseline, baseline) == (0, 0, 0)
    assert rescaled(BertScores(1, 1, 1), baseline) == (1, 1, 1)
    assert scores([EAST, NORTH], [BOTH], baseline=baseline).f1 == pytest.approx((HALF - 0.8) / 0.2)


def test_shapes_and_weights_that_do_not_fit_are_refused():
    with pytest.raises(UsageError, match="a weight for each token"):
        scores([EAST], [EAST], due=[1, 1])
    with pytest.raises(UsageError, match="a weight for each token"):
        scores([EAST], [[1.0, 0.0, 0.0]])
    with pytest.raises(UsageError, match="weights of at least 0, got -1"):
        scores([EAST], [EAST], said=[-1])


def test_rare_tokens_weigh_more_and_what_all_texts_have_nothing():
    found = rarity([["[CLS]", "no", "edema"], ["[CLS]", "no", "no", "effusion"], ["[CLS]", "clear"]])
    weights = found.of(["[CLS]", "no", "edema", "mass"])
    assert weights == pytest.approx([0, math.log(4 / 3), math.log(2), math.log(4)])
    assert rarity([["[CLS]", "edema"]]).of(["[CLS]", "edema"]) == pytest.approx([0, 0])  # of a single text
    assert rarity([]).of(["edema"]) == pytest.approx([0])


def naive(reference, prediction, due, said):
    def cosine(one, other):
        return float(np.dot(one, other) / math.sqrt(np.dot(one, one) * np.dot(other, other)))

    precision = sum(w * max(cosine(x, y) for y in reference) for w, x in zip(said, prediction, strict=True)) / sum(said)
    recall = sum(w * max(cosine(x, y) for x in prediction) for w, y in zip(due, reference, strict=True)) / sum(due)
    return precision, recall


TOKENS = arrays(float, st.tuples(st.integers(1, 5), st.just(3)), elements=st.floats(-9, 9)).filter(
    lambda made: (np.linalg.norm(made, axis=1) > 0.01).all()
)


@given(TOKENS, TOKENS, st.integers(0, 2**31))
@settings(deadline=None, max_examples=30)
def test_bounds_symmetry_and_the_definition_once_more(reference, prediction, seed):
    rng = np.random.default_rng(seed)
    due, said = rng.uniform(0.1, 2, len(reference)), rng.uniform(0.1, 2, len(prediction))
    found = scores(reference, prediction, due, said)
    assert found[:2] == pytest.approx(naive(reference, prediction, due, said))
    assert (np.abs(found) <= 1 + 1e-12).all()
    back = scores(prediction, reference, said, due)
    assert (back.precision, back.recall, back.f1) == pytest.approx((found.recall, found.precision, found.f1))
    order = rng.permutation(len(prediction))
    assert scores(reference, prediction[order], due, said[order]) == pytest.approx(found)
    assert scores(reference, reference, due, due) == pytest.approx((1, 1, 1))


SAME = {"radgraph_combined": 1.0, "bertscore": 1.0, "chexbert_similarity": 1.0, "bleu_2": 1.0}


def test_radcliq_of_identical_texts_under_the_stated_conditions():
    assert radcliq_of("v1", **SAME) == pytest.approx(-1.4407, abs=5e-5)
    assert radcliq_of("v0", **SAME) == pytest.approx(-0.2421, abs=5e-5)


def test_radcliq_of_identical_texts_without_a_relation_is_what_radeval_prints_upside_down():
    value = radcliq_of("v1", **(SAME | {"radgraph_combined": 0.5}))
    assert value == pytest.approx(-0.8181, abs=5e-5)
    assert 1 / value == pytest.approx(-1.2224, abs=5e-5)


def test_radcliq_of_identical_texts_scored_one_pair_at_a_time_is_what_radeval_calls_its_floor():
    alone = rescaled(BertScores(0, 0, 0), DISTILROBERTA_5).f1  # every idf of a single reference is 0
    assert radcliq_of("v1", **(SAME | {"bertscore": alone})) == pytest.approx(9.3726055, abs=5e-8)


def test_radcliq_of_the_authors_means_is_their_intercept():
    means = {
        "radgraph_combined": 0.5398376019082272,
        "bertscore": 0.6312549595000001,
        "chexbert_similarity": 0.7716797866672277,
        "bleu_2": 0.4607372064809605,
    }
    assert radcliq_of("v0", **means) == pytest.approx(1.641666666666666)
    one_more = radcliq_of("v0", **(means | {"bleu_2": means["bleu_2"] + 0.30336670936092264}))
    assert one_more - 1.641666666666666 == pytest.approx(0.2165861905287535)  # more words in common: worse


@given(
    *[st.floats(0, 1)] * 4, st.sampled_from(["radgraph_combined", "bertscore", "chexbert_similarity"]), st.floats(0, 1)
)
@settings(deadline=None, max_examples=30)
def test_radcliq_falls_as_any_of_three_parts_rises(graph, bert, semantic, words, part, rise):
    parts = {"radgraph_combined": graph, "bertscore": bert, "chexbert_similarity": semantic, "bleu_2": words}
    for version in ("v0", "v1"):
        assert radcliq_of(version, **(parts | {part: parts[part] + rise})) <= radcliq_of(version, **parts)
    assert radcliq_of("v1", **parts) >= radcliq_of("v1", **SAME) - 1e-9
    assert radcliq_of("v1", **(parts | {"bleu_2": 0})) == pytest.approx(radcliq_of("v1", **parts), abs=1e-10)


def test_a_version_that_does_not_exist_is_refused():
    with pytest.raises(UsageError, match="v0 or v1, got 'v2'"):
        radcliq_of("v2", **SAME)


def test_bleu_2_by_hand():
    assert bleu_2("No edema. Clear lungs.", "no edema.  clear lungs.") == pytest.approx(1)
    # no, effusion, "." of no, edema, "." : 2 of 3 words, no bigram in common, which counts 0.1 of 2
    assert bleu_2("no edema.", "no effusion.") == pytest.approx(math.sqrt(2 / 3 * 0.1 / 2))
    assert bleu_2("mild edema is seen", "edema") == pytest.approx(math.sqrt(1 * 0.1 / 1) * math.exp(1 - 4))
    assert bleu_2("edema", "clear") == bleu_2("edema", "") == bleu_2("", "edema") == bleu_2("", "") == 0


ENTITY = {"tokens": "edema", "label": "P", "start_ix": 0, "end_ix": 0, "relations": []}
GRAPH = {"text": "edema", "entities": {"1": {**ENTITY, "relations": [["modify", "1"]]}}}
NO_GRAPH = {"text": "", "entities": {}}
ONES = {"precision": 1.0, "recall": 1.0, "f1": 1.0}


def pair(text, readings, kind="report"):
    return AnsweredQuestion(kind, text, "Mild edema.", readings=readings, corpus=Corpus([("Mild edema.",)]))


def read(graph=GRAPH, bert=ONES, cosine=1.0):
    return {
        "radgraph": None if graph is None else Read(GRAPH, graph),
        "bertscore_radcliq": bert,
        "chexbert_similarity": None if cosine is None else {"cosine": cosine},
    }


def test_the_metrics_put_together_what_three_annotators_read():
    v0, v1 = get("radcliq_v0"), get("radcliq_v1")
    needed = (*read_by("radgraph"), *comparisons("bertscore_radcliq", "chexbert_similarity"))
    assert v1.requires == v0.requires == needed
    assert not v0.higher_is_better
    assert not v1.higher_is_better
    same = pair("Mild edema.", read())
    assert v1.function(same) == v1.best == pytest.approx(-1.4407, abs=5e-5)
    assert v0.function(same) == v0.best == pytest.approx(-0.2421, abs=5e-5)
    nothing = {"precision": 0.0, "recall": 0.0, "f1": rescaled(BertScores(0, 0, 0), DISTILROBERTA_5).f1}
    empty = pair("", read(NO_GRAPH, nothing, 0.0))
    assert v1.function(empty) == v1.worst
    assert v0.function(empty) == v0.worst
    other = pair("No edema.", read(bert=ONES | {"f1": 0.3}, cosine=0.4))
    assert v0.function(other) == radcliq_of(
        "v0", radgraph_combined=1, bertscore=0.3, chexbert_similarity=0.4, bleu_2=bleu_2("Mild edema.", "No edema.")
    )


@pytest.mark.parametrize("lack", [{"graph": None}, {"bert": None}, {"bert": ONES | {"f1": None}}, {"cosine": None}])
def test_radcliq_is_not_judged_where_a_part_is_not(lack):
    assert math.isnan(get("radcliq_v1").function(pair("Edema.", read(**lack))))
    assert math.isnan(get("radcliq_v1").function(pair("4", read(), kind="number")))


@pytest.mark.parametrize(
    ("name", "annotator", "part", "worst"),
    [
        ("bertscore", "bertscore", "f1", 0),
        ("bertscore_precision", "bertscore", "precision", 0),
        ("bertscore_recall", "bertscore", "recall", 0),
        ("bertscore_radeval", "bertscore_radeval", "f1", -1.9958),
        ("bertscore_radcliq", "bertscore_radcliq", "f1", -5.5502),
    ],
)
def test_bertscores_are_what_their_annotator_found(name, annotator, part, worst):
    found = get(name)
    assert found.requires == comparisons(annotator)
    assert found.worst == pytest.approx(worst, abs=5e-5)
    reading = {"precision": 0.1, "recall": 0.2, "f1": 0.3}
    assert found.function(pair("Edema.", {annotator: reading})) == reading[part]
    assert math.isnan(found.function(pair("Edema.", {annotator: None})))
    assert math.isnan(found.function(pair("Edema.", {annotator: dict.fromkeys(reading)})))
    assert math.isnan(found.function(pair("4", {annotator: reading}, kind="number")))


def rows(*values):
    count = len(values)
    name = np.full(count, "radcliq_v1")
    return ScoreTable(np.arange(count), name, name, np.array(values, dtype=float), name, {}, count, {})


def test_the_inverse_is_one_over_the_mean_where_that_means_something():
    inverse = get("inverse_radcliq_v1")
    assert inverse.function(rows(1.0, math.nan, 3.0)) == 0.5
    assert math.isnan(inverse.function(rows(-2.0, 1.0)))
    assert math.isnan(inverse.function(rows(-1.0, 1.0)))
    assert math.isnan(inverse.function(rows(math.nan)))
    many = inverse.total(np.array([[2.0, 4.0], [-2.0, 4.0], [0.0, 0.0]]))
    assert many == pytest.approx([2, math.nan, math.nan], nan_ok=True)
