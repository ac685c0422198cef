"""CRIMSON: findings that a judge has weighed by how much they matter, and what a report makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

from medimg_eval.errors import UsageError
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.declarations import answer_share
from medimg_eval.metrics.judges.verdicts import counted, objects, verdict_reader, worth
from medimg_eval.metrics.registry import judge_says

SIGNIFICANCE = {
    "urgent": 1.0,
    "actionable_not_urgent": 0.5,
    "not_actionable_not_urgent": 0.25,
    "benign_expected": 0.0,
}
"""What a finding weighs."""

SEVERITY = {"significant": 0.5, "negligible": 0.0}
"""What an error in a finding's attributes weighs."""

UNKNOWN = 0.25
"""What either weighs where the judge gave another word."""

Evaluation = Mapping[str, Any]
"""What a judge says in CRIMSON's form: `reference_findings` and `predicted_findings`, each with `id` and
`clinical_significance`; `matched_findings`, each with `ref_id` and `pred_id`; `errors` with the ids of
`false_findings` and `missing_findings`, and `attribute_errors`, each with `ref_id` and `severity`."""


def crimson_score(evaluation: Evaluation) -> float:
    """Returns CRIMSON of a judge's evaluation, in (-1, 1].

    With the weights of findings (1, 0.5, 0.25, 0) S = (correct - false) / N, where N is the weight of the reference's
    findings, false that of findings which are not there, and correct that of findings which match, each reference
    finding once; one of weight w whose attributes have errors of weight e counts w * w / (w + e). S is the score where
    it is not negative; else it is -x / (1 + x) with x = false - correct. Where the reference's findings weigh nothing,
    the score is 1 if the report invents nothing that weighs, and -x / (1 + x) else. 0 is what a normal report is
    worth beside one with findings; the authors round to four places, which this does not.
    """
    errors = evaluation["errors"]
    weights = _finding_weights(evaluation["reference_findings"])
    invented = _finding_weights(evaluation["predicted_findings"])
    false = sum(invented.get(finding_id, 0.0) for finding_id in errors["false_findings"])
    missing = sum(weights.get(finding_id, 0.0) for finding_id in errors["missing_findings"])
    correct = _correct_weight(evaluation, weights)
    total = sum(_finding_weight(finding) for finding in evaluation["reference_findings"])
    if not evaluation["reference_findings"]:
        total = len(evaluation["matched_findings"]) + missing
    if total == 0 and false == 0 and missing == 0:
        return 1.0
    if total > 0 and correct >= false:
        return float((correct - false) / total)
    excess = false - correct
    return float(-excess / (1 + excess)) if excess > 0 else 0.0


def crimson_errors(evaluation: Evaluation, kind: Literal["false", "missing", "attribute"]) -> float:
    """Returns a judge's number of invented, missed or attribute errors."""
    return float(len(evaluation["errors"][f"{kind}_errors" if kind == "attribute" else f"{kind}_findings"]))


@verdict_reader("crimson")
def read_crimson(reply: str) -> Evaluation | None:
    """Returns an evaluation in CRIMSON's form; None where a reply lacks its lists of findings or an id in them."""
    for evaluation in objects(reply):
        errors = evaluation.get("errors", {})
        if not isinstance(errors, Mapping):
            continue
        matched = evaluation.get("matched_findings", [])
        findings = [evaluation.get("reference_findings"), evaluation.get("predicted_findings")]
        attributes = errors.get("attribute_errors", [])
        lists = [errors.get("false_findings", []), errors.get("missing_findings", [])]
        if (
            all(_have_texts(finding, "id") for finding in findings)
            and _have_texts(matched, "ref_id")
            and _have_texts(attributes, "ref_id")
        ):
            if not all(isinstance(items, list) and all(isinstance(name, str) for name in items) for items in lists):
                continue
            return {
                "reference_findings": findings[0],
                "predicted_findings": findings[1],
                "matched_findings": matched,
                "errors": {"false_findings": lists[0], "missing_findings": lists[1], "attribute_errors": attributes},
            }
    return None


def _have_texts(entries: Any, key: str) -> bool:
    """True if a list holds objects with texts under `key`."""
    return isinstance(entries, list) and all(
        isinstance(entry, Mapping) and isinstance(entry.get(key), str) for entry in entries
    )


def _finding_weight(finding: Mapping[str, Any]) -> float:
    return SIGNIFICANCE.get(str(finding.get("clinical_significance", "")), UNKNOWN)


def _finding_weights(findings: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    return {finding["id"]: _finding_weight(finding) for finding in findings}


def _correct_weight(evaluation: Evaluation, weights: Mapping[str, float]) -> float:
    """Weight of matching reference findings, less for wrong attributes."""
    penalties: dict[str, float] = {}
    for error in evaluation["errors"]["attribute_errors"]:
        penalty = SEVERITY.get(str(error.get("severity", "")), UNKNOWN)
        penalties[error["ref_id"]] = penalties.get(error["ref_id"], 0.0) + penalty
    matched = {match["ref_id"]: weights.get(match["ref_id"], 0.0) for match in evaluation["matched_findings"]}
    return sum(weight * weight / (weight + penalties.get(name, 0.0)) for name, weight in matched.items() if weight > 0)


_BAHAROON = "Baharoon et al. 2026, CRIMSON"
_UNGUIDED = "CRIMSON's published prompt without guidelines"

_signed = partial(answer_share, worst=-1.0, source=_BAHAROON)


@_signed(title="CRIMSON", requires=judge_says("crimson"), settings=_UNGUIDED)
def crimson(pair: AnsweredQuestion) -> float:
    """The weighed findings that are right less those that are invented, over those of the reference, in (-1, 1].

    It is `crimson_score`: 1 for a report with the same abnormal findings, also for none beside a normal reference; 0
    for a normal or empty report beside findings. The prompt is the one that CRIMSON's own model was trained on
    (model@judge=crimson); the table names the judge. It is for chest radiographs alone.
    """
    return worth(pair, "crimson", crimson_score)


@_signed(
    title="CRIMSON (guided)",
    requires=judge_says("crimson_guided"),
    settings="CRIMSON's published prompt with guidelines",
)
def crimson_guided(pair: AnsweredQuestion) -> float:
    """CRIMSON by a judge that is told the authors' guidelines on significance and attributes.

    It is for judges that were not trained for it, as the authors ask GPT; the arithmetic is that of `crimson`.
    """
    return worth(pair, "crimson_guided", crimson_score)


@counted(
    title="CRIMSON errors",
    source=_BAHAROON,
    requires=judge_says("crimson"),
    settings=_UNGUIDED,
    parameter="false, missing or attribute",
    value_kind="count",
)
def crimson_error_count(pair: AnsweredQuestion, kind: str) -> float:
    """The number of findings that are invented (@false), missed (@missing), or wrong in an attribute (@attribute)."""
    if kind not in ("false", "missing", "attribute"):
        raise UsageError(f"crimson_error_count@{kind}: expected false, missing or attribute")
    return worth(pair, "crimson", lambda found: crimson_errors(found, kind))  # type: ignore[arg-type]
