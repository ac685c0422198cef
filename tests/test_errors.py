import sys

import pytest

from medimg_eval.arguments import grouped
from medimg_eval.errors import CaseError, UsageError, interruptions


def test_errors_of_a_library_are_told_as_ours():
    told_as = CaseError.about("a.json", "is no JSON", ValueError, mend="copy it again")
    with pytest.raises(CaseError, match=r"^a\.json: is no JSON \(bad\); copy it again$") as told, told_as:
        raise ValueError("bad")
    assert isinstance(told.value.__cause__, ValueError)
    with pytest.raises(OSError, match="^full$"), CaseError.about("a.json", "is no JSON", ValueError):
        raise OSError("full")
    with CaseError.about("a.json", "is no JSON", ValueError):
        pass


def test_the_first_unknown_name_is_refused_with_what_was_meant():
    UsageError.refuse_unknown("there is no test", ("t", "wilcoxon"), "t", "wilcoxon")
    with pytest.raises(UsageError) as told:
        UsageError.refuse_unknown("there is no test", ("t", "wilcoxon"), "t", "wilcoxn", "u", then=" here", end=".")
    assert str(told.value) == "there is no test 'wilcoxn' here; did you mean 'wilcoxon'? (available: t, wilcoxon)."


def test_groups_keep_the_order_of_their_pairs():
    groups = grouped([("b", 1), ("a", 2), ("b", 3)])
    assert list(groups.items()) == [("b", [1, 3]), ("a", [2])]


def lost_reader():
    try:
        raise KeyboardInterrupt  # noqa: TRY301
    except KeyboardInterrupt:
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Terminated.")  # noqa: B904 - as torch does


@pytest.mark.parametrize("end", [lambda: sys.exit(1), lost_reader])
def test_what_others_make_of_an_interruption_is_one_again(end):
    with pytest.raises(KeyboardInterrupt), interruptions():
        end()


def test_a_reader_that_is_lost_without_an_interruption_is_an_error():
    with pytest.raises(RuntimeError), interruptions():
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed.")
