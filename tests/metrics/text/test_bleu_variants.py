"""BLEU by the tokenisers and smoothings of sacreBLEU and NLTK: equal to these packages on random texts."""

import numpy as np
import pytest

from medimg_eval.errors import UsageError
from medimg_eval.metrics import get, text_scores

WORDS = (
    "no",
    "acute",
    "Edema",
    "edema.",
    "3.5",
    "cm,",
    "the",
    "(left)",
    "1.",
    "x-ray",
    "T2/FLAIR",
    "5%",
    "<",
    "größer",
)
SMOOTHINGS = ("none", "exp", "floor", "add-k")
TOKENISERS = ("13a", "intl")


def texts(seed: int, number: int, longest: int = 14) -> list[str]:
    """Random texts of a few words, of which some are empty."""
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(WORDS, size=draw.integers(0, longest + 1))) for _ in range(number)]


RIGHT = [text or "none" for text in texts(1, 200)]
WRITTEN = texts(2, 200)


def named(tokeniser: str, smoothing: str) -> str:
    return f"bleu_{tokeniser}" + ("" if smoothing == "none" else f"_{smoothing.replace('-', '_')}")


def sacrebleu_of(**options):
    sacrebleu = pytest.importorskip("sacrebleu", reason="sacrebleu is not installed: `pip install sacrebleu`")
    return sacrebleu.BLEU(**options)


@pytest.mark.parametrize("tokeniser", TOKENISERS)
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("order", [2, 4])
def test_sets_equal_sacrebleus_corpus_bleu(tokeniser, smoothing, order):
    judge = sacrebleu_of(tokenize=tokeniser, smooth_method=smoothing, max_ngram_order=order)
    name = f"{named(tokeniser, smoothing)}@{order}"
    for some in (slice(None), slice(40), slice(3)):
        right, written = RIGHT[some], WRITTEN[some]
        value = text_scores(right, written, [name]).values[name]
        assert value == pytest.approx(judge.corpus_score(written, [right]).score / 100, abs=1e-12)


@pytest.mark.parametrize("tokeniser", TOKENISERS)
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("order", [1, 4])
def test_answers_equal_sacrebleus_sentence_bleu(tokeniser, smoothing, order):
    judge = sacrebleu_of(tokenize=tokeniser, smooth_method=smoothing, max_ngram_order=order, effective_order=True)
    name = f"sentence_{named(tokeniser, smoothing)}@{order}"
    several = [[one, other] for one, other in zip(RIGHT, RIGHT[::-1], strict=True)]
    for references in ([[one] for one in RIGHT], several):
        expected = [
            judge.sentence_score(text, some).score / 100 for text, some in zip(WRITTEN, references, strict=True)
        ]
        np.testing.assert_allclose(text_scores(references, WRITTEN, [name]).per_report[name], expected, atol=1e-12)


@pytest.mark.parametrize("order", [1, 2, 4])
def test_method1_equals_nltks(order):
    bleu = pytest.importorskip("nltk.translate.bleu_score")
    smooth, weights = bleu.SmoothingFunction().method1, (1 / order,) * order
    expected = [
        bleu.sentence_bleu([right.lower().split()], text.lower().split(), weights, smooth) if text else 0
        for right, text in zip(RIGHT, WRITTEN, strict=True)
    ]
    name = f"sentence_bleu_method1@{order}"
    np.testing.assert_allclose(text_scores(RIGHT, WRITTEN, [name]).per_report[name], expected, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "value"),  # sacreBLEU 2.6.0 and NLTK 3.10.4 of "Edema is seen." beside "No edema is seen today."
    [
        ("sentence_bleu_13a@4", 0.0),
        ("sentence_bleu_13a_exp@4", 0.21444097124017666),
        ("sentence_bleu_13a_floor@4", 0.11404605374835303),
        ("sentence_bleu_13a_add_k@4", 0.3032653298563168),
        ("sentence_bleu_intl_exp@4", 0.21444097124017666),
        ("sentence_bleu_method1@4", 0.12336445138236939),
        ("bleu_13a_floor@2", 0.30326532985631666),
        ("bleu_intl_add_k@2", 0.37142265741240243),
    ],
)
def test_values(name, value):
    scores = text_scores(["No edema is seen today."], ["Edema is seen."], [name])
    assert scores.values[name] == pytest.approx(value, abs=1e-12)


def test_signatures_name_tokeniser_smoothing_and_effective_order():
    names = ["bleu_intl_floor@4", "sentence_bleu_13a_add_k@4", "sentence_bleu_method1@4"]
    told = text_scores(RIGHT[:3], WRITTEN[:3], names).signatures
    assert "|tokeniser:intl|case:kept|aggregation:counts of the set|smoothing:floor[0.1]|" in told[names[0]]
    assert "|tokeniser:13a|case:kept|aggregation:mean|smoothing:add-k[1]|effective order:yes|" in told[names[1]]
    assert "|tokeniser:blanks|case:lower|aggregation:mean|smoothing:method1[0.1]|" in told[names[2]]


def test_intl_leaves_out_the_blanks_at_the_end():
    same = text_scores(["in 2019"], ["in 2019. "], ["bleu_intl_words"]).per_report
    assert same["bleu_intl_words"] == 2  # as of "in 2019.", where no other sign follows the point


@pytest.mark.parametrize("name", ["bleu_intl@4", "sentence_bleu_13a_exp@4"])
def test_words_that_need_blanks_are_refused_where_there_are_none(name):
    with pytest.raises(UsageError, match="which needs blanks"):
        text_scores(["右肺"], ["右肺"], [name], language="zh")
    assert get(name).parameter == "n"
    assert text_scores(["Kein Erguss"], ["Kein Erguss"], [name], language="de").values[name] >= 0
