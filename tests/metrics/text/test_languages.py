"""Scores of words in languages other than English, by hand."""

from __future__ import annotations

import pytest

from medimg_eval.errors import UsageError
from medimg_eval.metrics import text_scores
from medimg_eval.metrics.text.texts import told_in, unserved

RIGHT = ["右肺上叶见一枚结节，边界清楚。", "心脏大小正常，未见胸腔积液。"]
WRITTEN = ["右肺上叶见一枚小结节，边界清楚。", "心脏大小正常，未见胸腔积液。"]


def test_near_identical_chinese_sentences_score_near_1_in_chinese_and_0_in_english():
    names = ["bleu@1", "cider_d", "rouge_l_coco"]
    assert text_scores(RIGHT, WRITTEN, names).values["bleu@1"] < 0.51
    chinese = text_scores(RIGHT, WRITTEN, names, language="zh")
    # The first text has one character more than 15 right ones; the second is right: 14 of 14.
    assert chinese.values["bleu@1"] == pytest.approx(29 / 30)
    precision, recall = 15 / 16, 1
    coco = (1 + 1.2**2) * precision * recall / (recall + 1.2**2 * precision)
    assert chinese.values["rouge_l_coco"] == pytest.approx((coco + 1) / 2)
    assert chinese.values["cider_d"] > 8
    assert "|tokeniser:zh|" in chinese.signatures["bleu@1"]
    assert "|language:zh|" in chinese.signatures["bleu@1"]


def test_english_is_the_default_and_is_not_in_signatures():
    texts = ["Small effusion on the left."], ["Effusion on the left."]
    assert text_scores(*texts).values == text_scores(*texts, language="en").values
    assert "language" not in str(text_scores(*texts))


@pytest.mark.parametrize(
    ("language", "text"), [("ja", "右肺に結節を認める"), ("ko", "우폐에 결절이 있다"), ("de", "Erguss links.")]
)
def test_a_text_against_itself_has_the_best_value_in_every_language(language, text):
    names = ["bleu@4", "sentence_bleu@2", "rouge_1", "rouge_l", "rouge_l_coco", "length_ratio"]
    names = names if language != "de" else [name for name in names if name != "bleu@4"]
    values = text_scores([text], [text], names, language=language).values
    assert values == pytest.approx(dict.fromkeys(names, 1.0))


def test_korean_is_split_into_letters_so_that_an_ending_does_not_cost_the_whole_word():
    right, written = ["결절이"], ["결절은"]
    assert text_scores(right, written, ["rouge_1"]).values["rouge_1"] == 0
    assert text_scores(right, written, ["rouge_1"], language="ko").values["rouge_1"] == pytest.approx(2 / 3)


def test_stems_are_those_of_english_words_alone():
    def meteor(language: str) -> float:
        return text_scores(["hopes"], ["hoped"], ["meteor_no_synonyms"], language=language).values["meteor_no_synonyms"]

    assert meteor("en") == pytest.approx(0.5)
    assert meteor("de") == 0


@pytest.mark.parametrize(
    ("metric", "language"),
    [("rouge_l_stem", "zh"), ("rouge_1_stem", "de"), ("bleu_13a@4", "zh"), ("bleu_13a_exp@1", "ko")],
)
def test_what_cannot_serve_a_language_is_refused(metric, language):
    with pytest.raises(UsageError, match=f"{metric}.*{language}"):
        text_scores(RIGHT, WRITTEN, [metric], language=language)


def test_13a_serves_languages_with_blanks():
    same = ["Kein Erguss."]
    assert unserved(["bleu_13a@4"], "de") == unserved(["rouge_l_stem"], "en") == ""
    assert text_scores(same, same, ["bleu_13a@1"], language="de").values["bleu_13a@1"] == 1


def test_signatures_name_the_tokeniser_of_the_language():
    assert told_in("tokeniser: single blanks, case: kept", "ko") == "tokeniser: char, case: kept, language: ko"
    assert told_in("tokeniser: 13a, case: kept", "de") == "tokeniser: 13a, case: kept, language: de"
    assert told_in("tokeniser: blanks", "en") == "tokeniser: blanks"
