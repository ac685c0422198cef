"""How clicks miss: each kind of failure, the first that ends a task, and the authors' own function."""

import ast
import math

import numpy as np
import pytest

from medimg_eval.errors import UsageError
from medimg_eval.metrics import parse
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.registry import ScoreTable
from medimg_eval.metrics.vqa.clicks import FAILURES, click_failure, kind_of_miss
from tests.helpers.authors import require_clone

BOX = [100.0, 100.0, 140.0, 120.0]  # 40 x 20 of 400 x 200 pixels: 1 % of the image
SIZE = (400, 200)


def clicked(output, box=BOX, **more):
    more = {"size": SIZE, "patch": 14, **more}
    return click_failure(AnsweredQuestion("point", output, box, more=more))


@pytest.mark.parametrize(
    ("output", "kind"),
    [
        ("(120, 110)", None),
        ("(93, 110)", None),  # the patch of 14 pixels touches the box
        ("I cannot see it", "no_prediction"),
        ("(120, 92.5)", "far_miss"),  # above the grown box, whose top is 95, and below the toolbar
        ("(149, 110)", "near_miss"),  # the grown box ends at 150, and the patch begins at 142
        ("(399, 150)", "edge_bias"),
        ("(3, 5)", "edge_bias"),  # an edge comes before the toolbar
        ("(200, 10)", "toolbar_confusion"),
        ("(300, 150)", "far_miss"),
    ],
)
def test_a_miss_is_of_the_first_kind_that_fits(output, kind):
    assert clicked(output) == (0 if kind is None else 1 + FAILURES.index(kind))


def test_a_small_target_is_small_whatever_the_miss():
    assert clicked("(3, 5)", box=[100, 100, 105, 106]) == 1 + FAILURES.index("small_target")  # 30 of 32 pixels


def test_other_questions_have_none():
    assert math.isnan(click_failure(AnsweredQuestion("choice", "A", "A", options={"A": "a", "B": "b"})))
    assert math.isnan(click_failure(AnsweredQuestion("point", "(1, 1)", BOX)))


def table(tasks):
    """A row a step: tasks of codes of failures."""
    steps = [(name, member, code) for name, codes in enumerate(tasks) for member, code in enumerate(codes, start=1)]
    count = len(steps)
    attributes = {
        "set": np.array([f"t{name}" for name, _, _ in steps]),
        "member": np.array([str(member) for _, member, _ in steps]),
    }
    held = np.arange(count), np.full(count, "click_failure"), np.full(count, "point")
    return ScoreTable(
        *held, np.array([float(code) for *_, code in steps]), np.full(count, "present"), attributes, count, {}
    )


def share(tasks, kind):
    found, parameter = parse(f"first_failure@{kind}")
    return found.function(table(tasks), parameter)


def test_the_first_failure_of_each_task_that_failed_counts():
    tasks = [[0, 3, 6], [0, 0], [3], [6, 1]]  # near, none, near, far
    assert share(tasks, "near_miss") == pytest.approx(2 / 3)
    assert share(tasks, "far_miss") == pytest.approx(1 / 3)
    assert share(tasks, "no_prediction") == 0
    assert sum(share(tasks, kind) for kind in FAILURES) == pytest.approx(1)
    assert math.isnan(share([[0, 0]], "near_miss"))


def test_a_kind_that_there_is_not_is_refused():
    with pytest.raises(UsageError, match="near_miss"):
        parse("first_failure@near_mis")


@pytest.mark.slow
def test_the_authors_function_says_the_same():
    """Where MEDIMG_EVAL_CLONES names a folder that holds a clone of Tajamul21/MedSPOT: its taxonomy of failures."""
    clone = require_clone("Tajamul21/MedSPOT")
    tree = ast.parse((clone / "Evaluation_scripts/evaluate_qwen2_5vl.py").read_text())
    # Its imports need weights of models; what it computes of points needs none.
    plain = [
        node
        for node in tree.body
        if (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name))
        or (isinstance(node, ast.FunctionDef) and node.name not in ("predict_qwen_point", "resolve_image_path"))
    ]
    theirs = {"math": math}
    exec(compile(ast.Module(plain, []), "theirs", "exec"), theirs)  # noqa: S102
    rng = np.random.default_rng(0)
    for _ in range(3000):
        width, height = rng.integers(200, 2000, 2).tolist()
        corner, extent = rng.uniform(0, 90, 2), rng.choice([1, 5, 20]) * rng.uniform(0.2, 1, 2)
        box = theirs["percent_bbox_xywh_to_pixel_xyxy"]([*corner, *extent], width, height)
        point = tuple(rng.uniform(0, 1, 2) * (width, height))
        if rng.random() < 0.5:  # near the box
            point = tuple(np.array(box[:2]) + rng.normal(0, 15, 2))
        assert kind_of_miss(point, box, (width, height)) == theirs["classify_failure"](point, box, width, height)
