"""METEOR with a WordNet: equal to NLTK's with the same files, here a few meanings in the database's format."""

import warnings
from itertools import product

import numpy as np
import pytest

from medimg_eval.errors import UsageError, UserError
from medimg_eval.evidence import TextPair
from medimg_eval.metrics import get, text_scores
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.nlp import Corpus, WordNet
from medimg_eval.metrics.text import unserved
from medimg_eval.models import WordNetMeteor

MEANINGS = {
    "noun": [["lung", "lobe"], ["fluid", "liquid", "water"], ["fluid", "smooth_liquid"], ["man", "male"], ["Heart"]],
    "verb": [["go", "move"], ["see", "observe"]],
    "adj": [["big", "large(a)"], ["large", "wide(p)"], ["fluid", "changeable"]],
    "adv": [["well", "good"]],
}
SIGNS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
EXCEPTIONS = {"noun": "lungses lung\n", "verb": "went go\nseen see\n", "adj": "", "adv": ""}
LICENCE = "  1 WordNet 3.0 Copyright, invented for a test\n"
TEXTS = (
    "the lung holds liquid",
    "lobes hold fluids and waters",
    "a large heart was seen",
    "men observe big hearts",
    "it went well in the wider lungses",
    "changeable water moves",
)


@pytest.fixture
def folder(tmp_path):
    """Writes the few meanings as WordNet's database, in a folder of NLTK's data."""
    place = tmp_path / "corpora" / "wordnet"
    place.mkdir(parents=True)
    for part, meanings in MEANINGS.items():
        data, held = LICENCE, {}
        for names in meanings:
            for name in names:
                held.setdefault(name.partition("(")[0].lower(), []).append(f"{len(data):08d}")
            words = " ".join(f"{name} 0" for name in names)
            data += f"{len(data):08d} 00 {SIGNS[part]} {len(names):02x} {words} 000 | invented\n"
        (place / f"data.{part}").write_text(data)
        lines = [
            f"{name} {SIGNS[part]} {len(at)} 0 {len(at)} 0 {' '.join(at)}  \n" for name, at in sorted(held.items())
        ]
        (place / f"index.{part}").write_text(LICENCE + "".join(lines))
        (place / f"{part}.exc").write_text(EXCEPTIONS[part])
    (place / "lexnames").write_text("00 all 1\n")
    return place


def asked(folder):
    annotator = WordNetMeteor(str(folder))
    annotator.name = "wordnet"
    return annotator


def test_values_equal_nltks_with_the_same_files(folder, monkeypatch):
    data = pytest.importorskip("nltk.data")
    from nltk.corpus.reader.wordnet import WordNetCorpusReader
    from nltk.translate.meteor_score import meteor_score

    monkeypatch.setattr(data, "path", [str(folder.parents[1])])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        monkeypatch.setattr(WordNetCorpusReader, "map_wn", lambda *_: None)
        theirs = WordNetCorpusReader(str(folder), None)
    pairs = [TextPair(*both) for both in product(TEXTS, TEXTS)]
    found = asked(folder).compare(pairs, Corpus([]))
    expected = [meteor_score([pair.reference.split()], pair.prediction.split(), wordnet=theirs) for pair in pairs]
    assert [one["meteor"] for one in found] == pytest.approx(expected, abs=1e-12)
    without = text_scores(*zip(*pairs, strict=True), ["meteor_no_synonyms"]).per_report["meteor_no_synonyms"]
    assert np.count_nonzero(np.array(expected) > without) == 7


def test_synonyms_are_single_words_of_all_parts_of_speech_and_of_base_forms(folder):
    found = WordNet(folder).synonyms
    assert found("fluid") == {"fluid", "liquid", "water", "changeable"}
    assert found("fluids") == {"fluids", "fluid", "liquid", "water"}
    assert found("went") == {"went", "go", "move"}
    assert found("larger") == {"larger", "big", "large", "wide"}
    assert found("unheard") == {"unheard"}


def test_the_metric_reads_what_the_annotator_found():
    declared = get("meteor_wordnet")
    pair = AnsweredQuestion("report", "lung", ["lung"], readings={"wordnet": {"meteor": 0.25}})
    assert declared.function(pair) == 0.25
    assert [need.provider for need in declared.requires] == ["wordnet"]


def test_it_is_refused_without_a_wordnet_and_in_other_languages(tmp_path):
    with pytest.raises(UserError, match=r"lacks its weights: .*WordNet.*set annotators\.wordnet\.folder=PATH"):
        asked(tmp_path).check_ready()
    with pytest.raises(UsageError, match="annotator 'wordnet'"):
        text_scores(["lung"], ["lung"], ["meteor_wordnet"])
    assert "synonyms of English words" in unserved(["meteor_wordnet"], "de")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("index.noun", "fluid n 2\n", "the line of 'fluid' is not as WordNet's are"),
        ("data.noun", "nothing\n" * 99, "has no meaning at byte"),
    ],
)
def test_files_that_are_not_wordnets_are_named(folder, name, text, said):
    (folder / name).write_text(text)
    with pytest.raises(UserError, match=rf"{name}.*{said}"):
        WordNet(folder).synonyms("fluid")
