"""Samples of the benchmarks of questions about chest CT as volumes."""

import csv

import nibabel as nib
import numpy as np

from tests.helpers.benchmark_files import volume
from tests.helpers.catalogue import sample, write_json

HEADER = ["Task", "Subtask", "VolumeName", "Question", "Answer", "QuestionType", "AnswerChoice"]
LETTERS = ["Choice A", "Choice B", "Choice C", "Choice D"]
CHANGES = [
    "Refractory Lesion (Persistent or recurrent, now present)",
    "Resolved Lesion (Previously present or recurrent, now absent)",
    "New Lesion (Absent previously, now present)",
    "No Abnormality (Always absent)",
]


def _letter(case):
    return f"{case.target.read().value}."


def _volume(root, name):
    """CT-RATE's folders: patient, scan, reconstruction."""
    patient, scan = "_".join(name.split("_")[:2]), "_".join(name.split("_")[:3])
    path = root / "dataset" / "valid_fixed" / patient / scan / f"{name}.nii.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.linspace(-1000, 1000, 4 * 4 * 6).reshape(4, 4, 6).astype(np.int16)
    nib.save(nib.Nifti1Image(values, np.diag([-0.8, -0.8, 1.5, 1.0])), path)


def _table(path, rows, header=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([header or HEADER + LETTERS, *rows])


def _rad(root, folder, name, *rows):
    for split in ("train", "test"):
        _table(root / "3DRAD" / split / folder / f"{name}.csv", rows)
    for row in rows:
        _volume(root, row[2].replace("test_", "valid_").removesuffix(".nii.gz"))


# One is said word for word, the other not answered.
@sample(
    "rad_3d_open",
    cases=["Task1_Image_Observation/Anatomical_observation-1", "Task3_Medical_Computation/Size-1"],
    replies={"Task1_Image_Observation/Anatomical_observation-1": "Right hilar region."},
    scores={"rouge_1": 1 / 2, "unanswered": 1 / 2},
    text="Where is the largest lymph node observed?\nAnswer:",
    images=32,
    settings={"expected": {"test": 2}},
)
def rad_3d_open(root):
    """Files of several tasks; a column Choice that holds - for none; volumes called test_ that are valid_."""
    name = "test_1016_d_2.nii.gz"
    open_row = ["Open", "-", "-", "-", "-", "-"]
    node = "Where is the largest lymph node observed?"
    _rad(
        root, "Task1_Image_Observation", "Anatomical_observation", [1, 1, name, node, "Right hilar region.", *open_row]
    )
    _rad(root, "Task2_Anomaly_Detection", "Diagnosis")
    size = "What is the size of the loculated collection?"
    _rad(root, "Task3_Medical_Computation", "Size", [3, 2, "test_1004_a_1.nii.gz", size, "30x13 mm", *open_row])


# Both are right; the authors look for "B." and do not find it in "B".
@sample(
    "rad_3d_existence",
    cases=["Task4_Existence_Detection/Emphysema-1", "Task4_Existence_Detection/Emphysema-2"],
    replies={
        "Task4_Existence_Detection/Emphysema-1": "B",
        "Task4_Existence_Detection/Emphysema-2": "B. No",
    },
    scores={"accuracy": 1, "m3d_letter_said": 1 / 2, "unanswered": 0},
    text="Is there evidence of emphysema on the CT images?\nA. Yes\nB. No\nAnswer:",
    images=32,
    perfect=_letter,
    settings={"expected": {"test": 2}},
)
def rad_3d_existence(root):
    """Yes and no as letters, C and D as -."""
    close = ["No", "Close", "B", "Yes", "No", "-", "-"]
    asked = ["Is there evidence of emphysema on the CT images?", "Can signs of emphysema be recognized on the CT scan?"]
    names = ["test_1000_a_1.nii.gz", "test_1001_a_1.nii.gz"]
    rows = [[4, 7, name, question, *close] for name, question in zip(names, asked, strict=True)]
    _rad(root, "Task4_Existence_Detection", "Emphysema", *rows)


@sample(
    "rad_3d_temporal",
    cases=["Task5_Static_Temporal_Diagnosis/b-1", "Task6_Longitudinal_Temporal_Diagnosis/c-1"],
    replies={
        "Task5_Static_Temporal_Diagnosis/b-1": "D. No Abnormality (Always absent)",
        "Task6_Longitudinal_Temporal_Diagnosis/c-1": "A.",
    },
    scores={"accuracy": 1 / 2, "m3d_letter_said": 1 / 2, "unanswered": 0},
    text="How would you classify the arterial wall calcification observed in the current CT scan?\n"
    + "\n".join(f"{letter}. {change}" for letter, change in zip("ABCD", CHANGES, strict=True))
    + "\nAnswer:",
    images=32,
    perfect=_letter,
    settings={"expected": {"test": 2}},
)
def rad_3d_temporal(root):
    """Choices of four changes, with the history as words."""
    now = "How would you classify the arterial wall calcification observed in the current CT scan?"
    _rad(
        root,
        "Task5_Static_Temporal_Diagnosis",
        "b",
        [5, 1, "test_1005_b_1.nii.gz", now, CHANGES[3], "Close", "D", *CHANGES],
    )
    past = "Earlier arterial wall calcification sequences: [0, 1]. How has it evolved?"
    row = [6, 2, "test_1006_c_1.nii.gz", past, CHANGES[1], "Close", "B", *CHANGES]
    _rad(root, "Task6_Longitudinal_Temporal_Diagnosis", "c", row)


@sample(
    "ct_spatialvqa",
    cases=["valid_1000_a_1-1", "valid_1000_a_1-2"],
    replies={"valid_1000_a_1-1": "In the left lower lobe"},
    scores={"rouge_l": 1 / 2, "unanswered": 1 / 2},
    text="Where is the nodule?",
    images=32,
    # Three words hold no four; METEOR takes half a chunk's cubed share off: of 5 words 0.5 / 125, of 3 0.5 / 27.
    best={"sentence_bleu@4": 1 / 2, "meteor_no_synonyms": 1 - (0.5 / 125 + 0.5 / 27) / 2},
    settings={"expected": {"test": 2}},
)
def ct_spatialvqa(root):
    """One object, volume -> its pairs, each with a list of categories."""
    pairs = [
        {"question": "Where is the nodule?", "answer": "In the left lower lobe", "category": ["Laterality"]},
        {"question": "Is the trachea midline?", "answer": "It is midline", "category": ["Centricity", "Laterality"]},
    ]
    name = "spatial_qa_filtered_full_with_categories.json"
    folder = root / "benchmarking" / "eval_scripts" / "spatial_categories"
    write_json(folder / name, {"valid_1000_a_1.nii.gz": {"qa_pairs": pairs}})
    _volume(root, "valid_1000_a_1")


def _m3d(root):
    array = np.zeros((1, 32, 8, 8), np.float32)
    array[0, 3, 0, 0] = 1  # on the screen above and on the left, of slice 3
    path = root / "M3D_Cap_npy" / "ct_case" / "000006" / "Axial.npy"
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, array)
    header = ["Image Path", "Text", "Question Type", "Question", *LETTERS, "Answer", "Answer Choice"]
    where = "M3D_Cap_npy/ct_case/000006/Axial.npy"
    plane = [where, "text", 1, "Which plane is shown?", "axial", "coronal", "sagittal", "oblique", "axial", "A"]
    organ = [where, "text", 3, "Which organ is enlarged?", "heart", "liver", "spleen", "kidney", "spleen", "C"]
    for split in ("train", "test"):
        _table(root / "M3D_VQA" / f"M3D_VQA_{split}.csv", [plane, organ], header)


@sample(
    "m3d_vqa_closed",
    cases=["M3D_VQA_test-1", "M3D_VQA_test-2"],
    replies={"M3D_VQA_test-1": "A. axial", "M3D_VQA_test-2": "C"},
    scores={"accuracy": 1, "m3d_letter_said": 1 / 2, "unanswered": 0},
    text="Which plane is shown? Choices: A. axial B. coronal C. sagittal D. oblique",
    images=32,
    perfect=_letter,
)
def m3d_vqa_closed(root):
    """Arrays of 32 slices, 0 to 1; types of questions as numbers."""
    _m3d(root)


@sample(
    "m3d_vqa_open",
    cases=["M3D_VQA_test-1", "M3D_VQA_test-2"],
    replies={"M3D_VQA_test-1": "axial"},
    scores={"rouge_1": 1 / 2, "unanswered": 1 / 2},
    text="Which plane is shown?",
    images=32,
    best={"meteor_no_synonyms": 1 / 2},  # of a single word, by its penalty for chunks
)
def m3d_vqa_open(root):
    """The same files; the words of the answer."""
    _m3d(root)


def write_amos(root):
    """Two scans, of which the second shows no chest, with two questions and one."""
    scans = []
    options = {"A": "Left", "B": "Right", "C": "Both", "D": "Neither"}
    for number, (chest, answers) in enumerate([("Clear lungs.", ["B", "D"]), ("", ["A"])], 1):
        name = f"imagesVa/amos_000{number}.nii.gz"
        volume(root / name, np.full((6, 6, 40), 40))
        findings = {"chest": chest, "abdomen": "Normal liver.", "pelvis": ""}
        asked = [{"question": "Which side?", "options": options, "answer": answer} for answer in answers]
        labels = {"report": {"findings": findings}, "qa": asked}
        scans.append({"image": f"./{name}", "meta": {}, "labels": labels})
    write_json(root / "dataset.json", {"training": [], "validation": scans})


@sample(
    "amos_mm_vqa",
    cases=["amos_0001-1", "amos_0001-2", "amos_0002-1"],
    replies={"amos_0001-1": "B", "amos_0001-2": "The answer is A."},
    scores={"accuracy": 1 / 3, "unanswered": 1 / 3},
    text="Which side?\nA. Left\nB. Right\nC. Both\nD. Neither\n"
    "Answer with the option's letter from the given choices directly.",
    images=32,
)
def amos_mm_vqa(root):
    """Questions below each scan of a part of one file."""
    write_amos(root)
