"""Tokenisers of languages, and whether a text is English."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from medimg_eval.errors import UsageError
from medimg_eval.metrics.nlp import TOKENISER_OF, TOKENISERS, check_language, in_english, is_english, letters

LABELER = Path(__file__).parents[1] / "reports/labeler"
KEY = json.loads((LABELER / "report_key.json").read_text(encoding="utf-8"))
LINES = [line.partition(" => ")[0] for line in (LABELER / "report_rules_mentions.txt").read_text("utf-8").splitlines()]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [  # what sacreBLEU 2.6.0 prints
        ("zh", "右肺见12mm结节，CT值1.5。", "右 肺 见 12mm 结 节 ， CT 值 1.5 。"),
        ("zh", "ab-3,c (SUV 2.5).", "ab-3 , c ( SUV 2.5 ) ."),
        ("zh", "“结节”–无", "“ 结 节 ” – 无"),
        ("intl", "Kein Erguss, SUV 2,5 (±0.1).", "Kein Erguss , SUV 2,5 ( ± 0.1 ) ."),
        ("intl", "l'épanchement: 3%… «non»", "l ' épanchement : 3 % … « non »"),
        ("intl", "Im Jahr 2020.", "Im Jahr 2020."),
        ("char", "肺 ab1", "肺 a b 1"),
        ("char", "폐 결절", "폐 결 절"),
    ],
)
def test_words_are_those_of_sacrebleu(name, text, words):
    assert TOKENISERS[name](text) == tuple(words.split())


def test_letters_leave_marks_out_and_take_lower_case():
    assert letters("폐 결절, CT.") == ("폐", "결", "절", "c", "t")


def test_every_language_has_a_tokeniser_and_chinese_is_not_cn():
    assert set(TOKENISER_OF.values()) == set(TOKENISERS)
    check_language("en")
    with pytest.raises(UsageError, match="ISO 639-1"):
        check_language("cn")


@pytest.mark.parametrize(
    "text",
    [
        *("Kein Pneumothorax.", "Erguss rechts.", "Pas de pneumothorax.", "Sin neumotórax.", "Geen pneumothorax."),
        *(
            "Senza versamento.",
            "Sem derrame pleural.",
            "Ingen pneumothorax.",
            "Brak odmy.",
            "右肺结节",
            "Плевра чистая",
        ),
        *("기흉 없음", "気胸なし", "لا يوجد استرواح الصدر"),
    ],
)
def test_other_languages_are_not_english(text):
    assert not is_english(text)
    assert not in_english("en", ["No effusion.", text])


@pytest.mark.parametrize(
    "text", ["", "Pneumothorax", "ET tube in place.", "De novo mass.", "3,5 cm", "Café-au-lait of the skin."]
)
def test_short_english_texts_are_english(text):
    assert is_english(text)
    assert in_english("en", [text])
    assert not in_english("de", [text])


def test_no_english_sentence_that_the_rules_were_tried_on_is_taken_for_another_language():
    assert [text for text in [*LINES, *(text for _, text, _ in KEY)] if not is_english(text)] == []
