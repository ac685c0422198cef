"""What people type for a metric, and what scores call it."""

import json
from pathlib import Path

import pytest

from medimg_eval.errors import UsageError
from medimg_eval.metrics import as_known, available, canonical, get, metric, parse, present_name
from medimg_eval.metrics.aliases import ALIASES, FORMER, folded

GOLDEN = Path(__file__).parents[1] / "golden" / "metrics.json"


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("FID", "frechet_distance@inception"),
        ("fid@dinov2", "frechet_distance@dinov2"),
        ("KID", "kernel_distance_subsets@inception"),
        ("DSC", "dice"),
        ("95HD", "hd95"),
        ("ROUGE-L", "rouge_l"),
        ("MS-SSIM", "ms_ssim"),
        ("CIDEr-D", "cider_d"),
        ("RadCliQ-v1", "radcliq_v1"),
        ("GREEN", "green"),
        ("BLEU-4", "bleu@4"),
        ("nsd@2", "nsd@2"),
        ("surface dice@3", "nsd@3"),
        ("AUC", "auroc@macro"),
        ("radgraph_f1_entity_has_relation", "radgraph_f1_entity_has_relation"),
        ("accuracy_within@5", "accuracy_within@5"),
    ],
)
def test_what_people_type_is_found(typed, name):
    assert canonical(typed) == name


def test_one_alias_of_two_metrics_is_settled_by_what_is_judged():
    assert canonical("ECE", ("probability",)) == "ece@15"
    assert canonical("ECE", ("answer",)) == "ece_width@15"
    with pytest.raises(UsageError, match=r"'ECE' is one of ece@15, ece_width@15"):
        canonical("ECE")


def test_what_we_lack_is_refused_with_its_reason():
    with pytest.raises(UsageError, match="WordNet.*meteor_no_synonyms"):
        canonical("METEOR")


def test_an_alias_that_others_define_otherwise_says_so(caplog):
    assert canonical("ASD") == "assd"
    assert "asd_pred_to_ref" in caplog.text


def test_a_former_name_gives_the_present_one_in_a_sentence(caplog):
    assert canonical("generation_failure_rate") == "generation_failure_rate"
    assert "generation_failure_rate is now called generation_failure_rate" in caplog.text


def test_every_alias_stands_for_a_metric_and_no_two_metrics_share_one():
    for alias, found in ALIASES.items():
        assert alias == folded(alias)
        assert bool(found.metrics) != bool(found.refused)
        for name in found.metrics:
            parse(name)
    names = [folded(name) for name in available()]
    assert len(set(names)) == len(names)


def test_every_former_name_leads_to_a_metric():
    assert FORMER.keys().isdisjoint(available())
    assert all(get(name) for name in FORMER.values())
    assert set(FORMER.values()) <= json.loads(GOLDEN.read_text()).keys()


def test_a_misspelling_names_three_metrics_at_most_and_the_command_that_lists_all():
    with pytest.raises(UsageError) as raised:
        parse("dise")
    assert "'dice'" in str(raised.value)
    assert "python -m medimg_eval list" in str(raised.value)
    assert len(str(raised.value)) < 300


def test_names_of_other_programs_stay_as_they_are():
    assert as_known(["DSC", "my_score"]) == ["dice", "my_score"]
    assert as_known({"brain": "FID"}) == {"brain": "frechet_distance@inception"}
    assert as_known(None) is None


def test_rows_of_stored_runs_are_renamed_with_their_parameter():
    assert present_name("accuracy_within@5") == "accuracy_within@5"
    assert present_name("dice") == "dice"


def test_a_metric_of_ones_own_brings_its_aliases(monkeypatch):
    from medimg_eval.metrics import registry

    monkeypatch.setattr(registry, "_METRICS", dict(registry._METRICS))

    @metric(
        kind="mask", title="Mine", higher_is_better=True, best=1.0, worst=0.0, source="us", aliases=("My Own-Score",)
    )
    def my_metric(pair):
        return 1.0

    assert canonical("my_own_score") == "my_metric"
