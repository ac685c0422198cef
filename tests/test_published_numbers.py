"""What cards state as published, read and refused; all numbers are made up."""

import pytest

from medimg_eval.errors import UsageError
from medimg_eval.published_numbers import PublishedNumber, half_digit, published_numbers, same_cases

PLAIN = {"model": "m", "metric": "accuracy", "number": "0.50", "source": "arXiv 1, table 2"}


def read(*entries):
    return published_numbers(list(entries), "t")


def test_a_number_keeps_its_digits_and_is_on_our_scale():
    (one,) = read(PLAIN | {"number": "66.30", "scale": 100, "n": 40, "interval": ["60.0", "70.5"]})
    assert (one.number, one.value, one.n) == ("66.30", pytest.approx(0.663), 40)
    assert one.bounds == pytest.approx((0.6, 0.705))
    assert one.rounding == pytest.approx(0.00005)  # half of 0.01, of percents


def test_a_sum_over_cases_has_their_number_as_scale():
    assert read(PLAIN | {"number": "92", "scale": 184})[0].value == 0.5


def test_groups_of_cases_are_numbers_of_their_own():
    overall, ct, mri = read(
        PLAIN | {"n": 9, "where": {"language": "local"}, "by": {"modality": {"CT": "0.4", "MRI": "0.6"}}}
    )
    assert (overall.number, overall.where, overall.n) == ("0.50", (("language", ("local",)),), 9)
    assert same_cases(ct.where, (("modality", ("CT",)), ("language", ("local",))))
    assert (mri.number, mri.n) == ("0.6", 0)  # n is that of all
    assert [
        one.number for one in read({k: v for k, v in PLAIN.items() if k != "number"} | {"by": {"a": {1: "2"}}})
    ] == ["2"]


@pytest.mark.parametrize(
    ("low", "high", "inside"),
    [
        (0.4, 0.6, True),
        (0.505, 0.6, True),  # 0.50 stands for anything from 0.495 to 0.505
        (0.506, 0.6, False),
        (0.3, 0.495, True),
        (0.3, 0.494, False),
    ],
)
def test_within_is_by_the_rounding_of_the_number(low, high, inside):
    assert read(PLAIN)[0].within(low, high) is inside
    assert read(PLAIN | {"number": "50", "scale": 100})[0].within(low, high) is inside


def test_conditions_are_the_same_in_any_order():
    assert same_cases((("a", ("1", "2")), ("b", ("3",))), (("b", ("3",)), ("a", ("2", "1"))))
    assert not same_cases((("a", ("1",)),), ())
    assert not same_cases((("a", ("1",)),), (("a", ("1", "2")),))


def test_half_of_the_last_digit():
    assert [half_digit(one) for one in ("17.11", "92", "1e-3", "0.5")] == pytest.approx([0.005, 0.5, 0.0005, 0.05])


def test_a_number_is_told_in_one_line():
    (one,) = read(PLAIN | {"where": {"organ": ["lung", "liver"]}, "n": 1234, "interval": ["0.4", "0.6"], "note": "odd"})
    assert str(one) == "m: accuracy 0.50 [0.4, 0.6] (organ=lung or liver) n = 1,234; odd; arXiv 1, table 2"
    assert str(PublishedNumber("m", "dice", "0.9", "s")) == "m: dice 0.9; s"


def test_nothing_and_words_state_no_number():
    assert published_numbers(None, "t") == published_numbers("mean Dice of five models", "t") == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"modle": "m"}, "got 'modle'; did you mean 'model'"),
        ({"model": ""}, "`model` is ''; expected a text"),
        ({"source": None}, "`source` is None; expected a text"),
        ({"number": 0.5}, "`number` is 0.5; expected a number in quotes"),
        ({"number": "high"}, "`number` is 'high'; expected a number in quotes"),
        ({"number": "nan"}, "`number` is 'nan'; expected a number in quotes"),
        ({"where": "CT"}, "expected `where` to be attribute: value, got 'CT'"),
        ({"by": {"modality": "0.5"}}, "expected `by` to be attribute: {value: number}"),
        ({"by": {"modality": {"CT": 0.5}}}, "modality=CT is 0.5; expected a number in quotes"),
        ({"scale": 0}, "`scale` is 0; expected a number above 0"),
        ({"scale": True}, "`scale` is True"),
        ({"n": 1.5}, "`n` is 1.5; expected the number of cases"),
        ({"n": -1}, "`n` is -1"),
        ({"interval": ["0.4"]}, "expected two bounds in quotes"),
        ({"interval": [0.4, 0.6]}, "a bound of `interval` is 0.4"),
        ({"interval": ["0.6", "0.4"]}, "goes from 0.6 to 0.4"),
    ],
)
def test_what_is_wrong_is_named_with_its_task_and_its_place(change, words):
    with pytest.raises(UsageError) as raised:
        read(PLAIN | {"source": "another"}, PLAIN | change)
    assert "task 't', number 2 of card.published" in str(raised.value)
    assert words in str(raised.value)
    assert len(str(raised.value)) <= 300


def test_one_source_states_a_number_once():
    with pytest.raises(
        UsageError, match="number 2 of card.published: m, accuracy is stated twice from the same source"
    ):
        read(PLAIN, PLAIN | {"number": "0.51"})
    assert len(read(PLAIN, PLAIN | {"source": "arXiv 2"}, PLAIN | {"where": {"a": "b"}})) == 3


def test_a_number_without_a_number_and_a_list_that_is_none_are_refused():
    with pytest.raises(UsageError, match="has no `number`, nor"):
        read({key: value for key, value in PLAIN.items() if key != "number"})
    with pytest.raises(UsageError, match=r"expected card\.published to be a list"):
        published_numbers({"model": "m"}, "t")
    with pytest.raises(UsageError, match="expected keys such as"):
        read("0.5")
