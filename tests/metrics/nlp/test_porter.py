"""The stemmer against NLTK's, over the words of this project's docs with many endings."""

import re
from pathlib import Path

import pytest

import medimg_eval
from medimg_eval.metrics.nlp.porter import stem

DOCS = Path(medimg_eval.__file__).parents[1] / "docs"
ENDINGS = [
    *("s", "es", "ed", "ing", "ly", "y", "ies", "ied", "eed", "ational", "tional", "enci", "anci", "izer", "abli"),
    *("bli", "alli", "entli", "eli", "ousli", "ization", "ation", "ator", "alism", "iveness", "fulness", "ousness"),
    *("aliti", "iviti", "biliti", "fulli", "logi", "icate", "ative", "alize", "iciti", "ical", "ful", "ness", "al"),
    *("ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "sion", "tion", "ou", "ism", "ate"),
    *("iti", "ous", "ive", "ize", "e", "ll", "ss", "zz"),
]
APART = 24
"""Each word gets every 24th ending, from one place on further than the word before it."""


def test_stems_are_those_of_nltk():
    theirs = pytest.importorskip("nltk.stem").PorterStemmer().stem
    text = " ".join(page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md"))
    plain = sorted(set(re.findall("[a-z]+", text.lower())))
    words = plain + [word + end for place, word in enumerate(plain) for end in ENDINGS[place % APART :: APART]]
    assert len(words) > 10_000
    assert [(word, stem(word)) for word in words if stem(word) != theirs(word)] == []
