"""Mean errors under corruptions: by hand, beside plain loops over scikit-learn's accuracy, and without a value."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score

from medimg_eval.metrics import ScoreTable, parse
from medimg_eval.metrics.classification import CLASSES, EXCLUSIVE

NAMES = ("a", "b", "c")


def rows(asked, **facts):
    """Rows of (corruption, severity, true class, said class)."""
    case = np.repeat(np.arange(len(asked)), len(NAMES))
    label = np.tile(NAMES, len(asked))
    of_case = [np.repeat([one[place] for one in asked], len(NAMES)) for place in range(4)]
    kind, level, true, said = of_case
    return ScoreTable(
        case,
        np.full(case.size, "probability"),
        label,
        np.where(label == said, 0.8, 0.1),
        np.where(label == true, "present", "absent"),
        {"corruption": kind.astype(str), "severity": level.astype(str)},
        len(asked),
        {CLASSES: EXCLUSIVE, **facts},
    )


def value(name, of):
    return parse(name)[0].function(of)


def test_by_hand():
    asked = [("clean", 0, "a", "b"), ("fog", 1, "a", "a"), ("fog", 1, "b", "a"), ("fog", 2, "a", "c")]
    asked += [("snow", 1, "c", "c")]
    # Fog errs in 1/2 and 1 of its severities, snow in none; the clean picture does not count.
    assert value("corruption_error", rows(asked)) == pytest.approx(100 * (0.75 + 0) / 2)
    known = rows(asked, reference_errors={"fog": 0.5, "snow": 0.25, "frost": 0.1})
    assert value("mean_corruption_error", known) == pytest.approx(100 * (0.75 / 0.5 + 0) / 2)
    assert parse("mean_corruption_error")[0].remark(known) == ""


def test_a_model_that_is_the_reference_has_100():
    asked = [("fog", 1, "a", "a"), ("fog", 2, "b", "a"), ("snow", 1, "c", "a"), ("snow", 3, "c", "c")]
    assert value("mean_corruption_error", rows(asked, reference_errors={"fog": 0.5, "snow": 0.5})) == pytest.approx(100)


CASES = st.tuples(st.sampled_from(["clean", "fog", "snow"]), st.integers(1, 3), *[st.sampled_from(NAMES)] * 2)


@settings(max_examples=40, deadline=None)
@given(st.lists(CASES, min_size=1, max_size=20))
def test_they_are_plain_loops(drawn):
    asked = [(kind, 0 if kind == "clean" else level, *classes) for kind, level, *classes in drawn]
    errors = {}
    for kind in {"fog", "snow"} & {one[0] for one in asked}:
        levels = sorted({one[1] for one in asked if one[0] == kind})
        groups = [[one[2:] for one in asked if one[:2] == (kind, level)] for level in levels]
        errors[kind] = np.mean([1 - accuracy_score(*zip(*group, strict=True)) for group in groups])
    found = value("corruption_error", rows(asked))
    assert np.isnan(found) if not errors else found == pytest.approx(100 * np.mean(list(errors.values())))
    assert not errors or 0 <= found <= 100 + 1e-9


def test_edges():
    asked = [("fog", 1, "a", "b")]
    assert np.isnan(value("mean_corruption_error", rows(asked)))
    assert "reference_errors of fog" in parse("mean_corruption_error")[0].remark(rows(asked))
    assert np.isnan(value("corruption_error", rows([("clean", 0, "a", "b")])))
    table = rows(asked)
    bare = ScoreTable(table.case, table.metric, table.label, table.value, table.status, {}, 1, table.facts)
    assert np.isnan(value("corruption_error", bare))
    assert np.isnan(value("corruption_error", rows(asked, **{CLASSES: "several"})))
