"""Samples of report sets that are records with a text and images."""

import json

import numpy as np

from tests.helpers.catalogue import picture, reports, write_json, write_lines
from tests.helpers.samples.k7 import write_amos
from tests.helpers.samples.reports_studies import table

ASK = "Write the findings section of the report of this chest X-ray study."


def iu(root):
    """R2Gen's annotation of IU X-ray: two images a study, a study longer than R2Gen reads, and one of another split."""
    long = "The lungs are clear. " * 20

    def study(name, report, split):
        paths = [f"{name}/0.png", f"{name}/1.png"]
        for number, path in enumerate(paths):
            picture(root / "images" / path, len(name) + number)
        return {"id": name, "report": report, "image_path": paths, "split": split}

    write_json(
        root / "annotation.json",
        {
            "train": [study("CXR1_IM-0001", "Of train.", "train")],
            "val": [study("CXR2_IM-0002", "Of val.", "val")],
            "test": [
                study("CXR30_IM-0003", "1. No effusion. 2. The heart is large.", "test"),
                study("CXR40_IM-0004", f"{long.strip()} Edema.", "test"),
            ],
        },
    )


reports(
    "iu_xray",
    cases=["CXR30_IM-0003", "CXR40_IM-0004"],
    replies={"CXR30_IM-0003": "1. No effusion. 2. The heart is large."},
    scores={"rouge_l": 1 / 2, "unanswered": 1 / 2},
    text=ASK,
    images=2,
)(iu)
reports(
    "iu_xray_r2gen",
    cases=["CXR30_IM-0003", "CXR40_IM-0004"],
    # Numbers are no words to R2Gen, and "edema", the long report's last word, was cut off.
    replies={"CXR30_IM-0003": "No effusion. The heart is large.", "CXR40_IM-0004": "Edema."},
    scores={"rouge_1": 1 / 2, "unanswered": 0},
    text=ASK,
    images=2,
)(iu)


def mimic(root):
    """R2Gen's annotation of MIMIC-CXR, of which the first image is shown."""

    def study(number, patient, report):
        paths = [f"p{patient[:2]}/p{patient}/s{number}/{place}.jpg" for place in ("first", "second")]
        for path in paths:
            picture(root / "images" / path, number)
        about = {"study_id": number, "subject_id": int(patient), "image_path": paths, "split": "test"}
        return {"id": f"{number}-a", "report": report, **about}

    studies = [study(51, "10000032", "Mild edema.\n No  effusion ___."), study(61, "11000099", "Clear lungs.")]
    write_json(root / "annotation.json", {"train": [], "val": [], "test": studies})


MIMIC = {
    "cases": ["51-a", "61-a"],
    "replies": {"61-a": "Clear lungs."},
    "scores": {"rouge_l": 1 / 2, "unanswered": 1 / 2},
    "text": ASK,
}
reports("mimic_cxr", **MIMIC)(mimic)
reports("mimic_cxr_r2gen", **MIMIC)(mimic)


@reports(
    "iu_xray_medevalkit",
    cases=["open_i_1", "open_i_2"],
    replies={"open_i_1": "Findings: Lungs are clear. Impression: Normal."},
    scores={"rouge_l": 1 / 2, "unanswered": 1 / 2},
    text=(
        "You are a helpful assistant. Please generate a report for the given images, including both findings and "
        "impressions. Return the report in the following format: Findings: {} Impression: {}."
    ),
    images=2,
)
def medevalkit(root):
    """A list of studies with two sections; one that has neither is left out."""
    said = [("Lungs are clear.", "Normal.", 2), ("Large heart.", "", 3), (" ", "", 2)]
    studies = []
    for number, (findings, impression, count) in enumerate(said, start=1):
        names = [f"CXR{number}_IM-{place}001.png" for place in range(1, count + 1)]
        for place, name in enumerate(names):
            picture(root / "images" / name, 10 * number + place)
        about = {"id": f"open_i_{number}", "image": names}
        studies.append({**about, "findings": findings, "impression": impression})
    write_json(root / "test.json", studies)


@reports(
    "padchest_gr",
    cases=["s1", "s2"],
    replies={"s1": "Left pleural effusion. Normal heart."},
    scores={"rouge_l": 1 / 2, "unanswered": 1 / 2},
    text="Write the findings section of the report of this chest X-ray.",
)
def padchest_gr(root):
    """Sentences in two languages with boxes; the split stands in a table of labels, several rows a study."""

    def sentence(english, boxes=()):
        return {"sentence_en": english, "sentence_es": "Otra frase.", "abnormal": bool(boxes), "boxes": list(boxes)}

    studies = {
        "s1": ("p1", "test", [sentence("Left pleural effusion.", [[0.1, 0.6, 0.4, 0.9]]), sentence("Normal heart.")]),
        "s2": ("p2", "test", [sentence("Clear lungs.")]),
        "s3": ("p3", "train", [sentence("Of train.")]),
        "s4": ("p4", "test", []),
    }
    records, rows = [], []
    for name, (patient, split, findings) in studies.items():
        picture(root / "Padchest_GR_files/PadChest_GR" / f"{name}.png", len(records))
        records.append({"StudyID": name, "ImageID": f"{name}.png", "findings": findings})
        about = {"StudyID": name, "ImageID": f"{name}.png", "PatientID": patient, "split": split}
        rows += [{**about, "label": label} for label in ("pleural effusion", "cardiomegaly")]
    write_json(root / "grounded_reports_20240819.json", records)
    table(root / "master_table.csv", rows)


@reports(
    "ct_rate",
    cases=["valid_1_a_1", "valid_1_a_2"],
    replies={"valid_1_a_1": "FINDINGS: Nodule in the right lung. IMPRESSION: Nodule."},
    scores={"rouge_l": 1 / 2, "unanswered": 1 / 2},
    text=(
        "Clinical information: Cough.\nTechnique: Without contrast.\nWrite the findings and the impression of the "
        "report of this chest CT, under the headings FINDINGS: and IMPRESSION:. The axial slices go from the feet to "
        "the head."
    ),
    images=32,
)
def ct_rate(root):
    """Volumes in folders of patients and scans, two reconstructions of one scan, and tables of reports."""
    import nibabel as nib

    rows = []
    for number in (1, 2):
        name = f"valid_1_a_{number}.nii.gz"
        folder = root / "dataset/valid_fixed/valid_1/valid_1_a"
        folder.mkdir(parents=True, exist_ok=True)
        values = np.random.default_rng(number).integers(-1000, 1000, (8, 8, 40)).astype(np.int16)
        nib.save(nib.Nifti1Image(values, np.diag([1.0, 1.0, 2.0, 1.0])), folder / name)
        rows.append({
            "VolumeName": name, "ClinicalInformation_EN": "Cough.", "Technique_EN": "Without contrast.",
            "Findings_EN": "Nodule in the right lung.", "Impressions_EN": "Nodule.",
        })  # fmt: skip
    table(root / "dataset/radiology_text_reports/validation_reports.csv", rows)


@reports(
    "amos_mm",
    cases=["amos_0001", "amos_0002"],
    replies={"amos_0001": "Clear lungs. Normal liver."},
    scores={"rouge_l": 1 / 2, "unanswered": 1 / 2},
    text=(
        "Write the findings of the report of this CT, of chest, abdomen and pelvis as far as they are shown. The axial "
        "slices go from the feet to the head."
    ),
    images=32,
)
def amos_mm(root):
    """Findings of regions, which are one report; some are empty."""
    write_amos(root)


@reports(
    "pet2rep",
    cases=["p1", "p2"],
    replies={"p2": "肝脏摄取增高。"},
    scores={"rouge_l": 1 / 2, "unanswered": 1 / 2},
    text="你是一位核医学科医师。\n请根据图像 生成报告。",
    images=2,
)
def pet2rep(root):
    """JSON lines with the prompt's parts and its slices."""
    lines = []
    for number, answer in enumerate(["两肺未见异常。", "肝脏摄取增高。"], start=1):
        slices = [f"slice_prompt/p{number}_{place}_coronal.jpg" for place in (90, 100)]
        for place, name in enumerate(slices):
            picture(root / name, 10 * number + place)
        asked = {"prompt_system": "你是一位核医学科医师。", "prompt_user_text": "请根据图像<image> <image>生成报告。"}
        lines.append(
            {"patient_id": f"p{number}", "task": "PET2Rep", "prompt_image_fuse": slices, **asked, "answer": answer}
        )
    write_lines(root / "text_prompt/prompt.jsonl", lines)


def chexbench(root):
    """An object of lists, of which two are of reports."""
    for number in range(4):
        picture(root / f"images/{number}.jpg", number)

    def study(images, indication, findings, **more):
        paths = [f"images/{number}.jpg" for number in images]
        said = {"image_path": paths, "section_indication": indication, "section_findings": findings}
        return {"data_source": "MIMIC-CXR", **said, **more}

    content = {
        "View Classification": [{"question": "Which view?", "answer": 0}],
        "Findings Generation": [
            study([0, 1, 2], "Cough.", "Clear lungs."),
            study([3], "Pain.", "Left pneumothorax."),
            study([3], "Nothing said.", ""),
        ],
        "Findings Summarization": [
            study([0], "Cough.", "Clear lungs.", section_impression="Normal chest."),
            study([0], "Pain.", "Left pneumothorax.", section_impression="Pneumothorax."),
        ],
    }
    (root / "data.json").write_text(json.dumps(content))


reports(
    "chexbench_findings",
    cases=["data-1", "data-2"],
    replies={"data-2": "Left pneumothorax."},
    scores={"rouge_l": 1 / 2, "unanswered": 1 / 2},
    text='Given the indication: "Cough.", write a structured findings section for the CXR.',
    images=2,
)(chexbench)
reports(
    "chexbench_summary",
    cases=["data-1", "data-2"],
    replies={"data-1": "Normal chest."},
    scores={"rouge_l": 1 / 2, "unanswered": 1 / 2},
    text="Summarize the following Findings: Clear lungs.",
    images=0,
)(chexbench)
