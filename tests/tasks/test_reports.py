"""Reports: what annotators read, and the set that scores depend on, reach the metrics."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from medimg_eval import metrics
from medimg_eval.case import Case
from medimg_eval.errors import UserError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.models.annotators.base import TextAnnotator
from medimg_eval.models.base import VisionLanguageModel
from medimg_eval.models.hub import Weights
from medimg_eval.question import Key, Question
from medimg_eval.results import build_table, load_runs
from medimg_eval.tasks import ReportTask
from tests.helpers.asking import Known
from tests.helpers.oracle import check_rows
from tests.helpers.running import evaluate


@pytest.fixture(autouse=True)
def own_metrics(tmp_path, monkeypatch):
    """Two metrics of words that an annotator has counted, and a cache of the test's own."""
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "cache"))
    metrics.available()
    known = dict(metrics.registry._METRICS)

    @metrics.metric(
        kind="answer", title="Words", higher_is_better=True, best=1, worst=0, source="a test", reads=("counter",)
    )
    def words_ratio(pair):
        """The words that were written over those of the reference."""
        read = pair.read("counter")
        return math.nan if read is None else read.prediction / read.reference

    @metrics.metric(
        kind="answer",
        title="Hits",
        higher_is_better=True,
        best=1,
        worst=0,
        source="a test",
        intermediate=True,
        settings="words between blanks",
    )
    def hits(pair):
        """Whether each of two findings is named."""
        return {name: float(name in pair.text) for name in ("edema", "nodule")}

    @metrics.summary(
        needs=("hits",),
        title="Hit rate",
        higher_is_better=True,
        best=1,
        source="a test",
        pieces=lambda rows: metrics.registry.np.column_stack([rows.value, metrics.registry.np.ones_like(rows.value)]),
    )
    def hit_rate(sums):
        """Findings named over findings."""
        return sums[..., 0] / sums[..., 1]

    yield
    metrics.registry._METRICS.clear()
    metrics.registry._METRICS.update(known)


class Counter(TextAnnotator):
    """Counts words, and fails on one of them."""

    read = 0
    needs = ()

    def annotate(self, texts):
        if any("unreadable" in text for text in texts):
            raise ValueError("no")
        Counter.read += len(texts)
        return [len(text.split()) for text in texts]


class Lacking(TextAnnotator):
    """Has no weights."""

    needs = (Weights("weights", "counter.pth", "the counters' site", "free"),)

    def __init__(self, weights=None):
        self.weights = weights

    def annotate(self, texts):
        raise AssertionError


class Writer(VisionLanguageModel):
    """Writes what it is told."""

    def __init__(self, texts):
        self.texts = texts

    def generate(self, prompts, decoding):
        return [self.texts[prompt.case_id] for prompt in prompts]


REPORTS = {"a": "mild edema is seen", "b": "no nodule", "c": "clear lungs"}


class Layout:
    """Three reports."""

    def cases(self, split):
        return [
            Case(id=name, images=(), target=Known(Key(text)), question=Question("Report.", "report"))
            for name, text in REPORTS.items()
        ]


def task(**settings):
    settings = {"name": "r", "layout": Layout(), "template": {"user": "{question}"}, **settings}
    return ReportTask(splits={"test": "test"}, **settings)


def candidate(made, name="M"):
    return ModelSpec(name, type(made), {}, lambda: made)


def run(tmp_path, texts, **settings):
    annotators = settings.pop("annotators", {"counter": candidate(Counter())})
    made = Settings(runs=Path(tmp_path) / "runs", run=None, trainer=lambda **_: None, config={}, annotators=annotators)
    return evaluate(task(**settings), candidate(Writer(texts)), made)


def test_a_metric_is_given_what_its_annotator_read_and_each_text_is_read_once(tmp_path):
    Counter.read = 0
    folder = run(tmp_path, {"a": "edema", "b": "no nodule", "c": "unreadable"}, metrics=["words_ratio"])
    check_rows("report/annotator", folder)
    scores = load_runs([folder])[0].scores.set_index("case")["value"]
    assert scores.to_dict() == {"a": 0.25, "b": 1.0}
    assert Counter.read == 4
    assert "annotator counter failed on 1 of 3 reports (c): not judged" in "".join(
        build_table(load_runs([folder])).footnotes
    )


def test_a_summary_of_sums_has_the_value_of_the_same_sums_by_hand(tmp_path):
    folder = run(tmp_path, {"a": "edema", "b": "nodule edema", "c": ""}, metrics=["hits", "hit_rate"])
    cell = build_table(load_runs([folder])).rows[0].cells[0]
    assert cell.mean == 0.5
    assert cell.method == "too few"
    notes = build_table(load_runs([folder])).footnotes
    assert any("Hit rate: Findings named over findings." in note for note in notes)


def test_missing_weights_are_said_at_once_with_all_that_mends_it(tmp_path):
    with pytest.raises(UserError) as caught:
        run(tmp_path, {}, metrics=["words_ratio"], annotators={"counter": candidate(Lacking())})
    for part in ("words_ratio", "counter.pth", "the counters' site", "free", "annotators.counter.weights"):
        assert part in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_a_judge_that_cannot_be_loaded_leaves_a_finished_run_as_it_was(tmp_path):
    class Lost(Writer):
        def check_ready(self):
            raise UserError("model.checkpoint: no such file")

    asked = {"judge": {"grade": {"prompt": {"user": "{prediction}"}, "pattern": r"(\d)"}}, "metrics": ["hit_rate"]}
    folder = run(tmp_path, REPORTS, **asked)
    check_rows("report", folder)
    before = load_runs([folder])[0]
    settings = Settings(
        runs=tmp_path / "runs",
        run=None,
        trainer=lambda **_: None,
        config={},
        annotators={},
        judge=candidate(Lost({}), "Lost"),
    )
    with pytest.raises(UserError, match=r"judge 'Lost': judge\.checkpoint: no such file"):
        evaluate(task(**asked), candidate(Writer(REPORTS)), settings)
    after = load_runs([folder])[0]
    assert after.status == "finished"
    assert after.metrics == before.metrics
