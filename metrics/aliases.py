"""What people call metrics: abbreviations of papers, and the names of earlier versions.

A typed name that is no metric is looked up here, whatever its case; `registry.canonical` does it. Scores, tables and
run folders always have the metric's own name.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Alias:
    """Metric that an alias stands for.

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
    "coco_ap": "AP@[.5:.95] AP@[0.5:0.95] AP@[.50:.05:.95] mAP@[.5:.95] mAP@[0.5:0.95] mAP@0.5:0.95 mAP50_95 COCO_mAP",
    "coco_ap@50": "coco_ap50 AP50 mAP50 mAP_50 mAP@50 AP@50 mAP@0.5 AP@0.5",
    "coco_ap@75": "coco_ap75 AP75 mAP75 mAP_75 mAP@75 AP@75 mAP@0.75 AP@0.75",
    "coco_ap@small": "coco_ap_small coco_aps AP_small APs",
    "coco_ap@medium": "coco_ap_medium coco_apm AP_medium APm",
    "coco_ap@large": "coco_ap_large coco_apl AP_large APl",
    "coco_ar@1": "coco_ar1 AR@1 AR_1",
    "coco_ar@10": "coco_ar10 AR@10 AR_10",
    "coco_ar@100": "coco_ar100 AR@100 AR_100",
    "coco_ar@small": "coco_ar_small coco_ars AR_small ARs",
    "coco_ar@medium": "coco_ar_medium coco_arm AR_medium ARm",
    "coco_ar@large": "coco_ar_large coco_arl AR_large ARl",
    "cpm": "competition_performance_metric",
    "auroc@macro": "AUC ROC_AUC",
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
    "map": Alias(("average_precision",), note="at the task's IoU, every point of the curve; COCO's mAP is coco_ap"),
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
        refused="METEOR matches synonyms of WordNet, which is not shipped; meteor_no_synonyms leaves them out, and "
        "meteor_wordnet takes yours by annotators.wordnet.folder=PATH"
    ),
    "prdc": Alias(
        refused="name improved_precision, improved_recall, density and coverage, each as NAME@EXTRACTOR, or as "
        "NAME_uncut@EXTRACTOR for the package's values of sets of unequal size"
    ),
}
"""Folded alias -> what it stands for."""

FORMER: dict[str, str] = {
    "all_classes_right": "exact_match_ratio",
    "bleu_13a_due": "bleu_13a_reference_length",
    "bleu_due": "bleu_reference_length",
    "candidate": "detection_score",
    "class_f1": "f1_score",
    "class_precision": "ppv",
    "contains": "answer_contains_reference",
    "finding_correct": "finding_agreement",
    "given_class": "predicted_class",
    "given_place": "predicted_position",
    "hallucination_resistance": "region_precision_ids",
    "hd95_spread": "hd95_definition_gap",
    "in_range": "accuracy_in_range",
    "lesions": "n_reference_lesions",
    "macro_set_accuracy": "macro_group_accuracy",
    "meteor_stem": "meteor_no_synonyms",
    "missed": "false_negatives",
    "modern_radgraph_xl_complete": "modern_radgraph_xl_f1_entity_relation",
    "modern_radgraph_xl_partial": "modern_radgraph_xl_f1_entity_has_relation",
    "modern_radgraph_xl_simple": "modern_radgraph_xl_f1_entity",
    "own_distance": "paired_feature_distance",
    "pixel_distance_published": "pixel_distance_chexgenbench",
    "radgraph_complete": "radgraph_f1_entity_relation",
    "radgraph_partial": "radgraph_f1_entity_has_relation",
    "radgraph_simple": "radgraph_f1_entity",
    "radgraph_xl_complete": "radgraph_xl_f1_entity_relation",
    "radgraph_xl_partial": "radgraph_xl_f1_entity_has_relation",
    "radgraph_xl_simple": "radgraph_xl_f1_entity",
    "regions_due": "regions_reference",
    "right_class": "reference_class",
    "rule_ce_example_f1": "rule_labeler_example_f1",
    "rule_ce_f1": "rule_labeler_f1",
    "rule_ce_precision": "rule_labeler_precision",
    "rule_ce_recall": "rule_labeler_recall",
    "rule_ce_states": "rule_labeler_states",
    "rule_ce_support": "rule_labeler_support",
    "s_emb": "chexbert_similarity",
    "set_accuracy": "group_accuracy",
    "set_accuracy_among": "group_accuracy_among",
    "set_coverage": "coverage",
    "set_density": "density",
    "set_precision": "improved_precision",
    "set_recall": "improved_recall",
    "top1_correct": "top1_accuracy",
    "tube_invented": "ett_carina_invented",
    "tube_mae": "ett_carina_mae",
    "tube_missing": "ett_carina_missing",
    "unmade": "generation_failure_rate",
    "view_correct": "view_accuracy",
    "within": "accuracy_within",
    "within_percent": "accuracy_within_percent",
}
"""Name in configs and runs of earlier versions -> name."""
