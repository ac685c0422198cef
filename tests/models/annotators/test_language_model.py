"""Labels by a language model: as an annotator of metrics, and from a tiny local model."""

import math

import pytest

from medimg_eval.data.given_reports import GivenReport
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.evaluation.labelling.report_labels import label_reports
from medimg_eval.instantiate import Annotators, build_candidate
from medimg_eval.metrics.reports import LabelScheme
from medimg_eval.models import LanguageModelLabeler
from tests.helpers import tiny_vlm
from tests.helpers.report_reader import ReadsReports

TWO = LabelScheme.of(
    {
        "findings": ["Edema", "Fracture"],
        "values": {1: "stated", 2: "denied", 0: "left open", -1: "not mentioned"},
        "states": {"positive": 1, "negative": 2, "uncertain": 0, "blank": -1},
    }
)
TEXTS = ["Edema, no fracture", "", "Fracture"]


def test_states_are_what_metrics_of_labels_take():
    made = LanguageModelLabeler(ReadsReports(), TWO)
    assert made.annotate(TEXTS) == [
        {"Edema": 1, "Fracture": 2},
        {"Edema": 0, "Fracture": 0},
        {"Edema": 0, "Fracture": 1},
    ]
    assert made.preferred_batch == 3
    assert LanguageModelLabeler(ReadsReports(spoil={"Edema": "none"}), TWO).annotate(TEXTS)[0] is None
    with pytest.raises(CaseError, match="takes no Edema"):
        LanguageModelLabeler(ReadsReports(refuse="Edema"), TWO).annotate(TEXTS)
    with pytest.raises(UsageError, match="does not write"):
        LanguageModelLabeler(object(), TWO)


def test_a_config_makes_it_with_a_model_within_and_the_scheme_counts_in_its_identity(tmp_path):
    (tmp_path / "danish.yaml").write_text("findings: [Ødem]\nvalues: [1, 0]\nstates: {positive: 1, blank: 0}\n")
    model = {"_target_": "tests.helpers.report_reader.ReadsReports", "values": {"s": 1, "d": 0, "n": 0}}
    config = {
        "_target_": "medimg_eval.models.LanguageModelLabeler",
        "model": model,
        "scheme": str(tmp_path / "danish.yaml"),
    }
    spec = Annotators({"danish": config})["danish"]
    made = spec.load()
    assert made.annotate(["Ødem i lungerne.", "Intet ødem."]) == [{"Ødem": 1}, {"Ødem": 0}]
    first = (made.revision, spec.identity)
    (tmp_path / "danish.yaml").write_text("findings: [Ødem]\nvalues: [2, 0]\nstates: {positive: 2, blank: 0}\n")
    other = Annotators({"danish": config})["danish"]
    assert other.load().revision != first[0]
    assert other.identity != first[1]


@pytest.mark.slow
def test_a_tiny_local_model_is_asked_once_and_tells_what_it_cost(tmp_path):
    folder = tiny_vlm.save(tmp_path / "tiny", "qwen2", context=1024)
    config = {"_target_": "medimg_eval.models.HuggingFaceVLM", "checkpoint": str(folder), "batch": 2, "name": "tiny"}
    scheme = LabelScheme.of(
        {"findings": ["Edema"], "values": ["yes", "no"], "states": {"positive": "yes", "negative": "no"}, "ask": "each"}
        | {"max_new_tokens": 4}
    )
    reports = [GivenReport(f"r{place}", text, "p") for place, text in enumerate([*TEXTS, "Clear."])]
    first = label_reports(reports, scheme, build_candidate(config), accelerator="cpu")
    assert first.asked == 3
    cost = first.cost()
    assert cost.input > 3 * 30
    assert 3 <= cost.output <= 12
    assert cost.seconds > 0
    assert math.isclose(sum(one.cost().output or 0 for one in first.labelled), cost.output)
    again = label_reports(reports, scheme, build_candidate(config), accelerator="cpu")
    assert again.asked == 0
    assert again.values() == first.values()
    assert again.cost() == cost
