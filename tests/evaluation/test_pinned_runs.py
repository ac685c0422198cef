"""A run keeps its id when files move: stored runs go on, and are not begun anew."""

import re
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

import medimg_eval
from medimg_eval.data.former_names import FORMERLY, NOW, as_hashed, found_now
from medimg_eval.evaluation.plan import task_identity
from medimg_eval.instantiate import build_candidate, build_task
from medimg_eval.store import digest
from tests.helpers.catalogue import composed

PINNED = [
    ("brain_tissue", "unet_small", {}, "2e36b75a", "3d62650e"),
    ("brain_tissue", "gaussian_mixture", {}, "8cd46c3c", "ac19238f"),
    ("slake", "huggingface_vlm", {"checkpoint": "org/model"}, "3f59aa84", "b7ff0165"),
    ("vqa_rad", "openai_compatible", {"model": "m"}, "15347fbe", "e25db306"),
    ("iu_xray_findings", "given_texts", {"file": "x.csv"}, "1c7a724f", "975c72e4"),
    ("iu_xray_findings", "precomputed_reports", {"file": "x.csv"}, "1c7a724f", "975c72e4"),
    ("cxreasonbench", "huggingface_vlm", {"checkpoint": "org/model"}, "8e99f897", "b7ff0165"),
    ("mediconfusion", "open_clip", {"checkpoint": "org/model"}, "d2b3fffa", "9077ca6e"),
    ("phantom_findings", "image_classifier", {}, "efb2c3ce", "76e40a6f"),
    ("verse2020_landmarks", "precomputed", {"root": "x"}, "7a24f035", "040a08e7"),
    ("fastmri_knee_4x", "zero_filled", {}, "909eb032", "8b8fe28e"),
    ("chexgenbench", "given_images", {"root": "x"}, "e20b5388", "be3146a5"),
    ("chexgenbench", "precomputed_images", {"root": "x"}, "e20b5388", "be3146a5"),
    ("iu_xray_retrieval", "open_clip", {"checkpoint": "org/model"}, "ca292255", "9077ca6e"),
]
"""Task, model, changes, id of both without data, settings of the model: as they were when classes lay elsewhere."""


@pytest.mark.parametrize(("task", "model", "changes", "run", "settings"), PINNED)
def test_the_id_of_a_run_does_not_follow_its_files(task, model, changes, run, settings):
    with initialize_config_module("medimg_eval.configs", version_base="1.3"):
        words = [f"model.{key}={value}" for key, value in changes.items()]
        config = OmegaConf.to_container(compose(f"model/{model}", words).model, resolve=True)
    layout = composed(task)["layout"]
    rooted = layout | ({"root": "data"} if "root" in layout else {})
    made = build_task(composed(task) | {"layout": rooted})
    candidate = build_candidate(config)
    assert digest({"task": task_identity(made), "model": candidate.identity}) == run
    assert candidate.settings == settings


def test_former_names_lead_to_classes_that_there_are():
    for former, now in NOW.items():
        config = {"_target_": former, "inner": [{"_target_": former}]}
        assert found_now(config) == {"_target_": now, "inner": [{"_target_": now}]}
        assert as_hashed(found_now(config)) == config
        assert build_candidate({"_target_": former}).wrapper.__name__ == now.rpartition(".")[2]
    assert len(FORMERLY) == len(NOW)


def test_a_renamed_class_is_found_by_its_former_name_and_the_log_says_how_it_is_called_now(caplog):
    config = {"_target_": "medimg_eval.models.GivenTexts", "file": "x.csv"}
    assert found_now(config) == {"_target_": "medimg_eval.models.PrecomputedReports", "file": "x.csv"}
    assert "medimg_eval.models.GivenTexts is now called medimg_eval.models.PrecomputedReports" in caplog.text


def test_every_class_that_a_command_names_itself_is_named_by_its_face():
    source = (Path(medimg_eval.__file__).parent / "file_scores" / "reports.py").read_text(encoding="utf-8")
    (layout,) = re.findall(r'"(medimg_eval\.data\.layouts\.\S+)"', source)
    assert FORMERLY[layout] == "medimg_eval.data.layouts.report_table.ReportTable"
