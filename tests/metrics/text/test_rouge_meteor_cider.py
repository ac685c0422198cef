"""Overlap of texts: by hand, against brute force, against torchmetrics, and its edge cases."""

import itertools
import math
import random
from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics.functional.text import bleu_score

from medimg_eval.errors import UsageError
from medimg_eval.metrics import ScoreTable, available, get, parse
from medimg_eval.metrics.answers.extraction import Extraction
from medimg_eval.metrics.answers.reply import AnsweredQuestion
from medimg_eval.metrics.nlp.corpus import Corpus
from medimg_eval.metrics.nlp.porter import stem
from medimg_eval.metrics.nlp.tokenizers import blank_words, normalised, split_words, stemmed_words, words, words_13a
from medimg_eval.metrics.text.cider import Consensus
from medimg_eval.metrics.text.gram_counts import Pairing
from medimg_eval.metrics.text.meteor import meteor_of
from medimg_eval.metrics.text.rouge import rouge_longest, rouge_n
from medimg_eval.metrics.text.word_overlap import aligned_words, common_subsequence, counts_of_many, overlap

FEW = settings(deadline=None, max_examples=30)
SAID = st.lists(st.sampled_from("abcd"), max_size=9)
CASE = (
    *("rouge_1", "rouge_2", "rouge_l", "rouge_1_stem", "rouge_2_stem", "rouge_l_stem", "rouge_l_coco"),
    *("meteor_no_synonyms", "sentence_bleu@1", "sentence_bleu@4"),
)
CHINESE = "右肺上叶可见结节。"
ARABIC = "لا يوجد انصباب جنبي في الصدر"


def bleu(rows, n):
    return get("bleu").function(rows, n)


def bleu_13a(rows, n):
    return get("bleu_13a").function(rows, n)


def pair(said, right, kind="open"):
    """A reply from which this text was taken."""
    made = AnsweredQuestion(kind, said or "", right)
    made.__dict__["extraction"] = Extraction(said, "test", "" if said else "empty")
    return made


def value(name, said, right, kind="open"):
    found, parameter = parse(name)
    asked = pair(said, right, kind)
    return found.function(asked) if parameter is None else found.function(asked, parameter)


def rows_of(name, pairs):
    """The rows that cases leave for a summary of texts."""
    rows = [(at, need, value(need, *one)) for at, one in enumerate(pairs) for need in get(name).needs]
    case, metric, values = zip(*rows, strict=True)
    return ScoreTable(
        np.array(case),
        np.array(metric),
        np.full(len(rows), "open"),
        np.array(values, float),
        np.full(len(rows), "right"),
        {},
        len(pairs),
        {},
    )


def sentences(number, seed=0):
    """Pairs of made-up sentences, the one a damaged copy of the other."""
    rng = random.Random(seed)  # noqa: S311 - texts, not secrets
    vocabulary = [f"w{index}" for index in range(30)]
    for _ in range(number):
        right = [rng.choice(vocabulary) for _ in range(rng.randint(6, 25))]
        said = [word if rng.random() < 0.7 else rng.choice(vocabulary) for word in right if rng.random() < 0.9]
        yield " ".join(said), " ".join(right)


def slow_common_subsequence(one, other):
    @cache
    def below(i, j):
        if i == len(one) or j == len(other):
            return 0
        if one[i] == other[j]:
            return 1 + below(i + 1, j + 1)
        return max(below(i + 1, j), below(i, j + 1))

    return below(0, 0)


def slow_overlap(one, other, n):
    grams = [[tuple(text[at : at + n]) for at in range(len(text) - n + 1)] for text in (one, other)]
    return (Counter(grams[0]) & Counter(grams[1])).total()


def test_words_of_each_tokeniser():
    assert words("No focal consolidation, 3.5-cm X-ray_A.") == (
        *("no", "focal", "consolidation", "3", "5", "cm", "x", "ray", "a"),
    )
    assert split_words("  No  effusion.\n") == ("No", "effusion.")
    assert words_13a('Size 3.5 cm, "stable" (5-mm).\nNo\u00a0change &amp; clear/') == (
        *("Size", "3.5", "cm", ",", '"', "stable", '"', "(", "5", "-", "mm", ")", "."),
        *("No", "change", "&", "clear", "/"),
    )
    assert blank_words("No  effusion.\nClear ") == ("No", "", "effusion.\nClear", "")
    assert blank_words(" \n ") == ()
    assert stemmed_words("The effusions enlarged") == ("the", "effus", "enlarg")
    assert words_13a("line-\n") == words_13a("line-") == ("line-",)
    assert words(CHINESE) == tuple("右肺上叶可见结节")
    assert words(ARABIC) == tuple(ARABIC.split())
    assert words("Ärzte ＣＴ １２") == ("ärzte", "ct", "12")


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("The left  lung.", "left lung"),
        ("Hepatitis A", "hepatitis a"),
        ("an X-ray, of a hand", "x ray of hand"),
        ("-3.5 mm", "-3.5 mm"),
        ("−3.5", "-3.5"),
        ("50%, <5", "50% <5"),
        ("T1/T2 (weighted)", "t1 t2 weighted"),
        ("ＡＢＣ。", "abc"),
        ("...", "..."),
        ("", ""),
    ],
)
def test_what_is_left_of_a_short_answer(text, plain):
    assert normalised(text) == plain


def test_signs_and_points_tell_numbers_apart():
    assert len({normalised(text) for text in ("35", "3.5", "-3.5", "3 5", "< 35", "> 35", "35 %")}) == 7


@given(SAID, SAID)
@FEW
def test_the_common_subsequence_equals_brute_force(one, other):
    assert common_subsequence(one, other) == slow_common_subsequence(tuple(one), tuple(other))


def test_the_common_subsequence_of_texts_longer_than_a_machine_word():
    rng = random.Random(1)  # noqa: S311 - texts, not secrets
    one, other = ([rng.choice("abcdefgh") for _ in range(size)] for size in (300, 170))
    table = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i, a in enumerate(one):
        for j, b in enumerate(other):
            table[i + 1][j + 1] = table[i][j] + 1 if a == b else max(table[i][j + 1], table[i + 1][j])
    assert common_subsequence(one, other) == common_subsequence(other, one) == table[-1][-1]


@given(SAID, SAID, st.integers(1, 4))
@FEW
def test_shared_n_grams_equal_brute_force(one, other, n):
    assert overlap(tuple(one), tuple(other), n) == slow_overlap(one, other, n)


@given(SAID, st.lists(SAID, min_size=1, max_size=3))
@FEW
def test_clipped_counts_over_several_references_equal_brute_force(said, references):
    (found,) = counts_of_many([Pairing(tuple(said), [tuple(one) for one in references])])
    for n in range(1, 5):
        grams = Counter(tuple(said[at : at + n]) for at in range(len(said) - n + 1))
        held = [Counter(tuple(one[at : at + n]) for at in range(len(one) - n + 1)) for one in references]
        assert found.matches[n - 1] == sum(min(count, max(one[gram] for one in held)) for gram, count in grams.items())
    assert found.words == len(said)
    assert found.due == min((abs(len(one) - len(said)), len(one)) for one in references)[1]


def test_bleu_by_hand():
    """Papineni's example: "the" seven times has 2 of 7 clipped, and two short answers share one brevity penalty."""
    assert value("sentence_bleu@1", "the " * 7, "the cat is on the mat") == pytest.approx(2 / 7)
    rows = rows_of("bleu", [("no effusion", "no effusion seen"), ("clear lungs now", "lungs clear now today")])
    assert bleu(rows, 1) == pytest.approx(math.exp(1 - 7 / 5))
    assert bleu(rows, 2) == pytest.approx(math.sqrt(1 * 1 / 3) * math.exp(1 - 7 / 5))
    tiny = 1e-15 / (1 + 1e-9)
    assert bleu(rows, 3) == pytest.approx((1 * 1 / 3 * tiny) ** (1 / 3) * math.exp(1 - 7 / 5))


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_bleu_of_a_test_set_equals_torchmetrics(n):
    pairs = list(sentences(40))
    theirs = bleu_score([said for said, _ in pairs], [[right] for _, right in pairs], n_gram=n)
    assert bleu(rows_of("bleu", pairs), n) == pytest.approx(float(theirs), abs=1e-6)
    assert bleu_13a(rows_of("bleu_13a", pairs), n) == pytest.approx(float(theirs), abs=1e-6)


def test_bleu_with_several_references_equals_torchmetrics():
    """The first is the nearest in length: of two that are as near, COCO and we take the shorter."""
    pairs = [
        (said, [right, f"{right} {other}"])
        for (said, right), (_, other) in zip(sentences(20), sentences(20, 5), strict=True)
    ]
    theirs = bleu_score([said for said, _ in pairs], [right for _, right in pairs])
    assert bleu(rows_of("bleu", pairs), 4) == pytest.approx(float(theirs), abs=1e-6)


def test_bleu_of_a_single_text_is_that_of_a_test_set_of_one():
    for said, right in sentences(10, seed=3):
        for n in (1, 2, 4):
            assert value(f"sentence_bleu@{n}", said, right) == pytest.approx(
                bleu(rows_of("bleu", [(said, right)]), n), abs=1e-4
            )


def test_bleu_of_the_set_is_not_the_mean_over_texts():
    pairs = list(sentences(20))
    mean = np.mean([value("sentence_bleu@4", *one) for one in pairs])
    assert abs(mean - bleu(rows_of("bleu", pairs), 4)) > 0.005


def test_a_case_drawn_twice_counts_twice_in_bleu():
    pairs = list(sentences(6))
    assert bleu(rows_of("bleu", [*pairs, pairs[0]]), 4) != bleu(rows_of("bleu", pairs), 4)
    assert bleu(rows_of("bleu", pairs * 2), 4) == pytest.approx(bleu(rows_of("bleu", pairs), 4))


def test_case_and_punctuation_in_each_bleu():
    pairs = [("No effusion seen today.", "No effusion seen today .")]
    assert bleu(rows_of("bleu", pairs), 1) == pytest.approx(3 / 4 * math.exp(1 - 5 / 4))
    assert bleu_13a(rows_of("bleu_13a", pairs), 4) == 1.0
    assert bleu(rows_of("bleu", [("NO effusion", "no effusion")]), 1) == 0.5
    assert value("sentence_bleu@1", "NO effusion", "no effusion") == 1.0


@pytest.mark.parametrize("name", ["bleu@5", "bleu@0", "bleu@1.5", "bleu_13a@0"])
def test_an_order_that_bleu_lacks_is_refused(name):
    found, n = parse(name)
    with pytest.raises(UsageError, match="to be 1, 2, 3 or 4"):
        found.function(rows_of(found.name, [("a", "a")]), n)
    with pytest.raises(UsageError, match="at most 4"):
        parse("sentence_bleu@5")
    with pytest.raises(UsageError, match="to be 1, 2, 3 or 4"):
        value("bleu_matches@0", "a", "a")


def test_bleu_where_no_n_gram_matches_is_that_of_pycocoevalcap():
    """Golden: pycocoevalcap 1.2 on the same pairs."""
    rows = rows_of(
        "bleu", [("clear lungs", "no effusion today"), ("a g c i j", "a b c d e"), ("no change", "no change")]
    )
    assert [bleu(rows, n) for n in (1, 2)] == pytest.approx([0.3977063629, 0.2435444142], abs=1e-9)
    assert [bleu(rows, n) for n in (3, 4)] == pytest.approx([2.6057e-06, 9.4e-09], abs=1e-9)
    assert bleu(rows_of("bleu", [("a b c", "a b c")]), 4) == pytest.approx(1e-6**0.25)


def test_bleu_smoothed_as_sacrebleu_by_hand():
    """One word of five matches and nothing longer: 1/5, 1/(2 4), 1/(4 3), 1/(8 2)."""
    rows = rows_of("bleu_13a_exp", [("a g h i j", "a b c d e")])
    assert get("bleu_13a_exp").function(rows, 4) == pytest.approx((1 / 5 * 1 / 8 * 1 / 12 * 1 / 16) ** 0.25)
    for said in ("x y z v w", "", "a"):
        assert get("bleu_13a_exp").function(rows_of("bleu_13a_exp", [(said, "a b c d e")]), 4) == 0.0


@given(st.lists(st.tuples(SAID, st.lists(st.sampled_from("abcd"), min_size=1, max_size=9)), min_size=1, max_size=4))
@FEW
@pytest.mark.parametrize("name", ["bleu", "bleu_13a", "bleu_13a_exp"])
def test_bleu_of_many_sums_at_once_is_that_of_each(name, pairs):
    rows, found = rows_of(name, [(" ".join(said), " ".join(right)) for said, right in pairs]), get(name)
    sums = found.pieces(rows, 3)
    whole = sums.sum(axis=0)
    times = np.array([whole, 2 * whole, 0 * whole])
    once, twice, none = found.total(times, 3)
    assert once == found.function(rows, 3)
    assert twice == pytest.approx(once, abs=1e-5 if name == "bleu" else 0.2 if name == "bleu_13a_exp" else 1e-12)
    assert math.isnan(none)
    assert 0 <= once <= 1


@pytest.mark.parametrize("name", ["bleu", "bleu_13a", "bleu_13a_exp"])
def test_beside_bleu_stands_how_long_answers_are(name):
    rows = rows_of(name, [("a", "a b"), ("a b", "a b"), ("a b c d", "a b"), ("", "A", "choice")])
    told = get(name).remark(rows.where(~np.isnan(rows.value)), 4)
    which = "between blanks" if name == "bleu" else "by the rule 13a"
    assert told == f"words {which} for each one of the right text: median 1.00, quartiles 0.75 and 1.50"
    assert get(name).remark(rows.where(np.isnan(rows.value)), 4) == ""


def slow_cider(said, references, reports):
    """CIDEr-D from dictionaries, as its definition reads."""

    def grams(text, n):
        return Counter(tuple(text[at : at + n]) for at in range(len(text) - n + 1))

    def rarity(gram):
        having = sum(any(grams(one, len(gram))[gram] for one in report) for report in reports)
        return math.log(len(reports)) - math.log(max(1, having))

    total = 0.0
    for reference in references:
        gap = max(0, len(said) - 1) - max(0, len(reference) - 1)
        for n in range(1, 5):
            one, other = ({g: k * rarity(g) for g, k in grams(text, n).items()} for text in (said, reference))
            norms = [math.sqrt(sum(value**2 for value in vector.values())) for vector in (one, other)]
            dot = sum(min(one[gram], other[gram]) * other[gram] for gram in one if gram in other)
            total += dot / (norms[0] * norms[1]) * math.exp(-(gap**2) / 72) if all(norms) else 0.0
    return 10 * total / 4 / len(references)


@given(
    st.lists(st.lists(st.lists(st.sampled_from("abcde"), max_size=8), min_size=1, max_size=2), min_size=1, max_size=5),
    st.lists(st.sampled_from("abcdexy"), max_size=10),
)
@FEW
def test_cider_equals_its_definition(reports, said):
    found = Consensus.of([[tuple(text) for text in report] for report in reports])
    for report in reports:
        given_texts = [tuple(text) for text in report]
        (score,) = found.scores([Pairing(tuple(said), given_texts)])
        assert score == pytest.approx(slow_cider(said, report, reports), abs=1e-9)
    foreign = [("x", "a", "y"), ("b",)]
    (score,) = found.scores([Pairing(tuple(said), foreign)])
    assert score == pytest.approx(slow_cider(said, foreign, reports), abs=1e-9)


def cider(said, right, corpus):
    made = AnsweredQuestion("report", "", right, corpus=corpus)
    made.__dict__["text"] = said
    return get("cider_d").function(made)


def test_cider_by_hand_and_its_traps():
    corpus = Corpus([("a b",), ("a c",), ("d e f g",)])
    assert cider("a b", "a b", corpus) == pytest.approx(5.0)  # two words have no runs of three or four
    assert cider("d e f g", "d e f g", corpus) == pytest.approx(10.0)
    log3, log15 = math.log(3), math.log(3 / 2)
    assert cider("a", "a b", corpus) == pytest.approx(
        10 / 4 * log15 / math.hypot(log15, log3) * math.exp(-1 / 72)  # lengths are told by pairs of words: 0 and 1
    )
    assert cider("", "a b", corpus) == 0.0
    assert cider("a b", "a b", Corpus([("a b",)])) == 0.0  # log 1: nothing is rare in a set of one
    with pytest.raises(UsageError, match="which only a run gathers"):
        cider("a", "a", None)


def test_cider_depends_on_the_whole_set_and_not_on_what_is_scored_with_it():
    small = Corpus([("no effusion",), ("clear lungs",)])
    large = Corpus([("no effusion",), ("clear lungs",), ("no edema",)])
    assert cider("no edema", "no effusion", small) != pytest.approx(cider("no edema", "no effusion", large))


def test_texts_of_more_words_than_integers_hold_are_counted_too():
    long = tuple(f"w{at}" for at in range(70_000))
    (found,) = counts_of_many([Pairing(long, (long[:40_000],))])
    assert found.matches == (40_000, 39_999, 39_998, 39_997)
    assert (found.words, found.due) == (70_000, 40_000)


def test_length_ratio_by_hand():
    assert value("length_ratio", "no effusion", "no pleural effusion seen") == 0.5
    assert value("length_ratio", "no effusion seen", ["no", "no effusion", "no pleural effusion seen"]) == 1.5
    assert value("length_ratio", "", "no") == 0.0
    assert math.isnan(value("length_ratio", "no", "..."))
    ratios = [("a", "a b c d"), ("a b", "a b c d"), ("a b c d", "a b c d"), ("", "a")]
    rows = rows_of("length_ratio_quantile", ratios)
    assert [get("length_ratio_quantile").function(rows, at) for at in (0, 25, 50, 100)] == [0, 0.1875, 0.375, 1]
    with pytest.raises(UsageError, match="at most 100 per cent"):
        get("length_ratio_quantile").function(rows, 101)
    nothing = rows_of("length_ratio_quantile", [("a", "...")])
    assert math.isnan(get("length_ratio_quantile").function(nothing, 50))


def test_rouge_by_hand():
    said, right = "the cat sat on a mat", "the cat is on the mat"
    assert value("rouge_1", said, right) == pytest.approx(2 * 4 / 12)
    assert value("rouge_2", said, right) == pytest.approx(2 * 1 / 10)
    assert value("rouge_l", said, right) == pytest.approx(2 * 4 / 12)
    long, short = "no pleural effusion", "no effusion"
    precision, recall = 2 / 3, 1.0
    assert value("rouge_l", long, short) == pytest.approx(2 * precision * recall / (precision + recall))
    assert value("rouge_l_coco", long, short) == pytest.approx(2.44 * precision * recall / (recall + 1.44 * precision))


def test_cocos_rouge_takes_precision_and_recall_from_different_references():
    """Of "a b c": precision 2/3 against "a b x y z w", recall 1 against "c"."""
    found = value("rouge_l_coco", "a b c", ["a b x y z w", "c"])
    assert found == pytest.approx(2.44 * (2 / 3) * 1.0 / (1.0 + 1.44 * (2 / 3)))
    assert value("rouge_l", "a b c", ["a b x y z w", "c"]) == pytest.approx(max(2 * 2 / 9, 2 * 1 / 4))


def test_meteor_by_hand():
    """Each word takes the last free one, as NLTK has it: "the" and "the" cross, and no two matches are neighbours."""
    said, right = "on the mat sat the cat", "the cat sat on the mat"
    assert aligned_words(words(said), words(right), stem) == (6, 6)
    assert value("meteor_no_synonyms", said, right) == pytest.approx(0.5)
    assert value("meteor_no_synonyms", "effusions", "effusion") == pytest.approx(0.5)
    assert meteor_of(("a", "b"), ("a", "b")) == pytest.approx(1 - 0.5 / 8)
    precision, recall = 1 / 2, 1 / 3
    assert meteor_of(("a", "x"), ("a", "y", "z")) == pytest.approx(
        0.5 * precision * recall / (0.9 * precision + 0.1 * recall)
    )


def test_alignment_by_hand():
    assert aligned_words(("a", "b", "c"), ("a", "b", "c"), stem) == (3, 1)
    assert aligned_words(("a", "c", "b"), ("a", "b", "c"), stem) == (3, 3)
    assert aligned_words(("a", "a"), ("a",), stem) == (1, 1)
    assert aligned_words(("runs", "run"), ("run", "running"), stem) == (2, 2)
    assert aligned_words((), ("a",), stem) == (0, 0)


def slow_alignment(text, reference, stem, synonyms):
    """The pairs that NLTK's rule makes, one stage after the other, in lists."""
    left, free = list(enumerate(text)), list(enumerate(reference))
    pairs = []

    def pair_off(alike):
        for one in reversed(list(left)):
            partner = next((other for other in reversed(free) if alike(one[1], other[1])), None)
            if partner is not None:
                pairs.append((one[0], partner[0]))
                left.remove(one)
                free.remove(partner)

    pair_off(lambda one, other: one == other)
    left, free = ([(place, stem(word)) for place, word in some] for some in (left, free))
    pair_off(lambda one, other: one == other)
    if synonyms is not None:
        pair_off(lambda one, other: other in synonyms(one))
    pairs.sort()
    breaks = sum((b[0] - a[0], b[1] - a[1]) != (1, 1) for a, b in itertools.pairwise(pairs))
    return len(pairs), breaks + bool(pairs)


INFLECTED = st.lists(st.sampled_from(["run", "runs", "running", "size", "sizes", "nodule", "nodular"]), max_size=9)


@given(INFLECTED, INFLECTED, st.booleans())
@settings(deadline=None, max_examples=150)
def test_an_alignment_equals_its_rule_in_lists(one, other, with_synonyms):
    synonyms = {"run": {"size"}, "size": {"run", "nodul"}, "nodul": {"nodular"}}
    meanings = (lambda root: synonyms.get(root, set())) if with_synonyms else None
    found = aligned_words(tuple(one), tuple(other), stem, meanings)
    assert found == slow_alignment(one, other, stem, meanings)


@given(SAID, SAID)
@FEW
def test_an_alignment_uses_each_word_once(one, other):
    found = aligned_words(tuple(one), tuple(other), lambda word: word)
    assert found.matches == (Counter(one) & Counter(other)).total()
    assert bool(found.matches) <= found.chunks <= found.matches


@pytest.mark.parametrize(
    ("word", "root"),
    [
        ("caresses", "caress"),
        ("ponies", "poni"),
        ("feed", "feed"),
        ("agreed", "agre"),
        ("plastered", "plaster"),
        ("motoring", "motor"),
        ("sing", "sing"),
        ("conflated", "conflat"),
        ("hopping", "hop"),
        ("falling", "fall"),
        ("filing", "file"),
        ("happy", "happi"),
        ("sky", "sky"),
        ("relational", "relat"),
        ("triplicate", "triplic"),
        ("hopeful", "hope"),
        ("adjustment", "adjust"),
        ("adoption", "adopt"),
        ("probate", "probat"),
        ("rate", "rate"),
        ("controll", "control"),
        ("is", "is"),
    ],
)
def test_stems_of_porters_paper_which_nltk_shares(word, root):
    assert stem(word) == root


@pytest.mark.parametrize(
    ("word", "root"),
    [
        *[("skies", "sky"), ("dies", "die"), ("died", "die"), ("studied", "studi"), ("using", "use")],
        *[("enjoy", "enjoy"), ("say", "say"), ("radically", "radic"), ("hopefully", "hope"), ("news", "news")],
        *[
            ("pathology", "patholog"),
            ("possibly", "possibl"),
            ("geology", "geolog"),
            ("yyyy", "yyyi"),
            ("logy", "logi"),
        ],
    ],
)
def test_stems_that_nltk_has_of_its_own(word, root):
    assert stem(word) == root


@pytest.mark.parametrize("name", CASE)
@pytest.mark.parametrize(
    "text", ["No acute cardiopulmonary process seen .", CHINESE * 2, ARABIC, "1. Stable.\n2. No effusion."]
)
def test_an_identical_text_has_the_best_value(name, text):
    best = 1 - 0.5 / len(words(text)) ** 3 if name == "meteor_no_synonyms" else 1.0
    # Chinese has no blanks: for tokenisers that split there it is one word, which has no pairs.
    if name == "sentence_bleu@4" and len(text.split()) < 4:
        best = 0.0
    assert value(name, text, text) == pytest.approx(best, abs=0 if best != 1 - 0.5 else 1e-12)


@pytest.mark.parametrize("name", CASE)
@pytest.mark.parametrize("said", [None, "", "   ", "\n", "zzz qqq"])
def test_nothing_and_other_words_have_the_worst_value(name, said):
    assert value(name, said, "no pleural effusion today") == 0.0
    assert value(name, said, "no  pleural\n effusion  today") == 0.0


@pytest.mark.parametrize(
    "name", [*CASE, "bleu_matches@1", "bleu_words", "bleu_13a_reference_length", "cider_d", "length_ratio"]
)
def test_other_kinds_and_empty_keys_are_not_judged(name):
    assert math.isnan(value(name, "A", "A", kind="choice"))
    assert math.isnan(value(name, "a", ""))
    assert math.isnan(value(name, "a", []))
    found, parameter = parse(name)
    chosen = AnsweredQuestion("open", "", "a", preferences={"A": 1.0})
    assert math.isnan(found.function(chosen, *(() if parameter is None else (parameter,))))


def test_bleu_of_nothing_judged_is_not_known_and_of_empty_answers_is_0():
    assert math.isnan(bleu(rows_of("bleu", [("A", "A", "choice")]), 4))
    assert bleu(rows_of("bleu", [("", "no effusion"), (None, "clear")]), 4) == 0.0
    only = rows_of("bleu", [("clear lungs", "clear lungs"), ("A", "B", "choice")])
    assert bleu(only, 2) == 1.0


@pytest.mark.parametrize("name", CASE)
@given(said=SAID, right=st.lists(st.sampled_from("abcd"), min_size=1, max_size=9), further=SAID)
@FEW
def test_values_lie_between_0_and_1_and_more_right_texts_never_hurt(name, said, right, further):
    one, other = " ".join(right), " ".join(further)
    alone = value(name, " ".join(said), one)
    assert 0 <= alone <= 1
    if not name.startswith("sentence_bleu"):  # the nearest length may change
        assert value(name, " ".join(said), [one, other]) >= alone - 1e-12


@given(SAID, SAID)
@FEW
def test_rouge_is_symmetric_and_falls_with_n(one, other):
    a, b = tuple(one), tuple(other)
    assert rouge_longest(a, b) == rouge_longest(b, a)
    for n in (1, 2):
        assert rouge_n(a, b, n) == rouge_n(b, a, n)
    assert rouge_longest(a, b) <= rouge_n(a, b, 1)


def test_every_metric_of_texts_says_what_a_table_needs():
    room = "medimg_eval.metrics.text."
    ours = [found for found in available().values() if found.function.__module__.startswith(room)]
    names = {"bleu", "bleu_13a", "bleu_13a_exp", "cider_d", "length_ratio", "length_ratio_quantile"}
    assert names | {name.partition("@")[0] for name in CASE} <= {found.name for found in ours}
    for found in ours:
        assert found.intermediate or found.settings.startswith("tokeniser: ")
        assert found.definition.endswith(".")
        assert found.source
        for need in found.needs:
            assert parse(need)[0].intermediate or need == "length_ratio"
