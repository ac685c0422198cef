"""Samples of ReXrank's tests: an object of studies by their ids."""

from tests.helpers.catalogue import picture, reports, write_json

ASKED = (
    "Write the findings and the impression of the report of this chest X-ray study, under the headings Findings: and "
    "Impression:."
)


def study(images, findings, impression, context, **more):
    """A study as ReXrank's JSON has it, its report made of the sections in its words."""
    written = [None if isinstance(text, float) else text for text in (findings, impression)]
    report = "Findings: {} Impression: {}".format(*written)
    views = ["Frontal", "Lateral"][: len(images)]
    sections = {"section_findings": findings, "section_impression": impression}
    about = {"image_path": images, "key_image_path": images[0], "frontal_lateral": views, "context": context}
    return {**about, **sections, "report": report, **more}


@reports(
    "rexrank_iu_xray",
    cases=["CXR30_IM-0001", "CXR40_IM-0002"],
    replies={"CXR30_IM-0001": "Findings: Heart size is normal. Impression: Clear lungs."},
    scores={"rouge_l": 1 / 2, "unanswered": 1 / 2},
    text=f"Indication: Chest pain Comparison: None.\n{ASKED}",
    images=2,
)
def rexrank_iu_xray(root):
    """Two views of each study, in a folder of its own."""
    said = [
        ("CXR30_IM-0001", "Heart size is normal.", "Clear lungs.", "Indication: Chest pain Comparison: None."),
        ("CXR40_IM-0002", "The heart is large.", "Cardiomegaly.", "Indication: Cough Comparison: None."),
    ]
    studies = {}
    for number, (name, *sections) in enumerate(said):
        images = [f"{name}/{view}.png" for view in (0, 1)]
        for view, path in enumerate(images):
            picture(root / "images" / path, 2 * number + view)
        studies[name] = study(images, *sections, split="test")
    write_json(root / "ReXRank_IUXray_test.json", studies)


@reports(
    "rexrank_mimic_cxr",
    cases=["50000001", "50000002"],
    replies={"50000001": "FINDINGS: Low lungs.\nIMPRESSION: No pneumonia."},
    scores={"rouge_l": 1 / 2, "unanswered": 1 / 2},
    text=f"Age:50-60.Gender:M.Indication: Fever. Comparison: None.\n{ASKED}",
    images=1,
)
def rexrank_mimic_cxr(root):
    """Paths begin with a slash and stand for files/; patients are named."""
    studies = {}
    for number, (name, findings) in enumerate([("50000001", "Low lungs."), ("50000002", "A tube ends high.")]):
        image = f"/p10/p10000001/s{name}/view.jpg"
        picture(root / "files" / image[1:], number)
        context = "Age:50-60.Gender:M.Indication: Fever. Comparison: None."
        studies[name] = study([image], findings, "No pneumonia.", context, split="test", subject_id="10000001")
    write_json(root / "ReXRank_MIMICCXR_test.json", studies)


@reports(
    "rexrank_chexpert_plus",
    cases=["patient1_study1", "patient1_study2"],
    # Of the first study only the impression is written, and a report is judged by what its reference has.
    replies={"patient1_study1": "Impression: 1. No edema."},
    scores={"rouge_l": 1 / 2, "unanswered": 1 / 2},
    text=f"Age:77.0.Gender:F.Indication:nanComparison: None.\n{ASKED}",
    images=1,
)
def rexrank_chexpert_plus(root):
    """A section that lacks is NaN; sex, race and ethnicity stand beside."""
    studies = {}
    for number, findings in enumerate([float("nan"), "Large heart."], start=1):
        image = f"valid/patient1/study{number}/view1_frontal.png"
        picture(root / "PNG" / image, number)
        about = {"age": 77.0, "sex": "Female", "race": "White", "ethnicity": "Non-Hispanic/Non-Latino"}
        context = "Age:77.0.Gender:F.Indication:nanComparison: None."
        studies[f"patient1_study{number}"] = study(
            [image], findings, "\n1. No edema.", context, ap_pa=["AP"], section_clinical_history=float("nan"), **about
        )
    write_json(root / "ReXRank_CheXpertPlus.json", studies)
