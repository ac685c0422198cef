"""Names of classes in runs and configs from before their modules moved: a moved file starts no run anew."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

log = logging.getLogger(__name__)

_MODELS = {
    "annotators": "TextAnnotator PairAnnotator",
    "baselines": "Chance LongestOption Majority NearestQuestion",
    "bertscore": "BertScore",
    "bundle": "Bundle",
    "chexbert": "CheXbert CheXbertSimilarity",
    "classifier": "Classifier NetworkClassifier",
    "feature_biovil": "BioViLT",
    "feature_classifiers": "FindingClassifier ViewClassifier ModelClassifier",
    "feature_networks": "Inception TransformersEncoder TimmEncoder OpenClipEncoder",
    "feature_siamese": "PatientSiamese",
    "feature_tables": "FeatureTable",
    "features": "FeatureExtractor Pixels",
    "gaussian_mixture": "GaussianMixture",
    "given_texts": "GivenTexts",
    "green": "GreenModel",
    "huggingface": "HuggingFaceVLM",
    "image_classifier": "ImageClassifier",
    "lunguage": "Lunguage",
    "monai_segmenter": "MonaiSegmenter",
    "nnunet": "NnUnetResults",
    "open_clip": "OpenClip",
    "open_clip_classifier": "OpenClipClassifier",
    "openai_compatible": "OpenAICompatible",
    "perceptual": "PerceptualDistance LPIPS DISTS",
    "postprocess": "KeepLargest DropSmall FillHoles",
    "precomputed": "Precomputed",
    "precomputed_classes": "PrecomputedClasses ClassFrequency",
    "precomputed_places": "PrecomputedPlaces PrecomputedNumbers",
    "promptable": "PromptableSegmenter",
    "radgraph": "RadGraph RadGraphXL ModernRadGraphXL",
    "ratescore": "RaTEScore",
    "reconstruction": "ZeroFilled SenseCombine FunctionReconstructor GivenReconstructions",
    "reconstruction_network": "NetworkReconstructor",
    "report_baselines": "NormalReport MostFrequentReport NearestReport",
    "report_classifiers": "ReportClassifier SrrBert",
    "report_generator": "ReportGenerator",
    "sam": "Sam",
    "synthesis": "Diffusers GivenImages",
    "timm_classifier": "TimmClassifier",
    "vista": "VistaSegmenter",
    "vote": "Vote",
}
"""Former module in `medimg_eval.models` -> its classes as they were called, now found in the room itself."""

_RENAMED = {
    "GivenTexts": "PrecomputedReports",
    "GivenImages": "PrecomputedImages",
    "GivenReconstructions": "PrecomputedReconstructions",
}
"""Former name of a class in `medimg_eval.models` -> its name."""

NOW = {
    f"medimg_eval.models.{module}.{name}": f"medimg_eval.models.{_RENAMED.get(name, name)}"
    for module, names in _MODELS.items()
    for name in names.split()
} | {
    "medimg_eval.tasks.stages.StagedQuestionTask": "medimg_eval.tasks.questions.StagedQuestionTask",
    "medimg_eval.tasks.dialogues.ConsultationQuestionTask": "medimg_eval.tasks.questions.ConsultationQuestionTask",
    "medimg_eval.data.layouts.report_table.ReportTable": "medimg_eval.data.layouts.report_sets.ReportTable",
    "medimg_eval.data.layouts.Blend": "medimg_eval.data.layouts.MixedDataset",
    "medimg_eval.data.targets.FromTable": "medimg_eval.data.targets.TableTarget",
}
"""Former path of a class, as it stands in the hashes of stored runs -> its path."""

FORMERLY = {now: former for former, now in NOW.items()}

_LATER = {f"medimg_eval.models.{former}": f"medimg_eval.models.{name}" for former, name in _RENAMED.items()}
"""Paths from between the move of a module and the renaming of its class, which stand in no hash."""


def found_now(config: Any) -> Any:
    """Config with former `_target_`s replaced; renamed classes are logged."""
    return _rename_targets(config, NOW | _LATER, tell=True)


def as_hashed(config: Any) -> Any:
    """Config with the `_target_`s of stored runs' hashes."""
    return _rename_targets(config, FORMERLY)


def _rename_targets(value: Any, names: Mapping[str, str], *, tell: bool = False) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _present_name(inner, names, tell)
            if key == "_target_" and isinstance(inner, str)
            else _rename_targets(inner, names, tell=tell)
            for key, inner in value.items()
        }
    return [_rename_targets(inner, names, tell=tell) for inner in value] if isinstance(value, list | tuple) else value


def _present_name(target: str, names: Mapping[str, str], tell: bool) -> str:
    present = names.get(target, target)
    if tell and target.rpartition(".")[2] != present.rpartition(".")[2]:
        log.warning("%s is now called %s; the former name goes on working", target, present)
    return present
