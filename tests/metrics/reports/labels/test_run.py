"""Labels of reports from a task to a table: values, intervals, notes, and the configs that they come from."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from medimg_eval.case import Case
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.instantiate import build_candidate
from medimg_eval.metrics import ScoreTable, available, parse
from medimg_eval.metrics.answers.reply import AnsweredQuestion
from medimg_eval.metrics.reports.labeler.labeler import label_report
from medimg_eval.metrics.reports.labels.f1 import label_scores
from medimg_eval.metrics.reports.labels.taxonomies import CHEXPERT, CHEXPERT_14, Taxonomy
from medimg_eval.models.annotators.base import TextAnnotator
from medimg_eval.models.base import VisionLanguageModel
from medimg_eval.question import Key, Question
from medimg_eval.results import build_table, load_runs
from medimg_eval.tasks import ReportTask
from tests.helpers.asking import Known
from tests.helpers.running import evaluate

CONFIGS = Path(__file__).parents[4] / "configs"

REPORTS = {
    "a": ("Mild pulmonary edema. No pneumothorax.", "Pulmonary edema. Small left pleural effusion."),
    "b": ("The lungs are clear. No acute abnormality.", "No acute abnormality."),
    "c": ("Possible pneumonia in the left lower lobe.", "Left lower lobe pneumonia."),
    "d": ("Cardiomegaly. A pacemaker is present.", ""),
    "e": ("Small right pleural effusion.", "small right pleural effusion"),
}


class Layout:
    """Five reports."""

    def cases(self, split):
        return [
            Case(name, (), Known(Key(reference)), question=Question("Report.", "report"))
            for name, (reference, _) in REPORTS.items()
        ]


class Writer(VisionLanguageModel):
    """Writes what it is told."""

    def generate(self, prompts, decoding):
        return [REPORTS[prompt.case_id][1] for prompt in prompts]


class Rules(TextAnnotator):
    """Stands in CheXbert's place; fails on one report."""

    def annotate(self, texts):
        if any("pacemaker" in text for text in texts):
            raise ValueError("no")
        return [{**label_report(text), **({"cut": True} if "lungs" in text else {})} for text in texts]


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "cache"))

    def run(*names):
        task = ReportTask(
            name="r", layout=Layout(), template={"user": "{question}"}, splits={"test": "test"}, metrics=list(names)
        )
        annotators = {"chexbert": ModelSpec("chexbert", Rules, {}, Rules)}
        made = Settings(tmp_path / "runs", None, lambda **_: None, {}, annotators=annotators)
        found = build_table(load_runs([evaluate(task, ModelSpec("M", Writer, {}, Writer), made)]))
        return dict(zip(names, found.rows[0].cells, strict=True)), " ".join(found.footnotes)

    return run


def labelled(cases):
    return [[label_report(REPORTS[case][side]) for case in cases] for side in (0, 1)]


def test_a_table_shows_what_the_public_function_returns_with_intervals_and_all_that_decides_it(table):
    names = [f"rule_labeler_{what}@{choice}" for what in ("f1", "precision", "recall", "support") for choice in
             ("micro-14", "micro-14+", "macro-5+", "weighted-13", "samples-14", "Edema", "Pneumonia+")]  # fmt: skip
    cells, notes = table(*names, "rule_labeler_example_f1@14+")
    reference, predicted = labelled(REPORTS)
    for name in names:
        what, _, choice = name.removeprefix("rule_labeler_").partition("@")
        average, _, size = choice.removesuffix("+").partition("-")
        labels = CHEXPERT.averaged[size] if size else (average,)
        found = label_scores(
            reference,
            predicted,
            labels=labels,
            average=average if size else "micro",
            uncertain="positive" if choice.endswith("+") else "negative",
        )
        assert cells[name].mean == pytest.approx(getattr(found, what)), name
        assert cells[name].low <= cells[name].mean <= cells[name].high
    assert cells["rule_labeler_f1@micro-14+"].low < cells["rule_labeler_f1@micro-14+"].high
    for part in (
        "an uncertain label counts as positive, without +: as negative",
        "13: without No Finding; 5: Cardiomegaly, Edema, Consolidation, Atelectasis, Pleural Effusion",
        "nothing to find or found counts 0 in means",
        "their agreement with CheXbert on real reports is unknown",
    ):
        assert part in notes


def test_an_annotators_labels_are_scored_where_it_read_both_texts(table):
    cells, notes = table("chexbert_f1@micro-14+", "chexbert_example_f1@14+")
    found = label_scores(*labelled("abce"), labels=CHEXPERT_14, average="micro", uncertain="positive")
    assert cells["chexbert_f1@micro-14+"].mean == pytest.approx(found.f1)
    assert "chexbert failed on 1 of 10 (d): not judged" in notes
    assert "chexbert read only the beginning of 1 of 10" in notes


@pytest.mark.parametrize("name", sorted(path.stem for path in (CONFIGS / "annotator").glob("*.yaml")))
def test_every_annotators_config_says_what_it_is_fits_its_class_and_is_named_by_a_metric(name):
    text = (CONFIGS / "annotator" / f"{name}.yaml").read_text()
    assert re.match(r"# description: \S", text)
    made = build_candidate(yaml.safe_load(text)).load()
    assert all(hasattr(made, one.argument) for one in made.needs)
    assert all(one.what and one.source and one.licence for one in made.needs)
    assert name in providers()


def providers():
    """The annotators and networks that metrics name."""
    needs = [need for one in available().values() if not callable(one.requires) for need in one.requires]
    return {need.provider for need in needs if need.kind in ("annotation", "comparison", "distance")}


def test_every_metrics_annotator_has_a_config():
    assert providers() <= {path.stem for path in (CONFIGS / "annotator").glob("*.yaml")}


@pytest.mark.parametrize(
    "family", ["radbert_ct", "srr_bert_leaves", "srr_bert_upper_statuses", "pet_uptake", "chexbert"]
)
def test_each_set_of_a_shipped_taxonomy_can_be_asked_for(family):
    taxonomy = CHEXPERT if family == "chexbert" else Taxonomy.load(family)
    for name in taxonomy.averaged:
        for average in ("micro", "macro", "weighted", "samples"):
            found, choice = parse(f"{family}_f1@{average}-{name}+")
            assert found.pieces is not None
            assert taxonomy.choice(choice, found.name).labels == taxonomy.averaged[name]


def blocks(language):
    """The blocks of code of the docs page, in their order."""
    text = (CONFIGS.parent / "docs" / "definitions" / "report_labels.md").read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.fixture
def own_metrics():
    from medimg_eval.metrics import registry

    available()
    known = dict(registry._METRICS)
    yield
    registry._METRICS.clear()
    registry._METRICS.update(known)


def test_the_docs_arithmetic_runs(capsys):
    exec(blocks("python")[0], {})  # noqa: S102 - our own page
    assert "precision=1.0, recall=0.6666666666666666" in capsys.readouterr().out


def test_the_docs_own_taxonomy_becomes_metrics(own_metrics, tmp_path, monkeypatch):
    taxonomy, annotator = blocks("yaml")
    (tmp_path / "spine.yaml").write_text(taxonomy)
    exec(blocks("python")[1], {"__file__": str(tmp_path / "spine.py")})  # noqa: S102 - our own page
    found, choice = parse("spine_example_f1@discs")
    pair = AnsweredQuestion("report", "Herniation.", "Herniation and stenosis.")
    assert found.function(pair, choice) == 1
    assert parse("spine_f1@micro-all")[0].pieces is not None
    config = yaml.safe_load(annotator) | {"taxonomy": str(tmp_path / "spine.yaml")}
    assert isinstance(build_candidate(config).load(), TextAnnotator)


def test_what_the_docs_say_to_ask_for_can_be_asked_for():
    text = (CONFIGS.parent / "docs" / "definitions" / "report_labels.md").read_text()
    named = re.findall(r"`((?:rule_labeler|chexbert|radbert_ct|srr_bert_\w+|pet_uptake)_\w+@[^`]+)`", text)
    assert len(named) > 20
    evidence = ScoreTable(*(np.array([], kind) for kind in (int, str, str, float, str)), {}, 0, {})
    for name in named:
        found, choice = parse(name)
        if found.pieces is not None:
            assert found.pieces(evidence, choice).shape[0] == 0
