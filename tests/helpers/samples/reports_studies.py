"""Samples of report sets that are tables of images, texts of studies, and earlier studies of patients."""

import csv
import gzip
import io
import json
import zipfile

from tests.helpers.catalogue import picture, reports

FINDINGS = "Write the findings section of the report of this chest X-ray study."
BOTH = "under the headings FINDINGS: and IMPRESSION:."


def table(path, rows):
    """Writes a CSV, packed where its name says so; the columns are those of the first row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    packed = text.getvalue().encode()
    path.write_bytes(gzip.compress(packed) if path.suffix == ".gz" else packed)


def report(**sections):
    """A text as PhysioNet has it: headings in capitals at the start of indented lines."""
    return " " * 33 + "FINAL REPORT\n" + "".join(f" {name.upper()}:  {text}\n\n" for name, text in sections.items())


MIMIC = {
    # study: patient, split, date, time of day (a number: 93014.5 is half past nine), views, text
    "51": ("10000032", "test", "21500101", "93014.5", ["LATERAL", "PA"], report(
        indication="Woman of ___ with cough.", technique="PA and lateral views.", comparison="None.",
        findings="The heart is large.\n There is a small left pleural effusion.", impression="Small left effusion.")),
    "52": ("10000032", "test", "21500101", "213000.0", ["AP", "", "AP"], report(
        indication="Follow-up.", comparison="Radiograph of this morning.",
        findings="The left pleural effusion has grown.", impression="Larger left effusion.")),
    "53": ("10000032", "test", "21500105", "80000.0", ["LL"], report(
        indication="Tube placed.", impression="Tube in the stomach.")),
    "54": ("10000032", "test", "21500301", "80000.0", ["PA"], report(
        findings="There is no pleural effusion. The lungs are clear.", impression="No effusion.")),
    "61": ("11000099", "test", "21490101", "80000.0", ["PA"], report(
        findings="There is a right pneumothorax.", impression="Right pneumothorax.")),
    "71": ("12000001", "train", "21480101", "80000.0", ["PA"], report(
        findings="Train lungs are clear.", impression="Train normal.")),
}  # fmt: skip
"""Of patient 10000032, study 53 lacks findings; 52 is on the day of 51, in the evening."""


def mimic(root):
    """The tables of MIMIC-CXR-JPG in an order that is not that of time, its images, and the archive of reports."""
    meta, split = [], []
    with zipfile.ZipFile(root / "mimic-cxr-reports.zip", "w") as archive:
        for study in ("52", "71", "54", "53", "51", "61"):
            patient, home, date, time, views, text = MIMIC[study]
            folder = f"files/p{patient[:2]}/p{patient}"
            archive.writestr(f"{folder}/s{study}.txt", text)
            for number, view in enumerate(views):
                dicom = f"{study}-{number}"
                picture(root / folder / f"s{study}" / f"{dicom}.jpg", 10 * int(study) + number)
                meta.append({
                    "dicom_id": dicom, "subject_id": patient, "study_id": study, "ViewPosition": view,
                    "Rows": 32, "Columns": 32, "StudyDate": date, "StudyTime": time,
                })  # fmt: skip
                split.append({"dicom_id": dicom, "study_id": study, "subject_id": patient, "split": home})
    table(root / "mimic-cxr-2.0.0-metadata.csv.gz", meta)
    table(root / "mimic-cxr-2.0.0-split.csv.gz", split[::-1])


MIMIC_FINDINGS = {
    "cases": ["52", "54", "51", "61"],
    "replies": {"52": "FINDINGS: The left pleural effusion has grown. IMPRESSION: Other.", "61": "A nodule."},
    # 52 is right, with its impression left out. "A nodule." shares a word, "a", with "There is a right pneumothorax.",
    # whose 5 words and its 2 make 2 / 7.
    "scores": {"rouge_l": (1 + 2 / 7) / 4, "unanswered": 2 / 4},
    "images": 3,
}
reports("mimic_cxr_findings", text=FINDINGS, **MIMIC_FINDINGS)(mimic)
reports(
    "mimic_cxr_prior",
    text=(
        "Current chest X-ray study (AP, AP):   \nPrior study of the same patient (PA, LATERAL):  \n"
        "Report of the prior study: INDICATION: Woman of ___ with cough. TECHNIQUE: PA and lateral views. "
        "COMPARISON: None. FINDINGS: The heart is large. There is a small left pleural effusion. IMPRESSION: Small "
        "left effusion.\nIndication: Follow-up.\nComparison: Radiograph of this morning.\n"
        "Write the findings section of the report of the current study."
    ),
    **{**MIMIC_FINDINGS, "images": 5},
)(mimic)
reports(
    "mimic_cxr_impression",
    cases=["52", "54", "53", "51", "61"],
    replies={"53": "Tube in the stomach."},
    scores={"rouge_l": 1 / 5, "unanswered": 4 / 5},
    text="Write the impression section of the report of this chest X-ray study.",
    images=3,
)(mimic)
reports(
    "mimic_cxr_findings_impression",
    cases=["52", "54", "51", "61"],
    # Without headings all of it is judged, and 3 of 4 words are there, of the reference's 6.
    replies={"61": "Right pneumothorax, right pneumothorax."},
    scores={"unanswered": 3 / 4, "rouge_1": 2 * 4 / (4 + 7) / 4},
    text=f"Write the findings and the impression of the report of this chest X-ray study, {BOTH}",
    images=3,
)(mimic)
reports(
    "mimic_cxr_summary",
    cases=["52", "54", "51", "61"],
    replies={"54": "No effusion."},
    scores={"rouge_l": 1 / 4, "unanswered": 3 / 4},
    text="Findings: The left pleural effusion has grown.\n\nWrite the impression that sums these findings up.",
    images=0,
)(mimic)


@reports(
    "mimic_cxr_llava_rad",
    cases=["aaa-1", "aaa-3"],
    replies={"aaa-3": "Clear lungs."},
    scores={"rouge_l": 1 / 2, "unanswered": 1 / 2},
    text="Provide a description of the findings in the radiology image given the following indication: Chest pain.",
)
def llava_rad(root):
    """Conversations, of which laterals, findings by GPT-4 and empty ones are left out."""

    def item(name, view, method, reason, findings):
        image = f"mimic/p10/p10000032/s51/{name}.jpg"
        picture(root / "files/p10/p10000032/s51" / f"{name}.jpg", len(name))
        turns = [{"from": "human", "value": "<image>\nOther words."}, {"from": "gpt", "value": findings}]
        said = {"image": image, "view": view, "generate_method": method, "reason": reason, "conversations": turns}
        return {"id": "51", **said}

    items = [
        item("aaa-1", "AP", "rule-based", "Chest pain.", "There is mild edema."),
        item("aaa-2", "LATERAL", "rule-based", "Chest pain.", "Lateral findings."),
        item("aaa-3", "PA", "rule-based", None, "Clear lungs."),
        item("aaa-4", "PA", "gpt4", "Cough.", "Findings by GPT-4."),
        item("aaa-5", "PA", "rule-based", "Cough.", None),
    ]
    (root / "chat_test_MIMIC_CXR_all_gpt4extract_rulebased_v1.json").write_text(json.dumps(items))


IU = [
    # uid, indication, comparison, findings, impression, images: name and view, the lateral one first of some
    ("1", "Cough for weeks", "None.", "The heart is normal. No pleural effusion.", "Normal chest.",
     [("1_IM-0001-3001.dcm.png", "Lateral"), ("1_IM-0001-4001.dcm.png", "Frontal")]),
    ("2", "", "", "", "No acute findings.", [("2_IM-0652-1001.dcm.png", "Frontal")]),
    ("3", "Pain, XXXX.", "", "There is a left pneumothorax.", "Left pneumothorax.",
     [("3_IM-1384-1001.dcm.png", "Frontal")]),
    ("4", "Cough", "", "Large heart.", "", [("4_IM-2050-1001.dcm.png", "Frontal")]),
    ("5", "No image", "", "Findings of no image.", "Impression of no image.", []),
]  # fmt: skip


def kaggle(root):
    """Kaggle's two tables and its folder of images."""
    columns = ("uid", "indication", "comparison", "findings", "impression")
    extra = {"MeSH": "normal", "Problems": "normal", "image": "Xray Chest PA and Lateral"}
    table(root / "indiana_reports.csv", [{**dict(zip(columns, one[:5], strict=True)), **extra} for one in IU])
    rows = [{"uid": one[0], "filename": name, "projection": view} for one in IU for name, view in one[5]]
    table(root / "indiana_projections.csv", rows)
    for seed, row in enumerate(rows):
        picture(root / "images/images_normalized" / row["filename"], seed)


reports(
    "iu_xray_findings",
    cases=["1", "3", "4"],
    replies={"4": "Large heart."},
    scores={"rouge_l": 1 / 3, "unanswered": 2 / 3},
    text=FINDINGS,
    images=2,
)(kaggle)
reports(
    "iu_xray_impression",
    cases=["1", "2", "3"],
    replies={"2": "IMPRESSION: No acute findings."},
    scores={"rouge_l": 1 / 3, "unanswered": 2 / 3},
    text="Write the impression section of the report of this chest X-ray study.",
    images=2,
)(kaggle)
reports(
    "iu_xray_findings_impression",
    cases=["1", "3"],
    replies={"3": "Impression: Left pneumothorax.\nFindings: There is a left pneumothorax."},
    # The sections are put into the order that is asked for.
    scores={"rouge_l": 1 / 2, "unanswered": 1 / 2},
    text=f"Write the findings and the impression of the report of this chest X-ray study, {BOTH}",
    images=2,
)(kaggle)
reports(
    "iu_xray_summary",
    cases=["1", "3", "5"],
    replies={"5": "Impression of no image."},
    scores={"rouge_l": 1 / 3, "unanswered": 2 / 3},
    text=("Findings: The heart is normal. No pleural effusion.\n\nWrite the impression that sums these findings up."),
    images=0,
)(kaggle)


@reports(
    "iu_xray_openi",
    cases=["CXR1", "CXR3"],
    replies={"CXR1": "Findings: The heart is normal. No pleural effusion. Impression: Normal chest."},
    scores={"rouge_l": 1 / 2, "unanswered": 1 / 2},
    text=f"Write the findings and the impression of the report of this chest X-ray study, {BOTH}",
    images=2,
)
def openi(root):
    """OpenI's XML, a report a file."""
    (root / "ecgen-radiology").mkdir(exist_ok=True)
    for uid, indication, comparison, findings, impression, images in IU:
        names = [name.removesuffix(".dcm.png") for name, _ in images]
        texts = {"COMPARISON": comparison, "INDICATION": indication, "FINDINGS": findings, "IMPRESSION": impression}
        abstract = "".join(f'<AbstractText Label="{name}">{text}</AbstractText>' for name, text in texts.items())
        shown = "".join(f'<parentImage id="CXR{name}"><figureId>F1</figureId></parentImage>' for name in names)
        article = f"<MedlineCitation><Article><Abstract>{abstract}</Abstract></Article></MedlineCitation>"
        text = f'<?xml version="1.0" encoding="utf-8"?><eCitation><uId id="CXR{uid}"/>{article}{shown}</eCitation>'
        (root / "ecgen-radiology" / f"{uid}.xml").write_text(text)
        for name in names:
            picture(root / "NLMCXR_png" / f"CXR{name}.png", len(name))


PLUS = [
    # path, view, patient, split, history, findings, impression
    ("valid/patient1/study1/view2_lateral.jpg", ("Lateral", ""), "patient1", "valid", "Cough.",
     "Lungs are clear. No effusion.", "Normal."),
    ("valid/patient1/study1/view1_frontal.jpg", ("Frontal", "AP"), "patient1", "valid", "Cough.",
     "Lungs are clear. No effusion.", "Normal."),
    ("valid/patient2/study1/view1_frontal.jpg", ("Frontal", "PA"), "patient2", "valid", "", "", "Edema is worse."),
    ("train/patient3/study7/view1_frontal.jpg", ("Frontal", "PA"), "patient3", "train", "", "Of train.", "Of train."),
]  # fmt: skip


def chexpert_plus(root):
    """The table of images with sections, and PNG files of the names that end in .jpg."""
    rows = []
    for number, (path, (side, ap_pa), patient, split, history, findings, impression) in enumerate(PLUS):
        picture(root / "PNG" / f"{path.removesuffix('.jpg')}.png", number)
        rows.append({
            "path_to_image": path, "frontal_lateral": side, "ap_pa": ap_pa, "deid_patient_id": patient,
            "patient_report_date_order": 1, "report": f"NARRATIVE: {findings}", "section_narrative": "",
            "section_clinical_history": history, "section_history": "", "section_comparison": "",
            "section_technique": "", "section_findings": findings, "section_impression": impression,
            "age": 50, "sex": "Female", "split": split,
        })  # fmt: skip
    table(root / "df_chexpert_plus_240401.csv", rows)


FIRST = "valid/patient1/study1"
reports(
    "chexpert_plus_findings",
    cases=[FIRST],
    replies={FIRST: "Findings: Lungs are clear. No effusion."},
    scores={"rouge_l": 1, "unanswered": 0},
    text=FINDINGS,
    images=2,
)(chexpert_plus)
reports(
    "chexpert_plus_impression",
    cases=[FIRST, "valid/patient2/study1"],
    replies={"valid/patient2/study1": "Edema is worse."},
    scores={"rouge_l": 1 / 2, "unanswered": 1 / 2},
    text="Write the impression section of the report of this chest X-ray study.",
    images=2,
)(chexpert_plus)
reports(
    "chexpert_plus_findings_impression",
    cases=[FIRST],
    replies={FIRST: "Normal."},
    # 1 of 1 word, of 6: lungs are clear no effusion normal.
    scores={"rouge_l": 2 / 7, "unanswered": 0},
    text=f"Write the findings and the impression of the report of this chest X-ray study, {BOTH}",
    images=2,
)(chexpert_plus)
reports(
    "chexpert_plus_summary",
    cases=[FIRST],
    replies={FIRST: "Normal."},
    scores={"rouge_l": 1, "unanswered": 0},
    text="Findings: Lungs are clear. No effusion.\n\nWrite the impression that sums these findings up.",
    images=0,
)(chexpert_plus)


REX = {
    # accession: patient, date, views (None is unknown), indication, findings, impression
    "ACC1": ("GRD1", "20200301", ["LATERAL", "PA"], "Cough", "Right lower lobe consolidation.", "Pneumonia."),
    "ACC2": ("GRD1", "20200401", [None, "AP"], "Control", "The consolidation has resolved.", "No pneumonia."),
    "ACC3": ("GRD2", "20200101", ["PA"], "None", "Clear lungs.", "None"),
    "ACC4": ("GRD3", "20200101", ["POSTERO_ANTERIOR"], "", "No pneumothorax.", "Normal."),
}


def rexgradient(root):
    """JSON of studies with lists of images, whose paths are written from the folder of the JSON."""
    found = {}
    for accession, (patient, date, views, indication, findings, impression) in REX.items():
        paths = [f"../deid_png/{patient}/{accession}/{number}.png" for number in range(len(views))]
        for number, path in enumerate(paths):
            picture(root / path.removeprefix("../"), number)
        found[f"{patient}_{accession}"] = {
            "PatientID": patient, "AccessionNumber": accession, "StudyInstanceUid": f"1.2.{accession}",
            "StudyDate": int(date), "PatientSex": "F", "Indication": indication, "Comparison": None,
            "Findings": findings, "Impression": impression, "ImagePath": paths, "ImageViewPosition": views,
        }  # fmt: skip
    (root / "metadata").mkdir(exist_ok=True)
    (root / "metadata/test_metadata_view_position.json").write_text(json.dumps(found))
    (root / "metadata/train_metadata_view_position.json").write_text(json.dumps({}))


REX_SCORES = {
    "cases": ["ACC1", "ACC2", "ACC4"],
    "replies": {"ACC4": "FINDINGS: No pneumothorax. IMPRESSION: Normal."},
    "scores": {"rouge_l": 1 / 3, "unanswered": 2 / 3},
}
reports(
    "rexgradient",
    text=(f"Indication: Cough\nWrite the findings and the impression of the report of this chest X-ray study, {BOTH}"),
    images=2,
    **REX_SCORES,
)(rexgradient)
reports(
    "rexgradient_prior",
    text=(
        "Current chest X-ray study (PA, LATERAL):  \nIndication: Cough\n"
        f"Write the findings and the impression of the report of the current study, {BOTH}"
    ),
    images=2,
    **REX_SCORES,
)(rexgradient)
