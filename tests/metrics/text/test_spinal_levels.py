"""Levels of the spine: how they are written, and how far an answer is from them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medimg_eval.metrics import parse
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.text.spinal_levels import LEVELS, spinal_levels


def value(name, said, due):
    found, parameter = parse(name)
    return found.function(AnsweredQuestion("open", said, [due]), *(() if parameter is None else (parameter,)))


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("Stenosis at L4-5.", "L4 L5"),
        ("L4/L5 and L5/S1", "L4 L5 S1"),
        ("the L 3 vertebra, th12", "T12 L3"),
        ("C3, C4 and 5", "C3 C4 C5"),
        ("T11 to L1", "T11 T12 L1"),
        ("D12-L1", "T12 L1"),
        ("腰4-5椎间盘突出，胸12骨折", "T12 L4 L5"),
        ("颈3至颈5", "C3 C4 C5"),
        ("a 4.5 mm cyst, T1-weighted and T2 hyperintense, T20, L7, S12, L4.5", ""),
        ("HCL5, c4mm", ""),
        ("", ""),
    ],
)
def test_levels_are_read(text, levels):
    assert spinal_levels(text) == tuple(levels.split())


def test_distances_by_hand():
    assert value("spinal_level_exact", "At L4/5.", "L4-L5 disc") == 1
    assert value("spinal_level_exact", "At L4, L5 and S1.", "L4-L5 disc") == 0
    # Of three that are said two are due, and both that are due are said.
    assert value("spinal_level_within@0", "L4, L5 and S1", "L4-5") == pytest.approx((2 + 2) / 5)
    assert value("spinal_level_within@1", "L4, L5 and S1", "L4-5") == 1
    assert value("spinal_level_within@1", "L3", "L5") == 0
    assert value("spinal_level_within@2", "L3", "L5") == 1
    assert value("spinal_level_within@1", "I cannot say.", "L5") == 0
    for name in ("spinal_level_exact", "spinal_level_within@1"):
        assert math.isnan(value(name, "L5", "no level"))


SOME = st.lists(st.sampled_from(LEVELS), min_size=1, max_size=5, unique=True)


@given(SOME, SOME)
def test_more_distance_never_costs_and_the_whole_spine_is_near(said, due):
    texts = (", ".join(said), ", ".join(due))
    scores = [value(f"spinal_level_within@{most}", *texts) for most in (0, 1, 2, 28)]
    assert scores == sorted(scores)
    assert scores[-1] == 1
    shared = len(set(said) & set(due))
    assert scores[0] == pytest.approx(2 * shared / (len(said) + len(due)))
    assert value("spinal_level_exact", *texts) == (set(said) == set(due))
