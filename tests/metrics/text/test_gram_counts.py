"""N-grams of many texts in one pass: against counters, and that no text's numbers depend on the others."""

import math
from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.errors import CaseError
from medimg_eval.metrics import get
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.nlp import Batch, Corpus
from medimg_eval.metrics.text.cider import Consensus
from medimg_eval.metrics.text.gram_counts import TOGETHER, Known, Pairing, count_together
from medimg_eval.metrics.text.word_overlap import counts_of_many

WORDS = st.lists(st.sampled_from("abcdefg"), max_size=8).map(tuple)
PAIRINGS = st.lists(st.builds(Pairing, WORDS, st.lists(WORDS, min_size=1, max_size=3)), max_size=6)


def grams_of(text, n):
    return Counter(tuple(text[at : at + n]) for at in range(len(text) - n + 1))


@given(PAIRINGS)
@settings(deadline=None, max_examples=60)
def test_counts_of_each_text_equal_a_counter(pairings):
    for counts in count_together(pairings):
        texts = [text for pairing in pairings for text in (pairing.text, *pairing.references)]
        for place, text in enumerate(texts):
            own = counts.text == place
            expected = sorted(times for n in range(1, 5) for times in grams_of(text, n).values())
            assert sorted(counts.times[own].tolist()) == expected
        # The same n-gram has one number in all texts, others have others.
        held = set().union(*(grams_of(text, n) for text in texts for n in range(1, 5)))
        assert len(set(counts.gram.tolist())) == len(held)


@given(PAIRINGS, PAIRINGS.filter(bool))
@settings(deadline=None, max_examples=60)
def test_what_is_counted_beside_a_text_changes_nothing_of_it(pairings, others):
    """To the last bit, and beyond what is counted in one pass."""
    consensus = Consensus.of([pairing.references for pairing in others])
    many = [*pairings, *others] * (TOGETHER // len([*pairings, *others]) + 2)
    assert consensus.scores(many) == [consensus.scores([pairing])[0] for pairing in many]
    assert counts_of_many(many) == [counts_of_many([pairing])[0] for pairing in many]


def test_no_texts_and_empty_texts_are_counted():
    assert list(count_together([])) == []
    assert Consensus.of([]).scores([]) == []
    assert Consensus.of([[()]]).scores([Pairing((), [()])]) == [0.0]
    (found,) = counts_of_many([Pairing((), [(), ("a",)])])
    assert found == ((0, 0, 0, 0), 0, 0)


def test_words_that_a_set_lacks_have_numbers_behind_its_own():
    known = Known({"a": 0}, Consensus.of([[("a",)]]).known.grams, (0, 1, 1, 1, 1))
    (counts,) = count_together([Pairing(("a", "x", "x"), [("x", "a")])], known)
    assert counts.gram.min() == 0
    assert (counts.gram[counts.text == 1] >= 0).all()
    assert counts.times.tolist().count(2) == 1  # "x" twice


TEXTS = [("No effusion.", ["No effusion."]), ("Large heart, no", ["Heart enlarged.", "Large heart"]), ("", ["Clear."])]


def made(batch, corpus):
    """Pairs of several kinds, as a task makes them."""
    pairs = [AnsweredQuestion("report", text, right, corpus=corpus, batch=batch) for text, right in TEXTS]
    pairs += [
        replace(pairs[1], language="zh", output="无积液", value="无积液。"),
        replace(pairs[1], clean="r2gen_iu"),
        AnsweredQuestion("choice", "A", "A", options={"A": "x", "B": "y"}, batch=batch),
        AnsweredQuestion("report", "Nothing is right.", [" "], corpus=corpus, batch=batch),
        Unreadable("report", "x", ["x"], corpus=corpus, batch=batch),
    ]
    return pairs


class Unreadable(AnsweredQuestion):
    """A pair of a damaged record."""

    @property
    def references(self):
        raise CaseError("damaged")


def test_metrics_of_a_batch_are_those_of_each_alone():
    corpus = Corpus([tuple(right) for _, right in TEXTS])
    batch = Batch()
    alone, together = made(None, corpus), made(batch, corpus)
    batch.pairs = dict(enumerate(together))
    for name, arguments in (("cider_d", ()), ("bleu_matches", (2,)), ("sentence_bleu", (1,)), ("bleu_13a_words", ())):
        judge = get(name).function
        for one, other in zip(alone[:-1], together[:-1], strict=True):
            expected, found = judge(one, *arguments), judge(other, *arguments)
            assert found == expected or (math.isnan(found) and math.isnan(expected))
    # With the weights of the set at hand, the counts of BLEU are those of CIDEr-D, too.
    later = Batch()
    counted_once = made(later, corpus)
    later.pairs = dict(enumerate(counted_once))
    assert get("bleu_matches").function(counted_once[0], 2) == get("bleu_matches").function(alone[0], 2)
    measured_by = [key[0].__name__ for key in counted_once[1].measured]
    assert measured_by == ["_cider_values", "_counts_of"]
    for one, other in zip(alone[:-1], counted_once[:-1], strict=True):
        for name in ("cider_d", "bleu_words"):
            expected, found = get(name).function(one), get(name).function(other)
            assert found == expected or (math.isnan(found) and math.isnan(expected))
    # A copy that says something else has values of its own.
    changed = replace(together[0], output="Large effusion.", outputs=())
    assert get("bleu_matches").function(changed, 1) == 1.0
