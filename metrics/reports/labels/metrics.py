"""Clinical efficacy of reports by labels: what a labeller reads in a report, beside what it reads in the reference.

Labels come from our own rules (`rule_labeler`), from CheXbert, or from other labellers with their own taxonomies; all
are judged by one arithmetic, `label_scores`, which is public and needs no weights. A further labeller takes one call of
`label_family` in a module of its own (docs/definitions/report_labels.md).
"""

from __future__ import annotations

from collections.abc import Mapping

from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.declarations import answer_share
from medimg_eval.metrics.registry import comparisons
from medimg_eval.metrics.reports.labels.family import label_family
from medimg_eval.metrics.reports.labels.pet_uptake import uptake_labels
from medimg_eval.metrics.reports.labels.taxonomies import CHEXPERT, loaded
from medimg_eval.metrics.text import read_value


def _by_rules(text: str) -> Mapping[str, int]:
    from medimg_eval.metrics.reports.labeler.labeler import label_report

    return label_report(text)


label_family(
    "rule_labeler",
    CHEXPERT,
    title="rule CE",
    source="CheXpert's 14 observations, read by rules of our own",
    labeller=_by_rules,
    by="our own rules",
    english=True,
    caution="labels by our own rules, in English; their agreement with CheXbert on real reports is unknown, and "
    "`python -m medimg_eval agree reports=FILE.csv` measures it where the weights are there",
)
label_family(
    "chexbert",
    CHEXPERT,
    title="CheXbert",
    source="Smit et al. 2020; averages as in RadEval, R2Gen and ICON",
    annotator="chexbert",
    caution="labels by CheXbert, which reads 512 word pieces and was trained on impressions",
)
label_family(
    "radbert_ct",
    "radbert_ct",
    title="RadBERT-CT",
    source="Hamamci et al. 2024 (CT-RATE); RadEval's F1RadBERT-CT",
    annotator="radbert_ct",
    caution="No finding: none of the other 18",
)
for _part, _title in (
    ("leaves", "leaves"),
    ("upper", "upper"),
    ("leaves_statuses", "leaves with statuses"),
    ("upper_statuses", "upper with statuses"),
):
    label_family(
        f"srr_bert_{_part}",
        f"srr_bert_{_part}",
        title=f"SRR-BERT {_title}",
        source="Delbrouck et al. 2025; RadEval's SRR-BERT",
        annotator=f"srr_bert_{_part}",
        caution="labels of sentences, united over the report's",
    )
label_family(
    "pet_uptake",
    "pet_uptake",
    title="PET uptake",
    source="after PET2Rep (Zhang et al. 2025); organs and words are inferred from its template",
    labeller=lambda text: uptake_labels(text, loaded("pet_uptake")),
    by="words for organs and tracer uptake",
    caution="Chinese and English words; which organs are key is inferred from PET2Rep's template, and no parity with "
    "its own numbers is claimed",
)


@answer_share(
    title="chexbert_similarity",
    source="Yu et al. 2023 (CXR-Report-Metric)",
    requires=comparisons("chexbert_similarity"),
    settings="vectors of the first token of CheXbert, 512 word pieces at most; an empty text has 0",
)
def chexbert_similarity(pair: AnsweredQuestion) -> float:
    """The cosine of the vectors that CheXbert makes of reference and prediction.

    Vectors are those of the last layer's first token. In [-1, 1], and not a probability: unlike reports have large
    values, too. 0 where nothing was written.
    """
    return read_value(pair, "chexbert_similarity", lambda found: float(found["cosine"]))
