"""Budget curves: steps by hand, the area by integration, what is unknown, and properties."""

import math

import numpy as np
import pytest
from agent_tools import Scripted
from asking import Quiz
from hypothesis import given, settings
from hypothesis import strategies as st

import medimg_eval as me
from medimg_eval.errors import UsageError, UserError
from medimg_eval.results import load_runs
from medimg_eval.results.figures import budget, share_within
from medimg_eval.results.figures.budget_plot import _area_below
from medimg_eval.results.table import Settings
from medimg_eval.tasks import AgentQuestionTask

PLAIN = Settings(resamples=50, level=0.95, seed=0)
answers = st.lists(
    st.tuples(st.one_of(st.integers(1, 40), st.just(math.inf)), st.integers(0, 1)), min_size=1, max_size=30
)


@given(answers)
@settings(max_examples=40, deadline=None)
def test_a_curve_rises_and_ends_with_what_is_right_and_known(some):
    spent, right = (np.array(column, float) for column in zip(*some, strict=True))
    budgets = np.arange(0.0, 41.0)
    curve = share_within(spent, right, budgets)
    assert (np.diff(curve) >= 0).all()
    assert curve[0] == 0
    assert curve[-1] == pytest.approx(right[np.isfinite(spent)].sum() / len(spent))
    # One by one, as a loop counts.
    assert curve.tolist() == pytest.approx([np.mean((spent <= one) & (right == 1)) for one in budgets])
    assert _area_below(spent, right, 40.0) == pytest.approx(curve[:-1].mean())  # between whole numbers nothing changes
    assert share_within(spent, right, budgets, np.full(len(spent), 3.0)).tolist() == pytest.approx(curve.tolist())


@pytest.mark.slow
def test_the_figure_is_of_all_answers(tmp_path):
    items = [
        {"id": f"q{n}", "text": "Which?", "options": {"A": "a", "B": "b"}, "right": "AB"[n % 3 == 0]} for n in range(30)
    ]
    metrics = ["accuracy", "output_tokens", "tool_calls"]
    task = AgentQuestionTask(
        name="agents", layout=Quiz(items), tools={"measure": "agent_tools.measure"}, metrics=metrics
    )
    me.test(task, Scripted(["It is A."], tokens=7), runs=tmp_path / "runs", run=tmp_path / "runs" / "r")
    runs = load_runs([tmp_path / "runs"])
    drawn = budget(runs, "output_tokens", settings=PLAIN)
    frame = drawn.frame.set_index("budget")
    assert (frame.index[-1], frame["accuracy"].iloc[-1], frame["accuracy"].iloc[-2]) == (7, pytest.approx(2 / 3), 0)
    assert frame["area"].iloc[0] == 0  # all took the most that any took
    assert frame["low"].iloc[-1] < 2 / 3 < frame["high"].iloc[-1]
    assert "right within a budget of tokens written (n = 30)" in drawn.caption
    with pytest.raises(UsageError, match="accuracy"):
        budget(runs, "accuracy")
    with pytest.raises(UserError, match="answer_cost"):
        budget(runs, "answer_cost")
