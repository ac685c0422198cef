"""A radiologist's report in templated sentences that say exactly what is there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

PRESENT: Mapping[str, Sequence[str]] = {
    "cardiomegaly": (
        "The heart is enlarged, with a cardiothoracic ratio of {ratio:.2f}.",
        "There is cardiomegaly (cardiothoracic ratio {ratio:.2f}).",
        "The cardiac silhouette is enlarged; the cardiothoracic ratio is {ratio:.2f}.",
    ),
    "nodule": (
        "There is a nodule of {diameter:.0f} mm in the {side} lung.",
        "A round nodule measuring {diameter:.0f} mm projects over the {side} lung.",
        "The {side} lung shows a well-defined nodule, {diameter:.0f} mm in diameter.",
    ),
    "pleural effusion": (
        "There is a pleural effusion on the {side}.",
        "The {side} costophrenic angle is blunted by a pleural effusion.",
        "A {side}-sided pleural effusion with a meniscus is seen.",
    ),
    "pneumothorax": (
        "There is a {side}-sided pneumothorax.",
        "A pneumothorax is seen at the {side} apex, with a visible pleural line.",
        "The {side} lung is partly collapsed by a pneumothorax.",
    ),
}

ABSENT: Mapping[str, Sequence[str]] = {
    "cardiomegaly": (
        "The heart is of normal size, with a cardiothoracic ratio of {ratio:.2f}.",
        "The cardiac silhouette is not enlarged (cardiothoracic ratio {ratio:.2f}).",
    ),
    "nodule": ("No nodule is seen.", "The lungs are free of nodules.", "There is no pulmonary nodule."),
    "pleural effusion": (
        "No pleural effusion.",
        "The costophrenic angles are sharp, without pleural effusion.",
        "There is no pleural effusion.",
    ),
    "pneumothorax": ("No pneumothorax.", "There is no pneumothorax.", "No pneumothorax is seen on either side."),
}

SUMMARY: Mapping[str, str] = {
    "cardiomegaly": "Cardiomegaly.",
    "nodule": "{Side} lung nodule.",
    "pleural effusion": "{Side} pleural effusion.",
    "pneumothorax": "{Side} pneumothorax.",
}

NOTHING = ("No acute cardiopulmonary abnormality.", "Normal chest radiograph.", "Normal heart and lungs.")


def report(
    findings: Mapping[str, bool], sides: Mapping[str, str], ratio: float, diameter: float, rng: np.random.Generator
) -> str:
    """Words findings in varying order and sentences.

    Sides are those of present findings, `left` or `right`; the ratio is cardiothoracic, the diameter the nodule's in
    mm.
    """
    sentences: list[str] = []
    summary: list[str] = []
    names = list(findings)
    for name in (names[n] for n in rng.permutation(len(names))):
        side = sides.get(name, "")
        words = {"side": side, "Side": side.capitalize(), "ratio": ratio, "diameter": diameter}
        choice = (PRESENT if findings[name] else ABSENT)[name]
        sentences.append(choice[int(rng.integers(len(choice)))].format(**words))
        if findings[name]:
            summary.append(SUMMARY[name].format(**words))
    if not summary:
        summary = [NOTHING[int(rng.integers(len(NOTHING)))]]
    return f"FINDINGS: {' '.join(sentences)} IMPRESSION: {' '.join(summary)}"


@dataclass(frozen=True)
class Finding:
    """Something that a report describes: a key of `DESCRIBED`.

    The side is `left`, `right` or `both`, `larger` of both the one with more; the zone `upper`, `mid` or `lower`. The
    size is of an effusion its height, of a pneumothorax its depth, of a nodule its diameter, of a tube the distance of
    its tip from the carina, all in mm; of the heart the cardiothoracic ratio.
    """

    name: str
    side: str = ""
    zone: str = ""
    size: float = 0
    larger: str = ""


DEGREES: Mapping[str, tuple[tuple[float, str, str], ...]] = {
    "cardiomegaly": ((0.55, "mild", "mildly"), (0.6, "moderate", "moderately"), (9, "marked", "markedly")),
    "pleural effusion": ((38, "small", ""), (58, "moderate", ""), (999, "large", "")),
    "pneumothorax": ((30, "small", ""), (39, "moderate", ""), (999, "large", "")),
    "nodule": ((30, "nodule", ""), (999, "mass", "")),
}
"""Sizes below which a finding is called so, as adjective (of a nodule: as noun) and as adverb."""

DESCRIBED: Mapping[str, Sequence[str]] = {
    "pacemaker": (
        "A {side}-sided pacemaker is in place.",
        "{Side} chest wall pacemaker with its lead projecting over the heart.",
        "There is a pacemaker on the {side}, with a single lead.",
        "A cardiac pacemaker projects over the {side} chest wall.",
    ),
    "endotracheal tube": (
        "An endotracheal tube terminates {cm} cm above the carina.",
        "The tip of the endotracheal tube lies {mm} mm above the carina.",
        "The endotracheal tube is {cm} cm above the carina.",
        "ET tube with its tip {cm} cm above the carina.",
    ),
    "cardiomegaly": (
        "The heart is {degree_ly} enlarged.",
        "{Degree} cardiomegaly.",
        "The cardiac silhouette is {degree_ly} enlarged.",
        "There is {degree} cardiomegaly, with a cardiothoracic ratio of {ratio}.",
        "The heart size is {degree_ly} enlarged.",
    ),
    "edema": (
        "There is bilateral perihilar haze, consistent with pulmonary edema.",
        "Pulmonary edema is present.",
        "Interstitial edema on both sides.",
        "Perihilar pulmonary edema is seen bilaterally.",
    ),
    "consolidation": (
        "There is consolidation in the {side} {zone} zone.",
        "Focal consolidation is seen in the {zone} zone of the {side} lung.",
        "Dense consolidation of the {side} {zone} lung.",
        "{Side} {zone} zone consolidation.",
    ),
    "nodule": (
        "There is a {cm} cm {degree} in the {side} {zone} zone.",
        "A rounded {degree} measuring {mm} mm projects over the {side} {zone} lung.",
        "{Side} {zone} zone pulmonary {degree}, {cm} cm in diameter.",
        "The {side} lung shows a well-defined {degree} of {mm} mm in its {zone} zone.",
    ),
    "pleural effusion": (
        "There is a {degree} {side} pleural effusion.",
        "A {degree} {side}-sided pleural effusion is seen.",
        "The {side} costophrenic angle is blunted by a {degree} pleural effusion.",
        "{Degree} pleural effusion on the {side}.",
        "A {degree} amount of pleural fluid has collected on the {side}.",
    ),
    "pneumothorax": (
        "There is a {degree} {side} pneumothorax.",
        "A {degree} {side}-sided pneumothorax is seen, {mm} mm deep.",
        "{Degree} pneumothorax on the {side}, measuring {cm} cm.",
        "{Side} apical pneumothorax, {degree} in size.",
    ),
}
"""What may be there, in the order in which reports have it -> ways to say so."""

BILATERAL: Sequence[str] = (
    "There are bilateral pleural effusions, larger on the {larger}.",
    "Bilateral {degree} pleural effusions are seen.",
    "Pleural effusions on both sides, {larger} greater than {smaller}.",
    "{Degree} bilateral pleural effusions.",
)

NOUNS: Mapping[str, Sequence[str]] = {
    "edema": ("pulmonary edema", "edema", "interstitial edema"),
    "consolidation": ("focal consolidation", "consolidation"),
    "nodule": ("pulmonary nodule", "nodule"),
    "pleural effusion": ("pleural effusion", "effusion", "pleural fluid"),
    "pneumothorax": ("pneumothorax",),
}
"""What reports say is not there -> how they call it."""

DENIED: Sequence[str] = (
    "No {things}.",
    "There is no {things}.",
    "No evidence of {things}.",
    "No {things} is seen.",
    "Negative for {things}.",
    "There is no evidence of {things}.",
    "No {things} identified.",
)

USUAL_HEART: Sequence[str] = (
    "The heart size is normal.",
    "Heart size is within normal limits.",
    "The cardiac silhouette is normal.",
    "The heart is not enlarged.",
    "No cardiomegaly.",
)

CLEAR: Sequence[str] = ("The lungs are clear.", "Both lungs are clear.", "Lungs are well expanded and clear.")

CONCLUDED: Mapping[str, Sequence[str]] = {
    "pacemaker": ("{Side}-sided pacemaker in place.", "Pacemaker in place."),
    "endotracheal tube": ("Endotracheal tube {cm} cm above the carina.", "Endotracheal tube in place."),
    "cardiomegaly": ("{Degree} cardiomegaly.", "Cardiomegaly."),
    "edema": ("Pulmonary edema.", "Findings of pulmonary edema."),
    "consolidation": ("{Side} {zone} zone consolidation.", "Consolidation in the {side} lung."),
    "nodule": ("{Side} {zone} zone {degree}, {cm} cm.", "{cm} cm {degree} in the {side} lung."),
    "pleural effusion": ("{Degree} {side} pleural effusion.", "{Side} pleural effusion."),
    "pneumothorax": ("{Degree} {side} pneumothorax.", "{Side} pneumothorax, {cm} cm."),
}

UNREMARKABLE: Sequence[str] = (
    "No acute cardiopulmonary abnormality.",
    "No acute cardiopulmonary process.",
    "Normal chest radiograph.",
    "No acute disease.",
)

REASONS: Sequence[str] = (
    "Shortness of breath.",
    "Chest pain.",
    "Cough and fever.",
    "Fall from standing height.",
    "Before an operation.",
    "Follow-up.",
)

MENTIONED = 0.75
"""How often an absent finding is said to be absent."""


def sections(found: Sequence[Finding], rng: np.random.Generator) -> dict[str, str]:
    """Report of exactly these findings: `indication`, `findings`, `impression`."""
    present = {finding.name: finding for finding in found}
    sentences = {name: _describe_finding(present[name], DESCRIBED, rng) for name in DESCRIBED if name in present}
    if "cardiomegaly" not in present and rng.random() < MENTIONED:
        sentences["heart"] = _draw_choice(USUAL_HEART, rng)
    if not {"edema", "consolidation", "nodule"} & present.keys() and rng.random() < MENTIONED:
        sentences["lungs"] = _draw_choice(CLEAR, rng)
    absent = [name for name in NOUNS if name not in present and rng.random() < MENTIONED]
    written = [*sentences.values(), *_draw_denials(absent, rng)]
    turn = int(rng.integers(len(written))) if written and rng.random() < 0.2 else 0  # some begin elsewhere
    summary = [_describe_finding(finding, CONCLUDED, rng) for finding in present.values()] or [
        _draw_choice(UNREMARKABLE, rng)
    ]
    return {
        "indication": _draw_choice(REASONS, rng),
        "findings": " ".join([*written[turn:], *written[:turn]]) or summary[0],
        "impression": " ".join(summary),
    }


def _describe_finding(finding: Finding, ways: Mapping[str, Sequence[str]], rng: np.random.Generator) -> str:
    choice = BILATERAL if finding.side == "both" else ways[finding.name]
    degrees = DEGREES.get(finding.name, ((float("inf"), "", ""),))
    degree, manner = next((word, adverb) for limit, word, adverb in degrees if finding.size < limit)
    return _draw_choice(choice, rng).format(
        side=finding.side,
        Side=finding.side.capitalize(),
        zone=finding.zone,
        degree=degree,
        Degree=degree.capitalize(),
        degree_ly=manner,
        larger=finding.larger,
        smaller="right" if finding.larger == "left" else "left",
        ratio=f"{finding.size:.2f}",
        cm=f"{finding.size / 10:.1f}",
        mm=f"{finding.size:.0f}",
    )


def _draw_denials(absent: Iterable[str], rng: np.random.Generator) -> list[str]:
    """Sentences that deny one, two or three things each, in any order."""
    things = [_draw_choice(NOUNS[name], rng) for name in absent]
    things = [things[n] for n in rng.permutation(len(things))]
    sentences = []
    while things:
        count = int(rng.integers(1, 4))
        some, things = things[:count], things[count:]
        listed = " or ".join(some) if len(some) < 3 else f"{', '.join(some[:-1])}, or {some[-1]}"
        sentences.append(_draw_choice(DENIED, rng).format(things=listed))
    return sentences


def _draw_choice(choice: Sequence[str], rng: np.random.Generator) -> str:
    return choice[int(rng.integers(len(choice)))]
