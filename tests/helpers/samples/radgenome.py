"""Samples of RadGenome-Chest CT: tables of questions about regions of volumes of CT-RATE."""

import numpy as np

from tests.helpers.benchmark_files import volume
from tests.helpers.catalogue import reports, sample
from tests.helpers.samples.k3b import write_csv

TABLES = {
    "vqa_presence": (
        ("Volumename", "Anatomy", "Finding", "Presence"),
        ("valid_1_a_1.nii.gz", "lung/lung/right lung", "nodule, mass", "Yes."),
        ("valid_12_b_1.nii.gz", "pleura", "effusion", "No."),
    ),
    "vqa_abnormality": (
        ("Volumename", "Anatomy", "Abnormality"),
        ("valid_1_a_1.nii.gz", "lung/lung/right lung", "nodule, mass"),
        ("valid_12_b_1.nii.gz", "pleura", ""),
    ),
    "vqa_location": (
        ("Volumename", "Anatomy", "Abnormality"),
        ("valid_1_a_1.nii.gz", "lung/lung/right lung", "mass"),
        ("valid_1_a_1.nii.gz", "lung/lung", "mass"),
    ),
    "vqa_size": (
        ("Volumename", "Anatomy", "Abnormality", "Size"),
        ("valid_1_a_1.nii.gz", "lung/right lung", "mass", "2 cm"),
        ("valid_12_b_1.nii.gz", "pleura/pleura", "pleural effusion", "50 mm"),
    ),
    "case_disorders": (
        ("Volumename", "Disorders"),
        ("valid_1_a_1.nii.gz", "emphysema, nodule"),
        ("valid_12_b_1.nii.gz", "no findings"),
    ),
    "region_report": (
        ("Volumename", "Anatomy", "Sentence"),
        ("valid_1_a_1.nii.gz", "lung/right lung", "There is a nodule in the right lung."),
        ("valid_1_a_1.nii.gz", "", "No other finding."),
    ),
}
FIRST, SECOND = "valid_1_a_1-1", "valid_12_b_1-2"
AGAIN = "valid_1_a_1-2"


def radgenome(root):
    """All tables, and a volume for each scan, in the folders of CT-RATE."""
    for name, (columns, *rows) in TABLES.items():
        write_csv(root / "dataset" / "radgenome_files" / f"validation_{name}.csv", columns, *rows)
    for number, letter in ((1, "a"), (12, "b")):
        folder = root / "dataset" / "valid_preprocessed" / f"valid_{number}" / f"valid_{number}{letter}"
        volume(folder / f"valid_{number}_{letter}_1.nii.gz", np.full((6, 6, 40), number))


# Yes is right; the second is answered yes, and no is right. F1 of yes 2 / 3, of no 0.
@sample(
    "radgenome_presence",
    cases=[FIRST, SECOND],
    replies={FIRST: "Yes.", SECOND: "Yes, there is."},
    scores={"accuracy": 1 / 2, "macro_f1": 1 / 3, "unanswered": 0},
    images=32,
    text="Is there any sign of nodule, mass in the right lung?",
)
def radgenome_presence(root):
    """The last part of a region's path is named."""
    radgenome(root)


# nodule is half of what is right, and all of what is said: F1 2 / 3. The empty cell means No Findings.
@sample(
    "radgenome_abnormality",
    cases=[FIRST, SECOND],
    replies={FIRST: "nodule", SECOND: "No findings"},
    scores={"rouge_l": (2 / 3 + 1) / 2, "unanswered": 0},
    images=32,
    best={"meteor_no_synonyms": 1 - 0.5 / 2**3},
    text="What are the abnormalities in the right lung?",
)
def radgenome_abnormality(root):
    """An empty cell is an answer."""
    radgenome(root)


# "right lung" has 2 of 4 words of lung/lung/right lung: 2 x 1/2 / (3/2); all of lung/lung is not said in order.
@sample(
    "radgenome_location",
    cases=[FIRST, AGAIN],
    replies={FIRST: "right lung", AGAIN: "lung lung"},
    scores={"rouge_l": (2 / 3 + 1) / 2, "unanswered": 0},
    images=32,
    best={"meteor_no_synonyms": 1 - (0.5 / 4**3 + 0.5 / 2**3) / 2},
    text="Where is the mass located in the image?",
)
def radgenome_location(root):
    """A question for each region that an abnormality lies in."""
    radgenome(root)


@sample(
    "radgenome_size",
    cases=[FIRST, SECOND],
    replies={FIRST: "2 cm", SECOND: "5 cm"},
    scores={"rouge_l": 1 / 2, "unanswered": 0},
    images=32,
    best={"meteor_no_synonyms": 1 - 0.5 / 2**3},
    text="What is the approximate size of the mass in the lung/right lung?",
)
def radgenome_size(root):
    """The whole path of a region is named."""
    radgenome(root)


@sample(
    "radgenome_disorders",
    cases=[FIRST, SECOND],
    replies={FIRST: "Emphysema."},
    scores={"rouge_l": (2 / 3) / 2, "unanswered": 1 / 2},
    images=32,
    best={"meteor_no_synonyms": 1 - 0.5 / 2**3},
    text="What are the abnormalities in the scan?",
)
def radgenome_disorders(root):
    """One question for each volume."""
    radgenome(root)


@reports(
    "radgenome_regions",
    cases=[FIRST, AGAIN],
    replies={FIRST: "There is a nodule in the right lung."},
    scores={"rouge_l": 1 / 2, "unanswered": 1 / 2},
    images=32,
    text="Please describe the detailed finding of the lung/right lung region.",
)
def radgenome_regions(root):
    """A sentence without a region is of the whole scan."""
    radgenome(root)
