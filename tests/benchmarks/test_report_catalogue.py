"""Every set of reports: its files are read, and reports are worth what was worked out by hand."""

import re

import numpy as np
import pytest

from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.plan import judged, task_identity
from medimg_eval.evaluation.settings import Settings
from medimg_eval.metrics import parse
from medimg_eval.metrics.nlp import chosen
from medimg_eval.metrics.nlp.tokenizers import words
from medimg_eval.models.base import VisionLanguageModel
from tests.helpers.catalogue import REPORTS, answered, best_of, right_reply, task_of, worth
from tests.helpers.config_files import CONFIGS, config_files
from tests.helpers.oracle import check_rows
from tests.helpers.running import evaluate
from tests.helpers.samples import ALL

OTHERS = {"phantom_reports"}
"""Tasks of reports that have tests of their own."""

assert ALL is not None

UNREACHED = ("bleu@4", "cider_d")
"""What identical reports of fewer than four words, or of words that all reports share, do not reach the best of."""

NOTHING_STATED = {
    "ett_carina_mae": np.nan,
    "ett_carina_missing": 1.0,
    "ett_carina_invented": np.nan,
    "uptake_macro_f1@physiological": 1.0,
    "uptake_macro_f1@others": 23 / 24,  # of most organs neither report says anything, which is a class, too
}
"""Metric -> what empty reports are worth, where the metric itself does not say its worst."""

EACH = pytest.mark.parametrize("name", sorted(REPORTS))


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    """Intervals are not what is tested here, and a summary is computed anew for every resample."""
    monkeypatch.setattr("medimg_eval.results.statistics.summaries.MOST_RESAMPLES", 20)


def asks_for_reports(path):
    """Whether a task's config, or a protocol that it is made of, is one of reports."""
    text = path.read_text()
    named = re.findall(r"^  - (?:/protocol@_here_: )?(\w+)$", text, re.MULTILINE)
    protocols = [CONFIGS / "protocol" / f"{name}.yaml" for name in named if name != "_self_"]
    return "tasks.ReportTask" in text or any(asks_for_reports(one) for one in protocols if one.is_file())


def test_every_set_of_reports_has_a_sample_and_every_sample_a_set():
    made = {path.stem for path in config_files("task") if asks_for_reports(path)}
    assert sorted(REPORTS) == sorted(made - OTHERS)


@EACH
def test_the_authors_files_are_read_and_the_first_prompt_is_put_word_for_word(name, tmp_path):
    task, sample = task_of(name, tmp_path), REPORTS[name]
    cases = task.cases("test")
    assert [case.id for case in cases] == sample.cases
    images = task.read_images(cases[0])
    prompt = task.prompt(cases[0], images)
    assert len(images) == sample.images
    assert prompt.text == sample.text
    shown = [part for message in prompt.messages for part in message.parts if isinstance(part, int)]
    assert sorted(shown) == list(range(len(images)))
    for case in cases:
        task.prompt(case, task.read_images(case))


@EACH
def test_known_reports_are_worth_what_was_worked_out_by_hand(name, tmp_path):
    sample = REPORTS[name]
    task = task_of(name, tmp_path / "data", metrics=list(sample.scores))
    folder = answered(task, sample.replies, tmp_path / "run")
    check_rows(name, folder)
    found = worth(folder)
    assert {metric: found[metric] for metric in sample.scores} == pytest.approx(dict(sample.scores))


def best(metric, task):
    """What identical reports are worth, by the metric's own word, and of METEOR by the lengths of the reports."""
    if metric == "meteor_no_synonyms":
        lengths = [len(words(chosen(right_reply(case), task.sections))) for case in task.cases("test")]
        return np.mean([1 - 0.5 / length**3 for length in lengths])
    return best_of(metric)


class Writer(VisionLanguageModel):
    """Writes what it is told, once it has been shown the images."""

    def __init__(self, texts):
        self.texts = texts

    def generate(self, prompts, decoding):
        assert all(image.array.size for prompt in prompts for image in prompt.images)
        return [self.texts[prompt.case_id] for prompt in prompts]


def written(task, texts, folder):
    """A run in which a model is asked for all reports."""
    made = Settings(runs=folder, run=None, trainer=lambda **_: None, config={})
    return evaluate(task, ModelSpec("Writer", Writer, {}, lambda: Writer(texts)), made)


@EACH
def test_identical_reports_are_worth_all_in_whatever_order_and_empty_ones_nothing(name, tmp_path):
    task = task_of(name, tmp_path / "data")
    perfect = {case.id: right_reply(case) for case in reversed(task.cases("test"))}
    found = worth(written(task, perfect, tmp_path / "perfect"))
    empty = worth(answered(task, {}, tmp_path / "empty"))
    for metric in task.metrics:
        if metric not in UNREACHED:
            assert found[metric] == pytest.approx(best(metric, task)), metric
        worst = parse(metric)[0].worst
        wanted = NOTHING_STATED.get(metric, 0) if np.isnan(worst) else worst
        assert empty[metric] == pytest.approx(wanted, nan_ok=True), metric


def test_llava_rads_published_protocol_asks_on_one_line_and_scores_as_its_program(tmp_path):
    tasks = [task_of("mimic_cxr_llava_rad", tmp_path, protocol=name) for name in ("fixed", "published")]
    file = tmp_path / "chat_test_MIMIC_CXR_all_gpt4extract_rulebased_v1.json"
    file.write_text(file.read_text().replace("Chest pain.", "Chest\\npain."))
    cases = [task.cases("test")[0] for task in tasks]
    texts = [task.prompt(case, task.read_images(case)).text for task, case in zip(tasks, cases, strict=True)]
    assert [text.partition("indication: ")[2] for text in texts] == ["Chest\npain.", "Chest pain."]
    assert task_identity(tasks[0]) != task_identity(tasks[1])
    assert {"bleu_13a_exp@4", "chexbert_f1@macro-5+", "radgraph_f1_entity_has_relation"} <= set(tasks[1].metrics)
    said = [judged(task) for task in tasks]
    assert [one["signature"].rpartition(", ")[2] for one in said] == ["protocol: fixed", "protocol: published"]
    assert "sacreBLEU" in said[1]["notes"][-1]
