"""A radiologist's report in templated sentences that say exactly what is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    """Puts findings into words, in an order and in sentences that differ from case to case.

    Args:
        findings: name -> present or not.
        sides: name of a present finding -> `left` or `right`.
        ratio: cardiothoracic.
        diameter: of the nodule in mm.
        rng: chooses the sentences.
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
