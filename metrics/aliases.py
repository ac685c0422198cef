"""What people call metrics: abbreviations of papers, and the names of earlier versions.

A typed name that is no metric is looked up here, whatever its case; `registry.canonical` does it. Scores, tables and
run folders always have the metric's own name.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Alias:
    """What a name that people type stands for.

    Attributes:
        metrics: Names with their parameter; several where the task decides, as masks and answers have an ECE each.
        note: Which other definition goes by the same name in the literature.
        refused: Why we have no such metric, and what to ask for instead.
    """

    metrics: tuple[str, ...] = ()
    note: str = ""
    refused: str = ""


def folded(name: str) -> str:
    """Returns a name without case, hyphens and blanks, as it is looked up."""
    return name.casefold().replace("-", "_").replace(" ", "_")


_PLAIN = {
    "dice": "DSC F1_dice dice_coefficient",
    "iou": "Jaccard mIoU jaccard_index",
    "hd": "Hausdorff hausdorff_distance",
    "hd95": "HD_95 95HD hausdorff95",
    "assd": "average_symmetric_surface_distance",
    "volume_error_abs": "RAVD",
    "volume_error": "RVE",
    "cldice": "centerline_dice",
    "recall": "TPR sensitivity",
    "precision": "PPV_voxel",
    "specificity": "TNR",
    "cpm": "competition_performance_metric",
    "auroc@macro": "AUC ROC_AUC",
    "class_balanced_accuracy@macro": "balanced_accuracy BACC",
    "auprc@macro": "AP_classes",
    "mre": "mean_radial_error",
    "sdr@2": "PCK",
    "frechet_distance@inception": "FID",
    "frechet_distance_inf@inception": "FID_inf",
    "kernel_distance_subsets@inception": "KID",
    "vendi_score@inception": "Vendi",
    "authenticity@inception": "AuthPct",
    "bleu@1": "BLEU1 BLEU_1",
    "bleu@2": "BLEU2 BLEU_2",
    "bleu@3": "BLEU3 BLEU_3",
    "bleu@4": "BLEU BLEU4 BLEU_4",
    "rouge_l": "rougeL",
    "rouge_1": "rouge1",
    "rouge_2": "rouge2",
    "cider_d": "CIDEr",
    "chexbert_f1@micro-14+": "CheXbert_F1 F1_14 micro_f1_14",
    "chexbert_f1@micro-5+": "F1_5 micro_f1_5",
    "radcliq_v1": "RadCliQ",
    "accuracy": "acc",
    "exact_match": "EM",
    "absolute_error": "MAE",
    "bland_altman_low": "LoA_low",
    "bland_altman_high": "LoA_high",
    "free_form_score": "open_ended_score",
    "llava_med_recall": "token_recall_llava_med",
    "first_step_accuracy": "s1a",
    "step_hit_rate": "shr",
    "weighted_prefix_score": "wps",
    "d_mean": "mean_localisation_distance",
    "id_rate": "identification_rate",
}
"""Metric -> what else people call it, parted by blanks."""

ALIASES: dict[str, Alias] = {
    folded(alias): Alias((metric,)) for metric, aliases in _PLAIN.items() for alias in aliases.split()
} | {
    "asd": Alias(("assd",), note="both directions together; asd_pred_to_ref is the directed one"),
    "msd": Alias(("assd",), note="both directions together; asd_pred_to_ref is the directed one"),
    "surface_dice": Alias(("nsd@1",), note="at a tolerance of 1 mm; name another as nsd@2"),
    "mmd": Alias(("kernel_distance@inception",), note="with KID's cubic kernel; cmmd@NAME has a Gaussian one"),
    "map": Alias(("average_precision",), note="of each label; the table's mean over labels is the mAP"),
    "ap": Alias(("auprc@macro", "average_precision")),
    "radgraph_f1": Alias(
        ("radgraph_f1_entity_has_relation",),
        note="the level that most papers mean; radgraph_f1_entity and radgraph_f1_entity_relation are the others",
    ),
    "ece": Alias(("ece@15", "ece_width@15")),
    "mce": Alias(("mce@15",)),
    "ace": Alias(("ace@15", "ece_mass@15")),
    "brier": Alias(("brier", "brier_score")),
    "nll": Alias(("nll", "log_loss")),
    "meteor": Alias(
        refused="METEOR matches synonyms of WordNet, which is not shipped; meteor_no_synonyms leaves them out"
    ),
    "prdc": Alias(refused="name improved_precision, improved_recall, density and coverage, each as NAME@EXTRACTOR"),
}
"""Folded alias -> what it stands for."""

FORMER: dict[str, str] = {
    "exact_match_ratio": "exact_match_ratio",
    "bleu_13a_reference_length": "bleu_13a_reference_length",
    "bleu_reference_length": "bleu_reference_length",
    "candidate": "detection_score",
    "f1_score": "f1_score",
    "ppv": "ppv",
    "contains": "answer_contains_reference",
    "finding_agreement": "finding_agreement",
    "predicted_class": "predicted_class",
    "predicted_position": "predicted_position",
    "region_precision_ids": "region_precision_ids",
    "hd95_definition_gap": "hd95_definition_gap",
    "accuracy_in_range": "accuracy_in_range",
    "lesions": "n_reference_lesions",
    "macro_group_accuracy": "macro_group_accuracy",
    "meteor_no_synonyms": "meteor_no_synonyms",
    "missed": "false_negatives",
    "modern_radgraph_xl_f1_entity_relation": "modern_radgraph_xl_f1_entity_relation",
    "modern_radgraph_xl_f1_entity_has_relation": "modern_radgraph_xl_f1_entity_has_relation",
    "modern_radgraph_xl_f1_entity": "modern_radgraph_xl_f1_entity",
    "paired_feature_distance": "paired_feature_distance",
    "pixel_distance_chexgenbench": "pixel_distance_chexgenbench",
    "radgraph_f1_entity_relation": "radgraph_f1_entity_relation",
    "radgraph_f1_entity_has_relation": "radgraph_f1_entity_has_relation",
    "radgraph_f1_entity": "radgraph_f1_entity",
    "radgraph_xl_f1_entity_relation": "radgraph_xl_f1_entity_relation",
    "radgraph_xl_f1_entity_has_relation": "radgraph_xl_f1_entity_has_relation",
    "radgraph_xl_f1_entity": "radgraph_xl_f1_entity",
    "regions_reference": "regions_reference",
    "reference_class": "reference_class",
    "rule_labeler_example_f1": "rule_labeler_example_f1",
    "rule_labeler_f1": "rule_labeler_f1",
    "rule_labeler_precision": "rule_labeler_precision",
    "rule_labeler_recall": "rule_labeler_recall",
    "rule_labeler_states": "rule_labeler_states",
    "rule_labeler_support": "rule_labeler_support",
    "chexbert_similarity": "chexbert_similarity",
    "group_accuracy": "group_accuracy",
    "group_accuracy_among": "group_accuracy_among",
    "coverage": "coverage",
    "density": "density",
    "improved_precision": "improved_precision",
    "improved_recall": "improved_recall",
    "top1_accuracy": "top1_accuracy",
    "ett_carina_invented": "ett_carina_invented",
    "ett_carina_mae": "ett_carina_mae",
    "ett_carina_missing": "ett_carina_missing",
    "generation_failure_rate": "generation_failure_rate",
    "view_accuracy": "view_accuracy",
    "within": "accuracy_within",
    "accuracy_within_percent": "accuracy_within_percent",
}
"""Name in configs and runs of earlier versions -> name."""
