"""What the readers of a page have already: writes it to the working folder, made up from seeds.

    python belongings.py PAGE

Runs in the newcomer's environment, where there are no tests.
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image as Picture

import medimg_eval as me
from medimg_eval.case import Image, Mask
from medimg_eval.imaging import write_mask
from medimg_eval.imaging.dicom.writing.images import write_series

RNG = np.random.default_rng(0)
WORDS = ["no", "effusion", "mild", "edema", "heart", "is", "normal", "opacity", "in", "left", "clear", "lungs"]
SITES, SEXES = ("north", "south"), ("F", "M")


def write_table(name: str, header: str, rows: Iterable[Sequence[object]]) -> None:
    with Path(name).open("w", newline="") as file:
        csv.writer(file).writerows([header.split(","), *rows])


def spoilt(labels: np.ndarray, shift: int) -> np.ndarray:
    """A prediction: some voxels beside what is right."""
    return np.roll(labels, shift, axis=0)


def masks() -> None:
    """Right label maps and predictions for the cases of a liver, and predictions for the brain tissue."""
    rows = []
    for folder in ("labelsTs", "data/liver/labelsTs", "data/liver/imagesTs", "predictions", "a", "b"):
        Path(folder).mkdir(parents=True)
    for number in range(12):
        labels = np.zeros((24, 20, 16), np.uint8)
        labels[4:16, 4:14, 3 : 10 + number % 3], labels[8:12, 6:10, 5:8] = 1, 2
        case, affine = f"liver_{number:03d}", np.diag([-1.0, -1.0, 2.0, 1.0])
        for folder in ("labelsTs", "data/liver/labelsTs"):
            write_mask(Path(folder, f"{case}.nii.gz"), Mask(labels, affine))
        for folder, shift in (("predictions", 1), ("a", 1), ("b", number % 3)):
            write_mask(Path(folder, f"{case}.nii.gz"), Mask(spoilt(labels, shift), affine))
        grey = RNG.normal(100.0 * labels, 5).astype(np.float32)
        write_image(Path("data/liver/imagesTs", f"{case}_0000.nii.gz"), grey, affine)
        rows.append((case, f"p{number // 2}", "test", SITES[number // 2 % 2], SEXES[number // 4 % 2], 30 + 5 * number))
    write_table("data/liver/cases.csv", "case,patient,split,scanner,sex,age", rows)
    write_table(
        "patients.csv", "case,patient,scanner,site,sex,age", [(*row[:2], row[3], row[3], *row[4:]) for row in rows]
    )
    for case in me.load_task("brain_tissue").layout.cases("test"):
        mask = case.target.read()
        write_mask(Path("predictions", f"{case.id}.nii.gz"), Mask(spoilt(mask.labels, 1), mask.affine))


def write_image(path: Path, array: np.ndarray, affine: np.ndarray) -> None:
    import nibabel as nib

    nib.save(nib.Nifti1Image(array, affine), path)


def study() -> None:
    """Three series of a study as DICOM, with two names."""
    for number, description in ((1, "scout"), (2, "t2 axial"), (3, "t1 axial")):
        voxels = RNG.integers(0, 1000, (1, 32, 32, 24)).astype(np.int16)
        image = Image(voxels, np.diag([-1.0, -1.0, 3.0, 1.0]))
        write_series(Path("study", f"series_{number}"), image, description=description, SeriesNumber=number)
    shutil.copytree("study", "export")


def diffusion() -> None:
    """A series of two volumes by diffusion weighting."""
    for number, weighting in enumerate(({"DiffusionBValue": 0.0}, {"DiffusionBValue": 1000.0})):
        direction = {"DiffusionGradientOrientation": [0.0, 0.0, 1.0]} if number else {}
        image = Image(np.full((1, 8, 8, 3), 100 - number, np.int16), np.diag([-1.0, -1.0, 3.0, 1.0]))
        write_series(
            Path("study/dwi", str(number)),
            image,
            modality="MR",
            seed=number,
            SeriesInstanceUID="1.2.3",
            StudyInstanceUID="1.2.4",
            FrameOfReferenceUID="1.2.5",
            **weighting,
            **direction,
        )


def pictures() -> None:
    """Smooth pictures: made ones, real ones, and those that a generator was trained on."""
    for folder in ("generated", "real", "train"):
        Path(folder).mkdir()
        for number in range(60):
            small = Picture.fromarray(RNG.integers(0, 255, (8, 8), np.uint8))
            small.resize((64, 64), Picture.Resampling.BICUBIC).save(Path(folder, f"{number:03d}.png"))


def reports() -> None:
    """A table of references and what a model wrote."""
    texts = [" ".join(RNG.choice(WORDS, 20)).capitalize() + "." for _ in range(60)]
    rows = [(f"s{n}", f"p{n // 2}", texts[n], texts[n + 30] if n % 2 else texts[n]) for n in range(30)]
    for name in ("predictions.csv", "ours.csv", "theirs.csv"):
        write_table(name, "id,patient,reference,prediction", rows)
    write_table("mine.csv", "study_id,findings,text", [(row[0], *row[2:]) for row in rows])


def scores() -> None:
    """Scores that were computed elsewhere."""
    rows = [
        (f"c{n}", f"p{n // 2}", SITES[n % 2], model, "dice", round(float(np.clip(RNG.normal(mean, 0.1), 0, 1)), 4))
        for model, mean in (("UNet", 0.8), ("ours", 0.85), ("theirs", 0.75))
        for n in range(24)
    ]
    for name in ("mine.csv", "scores.csv"):
        write_table(name, "case,patient,site,model,metric,value", rows)


def probabilities() -> None:
    """Probabilities of findings that were computed elsewhere, the truth as their status."""
    rows = []
    for model in ("ours", "theirs"):
        for label in ("edema", "effusion", "pneumonia"):
            for n in range(40):
                probability = round(float(RNG.uniform(0.4 * (n % 2), 0.6 + 0.4 * (n % 2))), 3)
                status = ("absent", "present")[n % 2]
                rows.append((f"c{n}", f"p{n // 2}", model, "probability", label, probability, status))
    for name in ("probabilities.csv", "scores.csv"):
        write_table(name, "case,patient,model,metric,label,value,status", rows)


def errors() -> None:
    """Values of a metric of one's own in two groups."""
    rows = [(f"c{n}", "ours", "my_error", round(float(RNG.gamma(2 + n % 2)), 3), "AB"[n % 2]) for n in range(40)]
    write_table("errors.csv", "case,model,metric,value,group", rows)


def boxes_and_points() -> None:
    """COCO's annotations and results, and landmarks."""
    images = [{"id": n, "file_name": f"{n}.png", "height": 256, "width": 256} for n in range(20)]
    corners = [(n % 20, RNG.integers(0, 200, 2), RNG.integers(10, 50, 2)) for n in range(60)]
    right = [
        {
            "id": n + 1,
            "image_id": i,
            "category_id": 1,
            "bbox": [*map(int, (*p, *s))],
            "area": int(s.prod()),
            "iscrowd": 0,
        }
        for n, (i, p, s) in enumerate(corners)
    ]
    found = [
        {"image_id": i, "category_id": 1, "bbox": [*map(float, (*(p + 2), *s))], "score": RNG.random()}
        for i, p, s in corners
    ]
    annotations = {"images": images, "annotations": right, "categories": [{"id": 1, "name": "nodule"}]}
    Path("instances.json").write_text(json.dumps(annotations))
    Path("results.json").write_text(json.dumps(found))
    points = [(n, f"l{k}", *RNG.integers(0, 500, 2)) for n in range(10) for k in range(4)]
    write_table("landmarks.csv", "case,label,x,y", points)
    write_table("found.csv", "case,label,x,y", [(case, label, x + 2, y) for case, label, x, y in points])


def classes() -> None:
    """Probabilities of two models in tables of their own, and what is right."""
    truth = [int(RNG.integers(2)) for _ in range(60)]
    write_table("labels.csv", "case,label", enumerate(truth))
    for name in ("a.csv", "b.csv"):
        rows = [(n, round(float(RNG.uniform(0.3 * right, 0.7 + 0.3 * right)), 3)) for n, right in enumerate(truth)]
        write_table(name, "case,probability", rows)


def answers() -> None:
    """What a model answered to questions with options, once as a run."""
    rows = [
        {"id": f"q{n}", "question": f"Which of four, number {n}?", "options": ["Liver", "Heart", "Lung", "Skin"]}
        | {"reference": "ABCD"[n % 4], "prediction": f"The answer is ({'ABCD'[n * n % 4]})."}
        for n in range(30)
    ]
    Path("answers.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def answer_runs() -> None:
    """Runs of two models that answered the same questions, and one in a folder of its name."""
    answers()
    Path("others.jsonl").write_text(Path("answers.jsonl").read_text().replace("(B)", "(A)"))
    score("answers={ours: answers.jsonl, theirs: others.jsonl}")
    (found,) = Path("runs", "answers").glob("ours-*")
    shutil.copytree(found, Path("runs", "medqa", "mine-1a2b3c4d"))


def score(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "medimg_eval", "score", *words], check=True, stdout=subprocess.DEVNULL)


def mask_runs() -> None:
    """Runs of two models that segmented the same patients."""
    masks()
    score("masks={UNet: a/, ours: b/}", "references=labelsTs", "cases=patients.csv", "labels={1: liver, 2: tumour}")


def pilot() -> None:
    """A run of a model that is good enough, and predictions like it."""
    masks()
    shutil.rmtree("predictions")
    shutil.copytree("labelsTs", "predictions")
    shutil.copy("a/liver_000.nii.gz", "predictions")
    score("masks={pilot: predictions/}", "references=labelsTs", "runs=made")
    shutil.copytree(next(Path("made").rglob("manifest.json")).parent, "runs/pilot")


def two_models() -> None:
    """Predictions of two models, by their names."""
    masks()
    shutil.copytree("a", "nnunet")
    shutil.copytree("b", "mine")


def prognosis() -> None:
    """A run of predictions that are to be sealed."""
    classes()
    score("classes={model: a.csv}", "references=labels.csv")
    (found,) = Path("runs", "classes").glob("model-*")
    shutil.copytree(found, Path("runs", "prognosis", "model"))


def volumes() -> None:
    """Volumes that were measured, and those that are right."""
    for name, noise in (("volumes.csv", 3.0), ("truth.csv", 0.0)):
        write_table(name, "case,volume", [(n, round(50 + 7 * n + float(RNG.normal(0, noise)), 2)) for n in range(30)])


def own_scores() -> None:
    """Values of a metric of one's own, of two models."""
    rows = [(f"c{n}", m, "my_score", round(float(RNG.random()), 3)) for m in ("ours", "theirs") for n in range(24)]
    write_table("scores.csv", "case,model,metric,value", rows)


def tissue_run() -> None:
    """A run of a task in the catalogue."""
    me.test("brain_tissue", "gaussian_mixture", limit=3)


def named_run() -> None:
    """The same, in a folder of the name that the page has for it."""
    tissue_run()
    (found,) = Path("runs", "brain_tissue").iterdir()
    found.rename(found.with_name("MODEL-ID"))


def log() -> None:
    """Samples of lm-eval, of a model that weighs options."""
    organs, rows = ("Liver", "Heart", "Lung", "Skin"), []
    for place in range(12):
        values, right = RNG.uniform(-9, 0, 4).round(2), place % 4
        question = f"Which organ, number {place}?"
        asked = {f"gen_args_{n}": {"arg_0": question, "arg_1": f" {text}"} for n, text in enumerate(organs)}
        row = {"doc_id": place, "doc": {"q": question, "choices": organs, "gold": right}, "target": str(right)}
        row |= {"arguments": asked, "resps": [[[str(one), "False"]] for one in values]}
        row |= {"filtered_resps": [[str(one), "False"] for one in values], "filter": "none", "metrics": ["acc"]}
        row |= {"doc_hash": "a", "prompt_hash": "b", "target_hash": "c", "acc": float(values[right] == max(values))}
        rows.append(row)
    Path("samples_medqa_2026-01-01T00-00-00.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def released() -> None:
    """Scans as they were, pictures of them that tell of nobody, and reports."""
    pictures()
    study()
    shutil.move("generated", "released")
    shutil.move("study", "original")
    texts = [(f"s{n}", f"p{n}", f"{WORDS[n % 12]} of {WORDS[n % 7]} and the {WORDS[n % 5]}.") for n in range(20)]
    for name in ("made.csv", "train.csv"):
        write_table(name, "id,subject_id,report", texts)
    Path("names.txt").write_text("Quux Anna\n")


def rated_form() -> None:
    """The sheets of two readers of the form that the page makes: the same seed gives the same."""
    pictures()
    words = ["readers", "out=made/study", "real=real/", "generated=generated/", "number=50", "seed=1"]
    subprocess.run([sys.executable, "-m", "medimg_eval", *words], check=True, stdout=subprocess.DEVNULL)
    with Path("made/study/sheet.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    for reader in ("anna", "ben"):
        filled = [dict(zip(header, row, strict=True)) | {"reader": reader} for row in rows]
        for row in filled:
            row["origin"] = str(RNG.choice(["real", "generated"]))
            row |= {key: str(RNG.integers(1, 6)) for key in ("quality", "realism", "utility")}
        write_table(f"{reader}.csv", ",".join(header), [[row[key] for key in header] for row in filled])


def questions() -> None:
    """The records that the page shows, and their images."""
    Path("data/mine/images").mkdir(parents=True)
    options = [("Liver", "Spleen", "Kidney", "", "B"), ("Frontal", "Parietal", "Temporal", "Occipital", "A")]
    rows = []
    for number, (name, texts) in enumerate(zip("ab", options, strict=True)):
        row = {"qid": 7 + number, "image": f"{name}.png", "modality": "CT", "question": "Which?", "answer": texts[4]}
        rows.append(row | {letter: text for letter, text in zip("ABCD", texts, strict=False) if text})
        Picture.new("RGB", (32, 32), (90, 40 * number, 10)).save(Path("data/mine/images", f"{name}.png"))
    Path("data/mine/test.json").write_text(json.dumps(rows))


def halves() -> None:
    """Pictures of which one half is brighter, and the questions about them."""
    Path("data").mkdir()
    rows = []
    for number in range(4):
        pixels = np.full((32, 32), 60, np.uint8)
        pixels[:, slice(0, 16) if number % 2 else slice(16, 32)] = 120 + 10 * number
        Picture.fromarray(pixels).save(Path("data", f"{number}.png"))
        row = {"id": f"q{number}", "image": f"{number}.png", "question": "Which half is denser?", "A": "left"}
        rows.append(row | {"B": "right", "answer": "BA"[number % 2], "tools": ["brightness", "brightness"]})
    Path("data/test.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def chest_reports() -> None:
    """Reports in a table."""
    write_table("reports.csv", "id,report", [(n, f"Mild {WORDS[n % 12]}. No effusion. Edema.") for n in range(30)])


def fold() -> None:
    """What nnU-Net leaves of a cross-validation."""
    masks()
    trainer = Path("nnUNet_results/Dataset001_X/nnUNetTrainer__nnUNetPlans__3d_fullres")
    Path("labelsTr").mkdir()
    for number, path in enumerate(sorted(Path("labelsTs").iterdir())):
        validation = trainer / f"fold_{number % 5}" / "validation"
        validation.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path("a", path.name), validation)
        shutil.copy(path, "labelsTr")


PAGES: dict[str, tuple[Callable[[], object], ...]] = {
    "README.md": (masks, study, pictures, reports, scores),
    "docs/evaluate/agents.md": (halves,),
    "docs/evaluate/classification.md": (probabilities,),
    "docs/publish/comparisons.md": (mask_runs, scores),
    "docs/evaluate/exports.md": (answer_runs,),
    "docs/publish/fairness.md": (mask_runs, errors),
    "docs/publish/figures.md": (mask_runs, probabilities),
    "docs/evaluate/imports.md": (log,),
    "docs/publish/intervals.md": (mask_runs,),
    "docs/publish/items.md": (answer_runs, scores),
    "docs/publish/leaderboard.md": (mask_runs, own_scores),
    "docs/definitions/report_labels.md": (chest_reports,),
    "docs/definitions/calibration.md": (probabilities,),
    "docs/evaluate/confidence.md": (probabilities,),
    "docs/extend/metric.md": (named_run,),
    "docs/extend/task.md": (masks,),
    "docs/start/clinicians.md": (study,),
    "docs/data/phi.md": (released,),
    "docs/evaluate/predict.md": (study,),
    "docs/evaluate/products.md": (pilot,),
    "docs/publish/protocols.md": (prognosis,),
    "docs/start/python.md": (two_models,),
    "docs/data/questions.md": (questions,),
    "docs/publish/reader_studies.md": (rated_form,),
    "docs/data/reading.md": (study, diffusion),
    "docs/publish/report.md": (tissue_run, scores),
    "docs/evaluate/score_files.md": (pictures, boxes_and_points, classes, volumes, answers),
    "docs/evaluate/score_masks.md": (fold,),
    "docs/evaluate/score_reports.md": (reports,),
}


if __name__ == "__main__":
    for write in PAGES.get(sys.argv[1], ()):
        write()
