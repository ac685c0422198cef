"""Baselines of questions: what a score must exceed."""

import math
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.case import Case, Prompt
from medimg_eval.errors import CaseError, UserError
from medimg_eval.metrics.answers.reply import AnsweredQuestion
from medimg_eval.models.baselines.questions import Chance, LongestOption, Majority, NearestQuestion
from medimg_eval.question import Decoding, Key, Message, Question
from tests.conftest import environment

YES_NO = {"yes": "yes", "no": "no"}


class Entry:
    """An entry of an answer key that lies in memory."""

    files = ()

    def __init__(self, value):
        self.value = value

    def read(self):
        if isinstance(self.value, Exception):
            raise self.value
        return Key(self.value)


def case(number, text, value, options=None, *, kind="choice", patient=None, attributes=None):
    question = Question(text, kind, dict(options or {}))
    return Case(f"case{number}", (), Entry(value), patient=patient, attributes=attributes or {}, question=question)


def lettered(*texts):
    return dict(zip("ABCDEFGH", texts, strict=False))


def put(one, template="{question}\n{options}\nAnswer with the letter."):
    """The prompt of a case, as a task makes it."""
    options = one.question.options or (YES_NO if one.question.kind == "yes_no" else {})
    lines = "\n".join(f"{letter}. {text}" for letter, text in one.question.options.items())
    text = template.replace("{question}", one.question.text).replace("{options}", lines)
    return Prompt(one.id, (), messages=(Message("user", (text,)),), options=options, question=one.question.text)


def credit(model, one):
    """The expected value of the model's answer to a case."""
    (preferences,) = model.choose([put(one)])
    assert list(preferences) == list(put(one).options)
    pair = AnsweredQuestion(
        one.question.kind, "", one.target.read().value, options=preferences, preferences=preferences
    )
    return pair.credit


def accuracy(model, cases, known=None):
    if hasattr(model, "study"):
        model.study(cases if known is None else known)
    return float(np.mean([credit(model, one) for one in cases]))


def yes_no(number, text, value, **more):
    return case(number, text, value, kind="yes_no", **more)


@pytest.mark.parametrize("model", [Chance(), LongestOption(), Majority(), NearestQuestion()])
def test_a_baseline_sees_no_image_and_is_asked_to_choose(model):
    assert (model.reads_images, model.chooses_first) == (False, True)
    assert model.preferred_batch > 1
    model.check_ready()


def test_chance_is_the_mean_of_one_over_the_number_of_options():
    cases = [
        case(0, "?", "A", lettered("a", "b", "c", "d")),
        case(1, "?", "C", lettered("a", "b", "c")),
        yes_no(2, "?", "no"),
    ]
    assert accuracy(Chance(), cases) == pytest.approx((1 / 4 + 1 / 3 + 1 / 2) / 3, abs=1e-15)


def test_the_chance_of_a_set_is_the_product_of_its_members():
    pair = [case(number, "?", "B", lettered("a", "b")) for number in range(2)]
    assert math.prod(credit(Chance(), one) for one in pair) == 1 / 4
    circle = [case(number, "?", "ABCD"[number], lettered("a", "b", "c", "d")) for number in range(4)]
    assert math.prod(credit(Chance(), one) for one in circle) == 1 / 256


def test_chance_and_the_longest_option_have_no_answer_where_there_are_no_options():
    prompts = [Prompt("c", (), messages=(Message("user", ("What is it?",)),))]
    for model in (Chance(), LongestOption()):
        assert model.generate(prompts, Decoding()) == [""]


def test_the_longest_option_has_the_most_characters_and_equal_ones_share():
    model = LongestOption()
    options = lettered("liver", "  the   left kidney ", "spleen", "the left kidney")
    (preferences,) = model.choose([Prompt("c", (), options=options)])
    assert preferences == {"A": 5, "B": 15, "C": 6, "D": 15}
    assert credit(model, case(0, "?", "D", options)) == 0.5
    assert credit(model, yes_no(1, "?", "yes")) == 0.5  # "yes" is longer than "no", which means nothing


def test_the_majority_is_of_letters_where_texts_differ_from_question_to_question():
    cases = [case(n, "?", "BBA"[n % 3], lettered(f"{n}a", f"{n}b", f"{n}c", f"{n}d")) for n in range(30)]
    assert accuracy(Majority(), cases) == pytest.approx(2 / 3)


def test_own_answers_do_not_give_away_options_that_occur_once():
    cases = [case(n, "?", "ABCD"[n % 4], lettered(f"{n}a", f"{n}b", f"{n}c", f"{n}d")) for n in range(40)]
    assert accuracy(Majority(), cases) == pytest.approx(1 / 4)


def test_the_majority_is_of_texts_where_all_questions_have_the_same_options():
    names = ("CT", "MR", "X-ray")
    cases = []
    for number in range(30):
        turned = [names[(number + step) % 3] for step in range(3)]
        right = "MR" if number % 5 else "CT"
        cases.append(case(number, "Which modality?", "ABC"[turned.index(right)], lettered(*turned)))
    assert accuracy(Majority(), cases) == pytest.approx(4 / 5)
    seldom = Counter(one.target.read().value for one in cases)
    assert seldom.most_common(1)[0][1] / 30 < 1 / 2  # letters would say less


def test_rotations_of_one_question_are_not_many_questions():
    texts = ["a", "b", "c", "d"]
    cases = []
    for number in range(12):  # every rotation three times, of one set
        turned = texts[number % 4 :] + texts[: number % 4]
        cases.append(case(number, "?", "ABCD"[turned.index("b")], lettered(*turned), patient="s"))
    assert accuracy(Majority(), cases) == pytest.approx(1 / 4)


def test_yes_and_no_are_two_options_in_every_baseline():
    cases = [
        yes_no(number, f"Is there {word}?", "no" if number < 14 else "yes") for number, word in enumerate("x" * 20)
    ]
    assert accuracy(Chance(), cases) == accuracy(LongestOption(), cases) == 0.5
    assert accuracy(Majority(), cases) == pytest.approx(0.7)
    assert accuracy(NearestQuestion(), cases) == pytest.approx(0.7)  # all are the same question


def test_the_majority_of_a_fit_split_is_used_on_cases_that_were_not_counted():
    known = [yes_no(number, "?", "yes") for number in range(12)]
    cases = [yes_no(number, "?", "no") for number in range(12)]
    assert accuracy(Majority(), cases, known=known) == 0
    assert accuracy(Majority(), cases) == 1


def test_open_questions_get_the_most_frequent_answer_as_it_was_first_spelt():
    values = ["Left lung", "brain", ["left  lung.", "lung"], "LEFT LUNG", 3.0]
    cases = [case(n, "Where?", value, kind="number" if value == 3.0 else "open") for n, value in enumerate(values)]
    model = Majority()
    model.study([*cases, yes_no(9, "?", "no"), yes_no(10, "?", "no")])
    assert model.generate([put(cases[0])], Decoding()) == ["Left lung"]
    model.study([yes_no(9, "?", "no")])
    assert model.generate([put(cases[0])], Decoding()) == [""]


def test_the_nearest_question_gives_its_answer_in_other_words_and_options():
    cases = [
        case(0, "Which organ lies below the right lung?", "A", lettered("liver", "spleen")),
        case(1, "Which organ is below the right lung base?", "B", lettered("spleen", "Liver")),
        case(2, "What colour is the stain?", "A", lettered("pink", "blue")),
        case(3, "What is the colour of this stain?", "A", lettered("Blue.", "pink")),
    ]
    model = NearestQuestion()
    model.study(cases[::2])
    assert [credit(model, one) for one in cases] == [1, 1, 1, 0]
    model.study(cases)  # every question is nearest to itself
    assert [credit(model, one) for one in cases] == [1, 1, 1, 1]


def test_balanced_answers_to_one_question_are_chance():
    cases = [yes_no(number, "Is it normal?", "yes" if number % 2 else "no") for number in range(20)]
    assert accuracy(NearestQuestion(), cases) == 0.5
    assert accuracy(Majority(), cases) == 0.5


def test_without_a_word_in_common_there_is_no_preference_and_no_answer():
    known = [yes_no(0, "Pneumothorax", "yes"), case(1, "Pneumothorax", "left", kind="open")]
    model = NearestQuestion()
    model.study(known)
    assert model.choose([put(yes_no(5, "Fracture", "no"))]) == [{"yes": 0, "no": 0}]
    strange = Prompt("x", (), question="Fracture")
    near = Prompt("y", (), question="Where is the pneumothorax?")
    assert model.generate([strange, near], Decoding()) == ["", "left"]


def test_of_equally_near_open_questions_the_most_frequent_answer_counts_then_the_first():
    answers = ["Left", "right", "left ", "right", "middle"]
    cases = [case(n, "Where is the mass?", answer, kind="open") for n, answer in enumerate(answers)]
    cases.append(case(9, "Where is it?", ["Above", "on top"], kind="open"))
    model = NearestQuestion()
    model.study(cases)
    assert model.generate([put(cases[4]), put(cases[5])], Decoding()) == ["Left", "Above"]


def test_words_of_chinese_questions_are_characters():
    known = [yes_no(0, "肺部是否正常", "yes"), yes_no(1, "有骨折吗", "no")]
    model = NearestQuestion()
    model.study(known)
    assert model.choose([put(yes_no(5, "这个肺正常吗", "yes"))]) == [{"yes": 1, "no": 0}]


def test_several_right_letters_are_counted_each():
    options = lettered("a", "b", "c")
    cases = [case(n, f"word{n}", value, options, kind="choices") for n, value in enumerate([("A", "B"), ("B",), ["B"]])]
    model = Majority()
    model.study(cases)
    assert model.choose([put(cases[0])]) == [{"A": 1, "B": 3, "C": 0}]


@pytest.mark.parametrize("model", [Majority(), NearestQuestion()])
def test_records_without_an_answer_are_passed_over_and_none_at_all_is_an_error(model):
    broken = Case("b", (), Entry(CaseError("b.json: unreadable")), question=Question("What?"))
    wordless = Case("w", (), Entry("yes"))
    place = case(1, "Where?", (0, 0, 4, 4), kind="box")
    outside = case(2, "Which?", "E", lettered("a", "b"))
    with pytest.raises(UserError, match="none of 4 cases has an answer to learn from"):
        model.study([broken, wordless, place, outside])
    model.study([broken, wordless, place, outside, yes_no(3, "Is it normal?", "yes")])
    assert model.choose([put(yes_no(4, "Is it normal?", "no"))]) == [{"yes": 1, "no": 0}]


@pytest.mark.parametrize("model", [Majority(), NearestQuestion()])
def test_asking_before_studying_is_an_error(model):
    for ask in (model.choose, lambda prompts: model.generate(prompts, Decoding())):
        with pytest.raises(UserError, match="knows no answers yet"):
            ask([put(yes_no(0, "?", "no"))])


def test_questions_without_words_are_an_error():
    with pytest.raises(UserError, match="hold no words"):
        NearestQuestion().study([yes_no(0, "?", "no")])


def naive(cases, one):
    """The same rule by brute force: word counts in dictionaries."""
    wordings = ["\n".join([other.question.text, *sorted(other.question.options.values())]) for other in cases]
    bags = [Counter(text.split()) for text in wordings]
    rarity = {
        word: math.log((1 + len(set(wordings))) / (1 + sum(word in text.split() for text in set(wordings)))) + 1
        for text in wordings
        for word in text.split()
    }
    vectors = [{word: number * rarity[word] for word, number in bag.items()} for bag in bags]
    here = vectors[cases.index(one)]

    def cosine(a, b):
        dot = sum(weight * b.get(word, 0) for word, weight in a.items())
        return round(dot / math.sqrt(sum(x * x for x in a.values()) * sum(x * x for x in b.values())), 9)

    right = [other.question.options[other.target.read().value] for other in cases]
    able = [n for n in range(len(cases)) if right[n] in one.question.options.values()]
    best = max((cosine(here, vectors[n]) for n in able), default=0)
    votes = Counter(right[n] for n in able if best and cosine(here, vectors[n]) == best)
    most = max(votes.values(), default=0)
    return {letter: float(votes[text] == most > 0) for letter, text in one.question.options.items()}


words = st.lists(st.sampled_from(["lung", "heart", "left", "right", "is", "opacity"]), min_size=1, max_size=4)


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.tuples(words, st.permutations(["one", "two", "three"]), st.sampled_from("AB")), min_size=2, max_size=9)
)
def test_the_nearest_question_agrees_with_brute_force(drawn):
    cases = [
        case(number, " ".join(question), letter, lettered(*texts[:2]))
        for number, (question, texts, letter) in enumerate(drawn)
    ]
    model = NearestQuestion()
    model.study(cases)
    for one in cases:
        (found,) = model.choose([put(one)])
        assert found == naive(cases, one)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 3), min_size=10, max_size=40))
def test_no_constant_answer_beats_the_majority(values):
    options = lettered("a", "b", "c", "d")
    cases = [case(number, "Which?", "ABCD"[value], options) for number, value in enumerate(values)]
    assert accuracy(Majority(), cases) == pytest.approx(max(Counter(values).values()) / len(values))


def test_baselines_import_no_torch():
    heavy = {"torch", "sklearn", "pandas"}
    code = f"import sys, medimg_eval.models.baselines.questions; sys.exit(bool({heavy} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True, env=environment())
