"""What goes wrong around annotators of reports: each fault costs its reports alone, and says what mends it."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from medimg_eval.errors import UserError
from medimg_eval.question import Key
from medimg_eval.results import load_runs
from tests.helpers.asking import Known
from tests.helpers.running import rescore
from tests.tasks.test_reports import REPORTS, Counter, Layout, candidate, own_metrics, run, task

__all__ = ["own_metrics"]


class Several(Layout):
    """The first report has two references."""

    def cases(self, split):
        first, *others = super().cases(split)
        object.__setattr__(first, "target", Known(Key(["mild edema", "edema"])))
        return [first, *others]


def values(folder, metric):
    scores = load_runs([folder])[0].scores
    return scores[(scores["metric"] == metric) & scores["value"].notna()].set_index("case")["value"].to_dict()


def test_a_report_with_several_references_is_not_read_and_ends_no_run(tmp_path):
    folder = run(tmp_path, REPORTS, metrics=["words_ratio", "rouge_l"], layout=Several())
    assert values(folder, "words_ratio") == {"b": 1.0, "c": 1.0}
    assert "counter compares with one reference, and there are 2" in (folder / "summary.json").read_text()


def test_a_cache_that_cannot_be_written_is_named_with_what_mends_it(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(UserError, match="MEDIMG_EVAL_CACHE"):
        run(tmp_path, REPORTS, metrics=["words_ratio"])


def test_a_run_is_scored_again_after_the_cache_was_deleted_and_with_further_metrics(tmp_path):
    folder = run(tmp_path, REPORTS, metrics=["rouge_l"])
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    rescore(folder, task(metrics=["words_ratio", "rouge_1"]), None, {"counter": candidate(Counter())})
    assert values(folder, "words_ratio") == dict.fromkeys(REPORTS, 1.0)
    assert values(folder, "rouge_1") == dict.fromkeys(REPORTS, 1.0)


def test_readings_of_a_start_that_was_stopped_are_kept(tmp_path):
    class Stopped(Counter):
        preferred_batch = 1
        left = 3

        def annotate(self, texts):
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
            return super().annotate(texts)

    stopped = Stopped()
    with pytest.raises(KeyboardInterrupt):
        run(
            tmp_path,
            dict.fromkeys(REPORTS, "edema"),
            metrics=["words_ratio"],
            annotators={"counter": candidate(stopped)},
        )
    stopped.left, Counter.read = 99, 0
    run(tmp_path, dict.fromkeys(REPORTS, "edema"), metrics=["words_ratio"], annotators={"counter": candidate(stopped)})
    assert Counter.read == 1


def test_two_runs_at_once_share_the_cache(tmp_path):
    def one(name):
        texts = {case: f"{text} {name}" for case, text in REPORTS.items()}
        return values(run(tmp_path / name, texts, metrics=["words_ratio"]), "words_ratio")

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(one, ("left", "right"))) == [{"a": 1.25, "b": 1.5, "c": 1.5}] * 2
