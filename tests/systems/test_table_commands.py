"""Commands of classes, places, made pictures and tables of scores, over files in their authors' form."""

import csv
import gzip
import os

import numpy as np
import pytest

from medimg_eval.commands.cli import start
from medimg_eval.data.layouts.synthesis.prompts import FINDINGS
from medimg_eval.metrics.finding_chains import ScanCandidates, ScanFindings, chain_scores
from tests.benchmarks import test_classification_sets as sets
from tests.benchmarks.test_chexgenbench import benchmark as chexgenbench
from tests.benchmarks.test_luna16 import ORIGIN, SPACING, luna
from tests.benchmarks.test_nbml import write_boxes
from tests.benchmarks.test_viewxgen import write as write_views
from tests.commands import test_score_places
from tests.helpers.authors import require_clone
from tests.helpers.benchmark_files import config, picture, task, volume
from tests.helpers.system_chains import EPOCH, NETWORK, QUICK, Chains, any_number, write_classes

pytestmark = pytest.mark.long

FIXTURES = (chexgenbench, luna)
"""Fixtures of other tests, which pytest finds by their names here."""

CHAINS = Chains()


def classed(name, write, folder):
    """The right classes of a set, where its command looks for PREDICTIONS."""
    (folder / "data").mkdir()
    write(folder / "data")
    write_classes(task(name, folder / "data"), folder / "PREDICTIONS")
    return [f"task.layout.root={folder}/data", *any_number(name), *QUICK]


@CHAINS.add("test task=vindr_mammo model=precomputed_classes model.root=PREDICTIONS")
def _vindr_mammo(folder, request):
    return classed("vindr_mammo", sets.write_vindr_mammo, folder)


@CHAINS.add("test task=pad_ufes_20 model=precomputed_classes model.root=PREDICTIONS")
def _pad_ufes(folder, request):
    return classed("pad_ufes_20", sets.write_pad_ufes, folder)


@CHAINS.add("test task=cbis_ddsm_mass model=precomputed_classes model.root=PREDICTIONS")
def _masses(folder, request):
    return classed("cbis_ddsm_mass", lambda root: sets.write_cbis_ddsm(root, "mass"), folder)


@CHAINS.add("test task=cbis_ddsm_calcification model=precomputed_classes model.root=PREDICTIONS")
def _calcifications(folder, request):
    return classed("cbis_ddsm_calcification", lambda root: sets.write_cbis_ddsm(root, "calc"), folder)


@CHAINS.add("test task=mimic_cxr_conditions model=precomputed_classes model.root=PREDICTIONS")
def _conditions(folder, request):
    return classed("mimic_cxr_conditions", sets.write_mimic_conditions, folder)


@CHAINS.add("test task=montgomery_tb model=precomputed_classes model.root=PREDICTIONS")
def _tuberculosis(folder, request):
    write = lambda root: sets.write_tuberculosis(root, "MontgomerySet", "MCUCXR")  # noqa: E731
    return classed("montgomery_tb", write, folder)


@CHAINS.add("test task=dlcs_nodules model=precomputed_classes model.root=PREDICTIONS")
def _nodules(folder, request):
    root = folder / "data"
    for name in "abcd":
        volume(root / "nifti" / f"{name}.nii.gz", np.zeros((4, 4, 4)))
    for part, names in (("tr", "ab"), ("val", "cd")):
        rows = "".join(f"{name}.nii.gz,{number}\n" for number, name in enumerate(names))
        (root / f"fold_1_{part}.csv").write_text("unique_Annotation_id_nifti,Malignant_lbl\n" + rows)
    write_classes(task("dlcs_nodules", root), folder / "PREDICTIONS")
    return [f"task.layout.root={root}", *any_number("dlcs_nodules"), *QUICK]


@CHAINS.add("test task=luna16 model=precomputed_points model.root=POINTS.csv")
def _luna(folder, request):
    root = request.getfixturevalue("luna")
    places = [("1.3.6.0a", (10, 5, 3), 0.9), ("1.3.6.0b", (20, 10, 3), 0.3)]
    rows = [("seriesuid", "coordX", "coordY", "coordZ", "probability")]
    for name, place, score in places:
        millimetres = (start + step * n for start, step, n in zip(ORIGIN, SPACING, place, strict=True))
        rows.append((name, *millimetres, score))
    write_rows(folder / "POINTS.csv", rows)
    return [f"task.layout.root={root}", *any_number("luna16"), *QUICK]


def write_rows(path, rows):
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows(rows)


@CHAINS.add("fit task=brain_tumour_mri model=timm_classifier model.backbone=BACKBONE")
def _brain_tumours(folder, request):
    for part, count in (("Training", 4), ("Testing", 1)):
        for kind in ("glioma", "meningioma", "notumor", "pituitary"):
            for number in range(count):
                name = f"{part[:2]}-{kind[:2]}_{number:04d}.jpg"
                picture(folder / "data" / part / kind / name, np.full((12, 10, 3), 9 * number))
    words = [f"task.layout.root={folder}/data", *any_number("brain_tumour_mri"), *QUICK, *EPOCH]
    return [*words, f"model.backbone={NETWORK}"]


@CHAINS.add("test task=nbml_tumours model=precomputed_boxes model.root=PREDICTIONS")
def _tumours(folder, request):
    write_boxes(folder / "data")
    (folder / "PREDICTIONS").mkdir()
    for name, box in (("testT12", "4,1,12,3,0.9\n"), ("testN7", ""), ("testN8", "1,1,4,4,0.2\n")):
        (folder / f"PREDICTIONS/{name}.csv").write_text(f"xmin,ymin,xmax,ymax,score\n{box}")
    return [f"task.layout.root={folder}/data", *any_number("nbml_tumours"), *QUICK]


@CHAINS.add("score boxes=PREDICTIONS.json references=COCO.json metrics=[detection_f1]")
def _boxes(folder, request):
    request.getfixturevalue("monkeypatch").chdir(folder)
    test_score_places.write_boxes()
    (folder / "mine.json").rename(folder / "PREDICTIONS.json")
    (folder / "right.json").rename(folder / "COCO.json")
    return []


@CHAINS.add(
    "table scores=PROBABILITIES.csv metrics=[aggregated@max-patient:f1_score@macro,"
    "aggregated@max3-patient:f1_score@macro,aggregated@max-patient:ppv_at_prevalence@0.1]"
)
def _patients(folder, request):
    rows = [("case", "patient", "model", "metric", "label", "value", "status")]
    rng = np.random.default_rng(0)
    for number in range(60):
        has_tumour = number // 5 % 2
        value = round(float(np.clip(rng.normal(0.3 + 0.4 * has_tumour, 0.2), 0, 1)), 3)
        status = "present" if has_tumour else "absent"
        rows.append((f"c{number}", f"p{number // 5}", "mine", "probability", "Tumor", value, status))
    write_rows(folder / "PROBABILITIES.csv", rows)
    return ["resamples=20"]


@CHAINS.add("table scores=CHAIN.csv metrics=[auroc@malignant,aggregated@max-patient:auroc@malignant]")
def _finding_chains(folder, request):
    rng, findings, candidates = np.random.default_rng(0), {}, {}
    for number in range(20):
        centres = rng.uniform(0, 300, (2, 3))
        findings[f"s{number}"] = ScanFindings(centres, np.array([5.0, 5.0]), np.array([number % 2 == 0, False]))
        marked = np.vstack([centres[: 1 + number % 2], rng.uniform(0, 300, (1, 3))])
        candidates[f"s{number}"] = ScanCandidates(marked, *rng.uniform(0.4, 1, (2, len(marked))))
    rows = chain_scores(findings, candidates, least=0.5, label="malignant")
    write_rows(folder / "CHAIN.csv", [list(rows[0]), *(list(row.values()) for row in rows)])
    return ["resamples=20"]


@CHAINS.add("rank scores=FILE.csv")
def _ranks(folder, request):
    rows = [("task", "case", "model", "metric", "value")]
    for number in range(60):
        model = ("GPFM", "UNI", "CHIEF")[number % 3]
        rows.append((f"task{number // 30}", f"c{number // 3}", model, "dice", 0.5 + (number * 7 % 13) / 30))
    write_rows(folder / "FILE.csv", rows)
    return ["resamples=20"]


@CHAINS.add("readers real=REAL generated=MADE out=FORM", "readers score=SHEETS key=KEY.csv out=TABLES")
def _readers(folder, request):
    for number in range(4):
        picture(folder / f"REAL/{number}.png", np.full((8, 8), 10 * number))
        picture(folder / f"MADE/{number}.png", np.full((8, 8), 10 * number + 5))
    form = ["readers", f"real={folder}/REAL", f"generated={folder}/MADE", f"out={folder}/EARLIER"]
    assert start(form) == 0
    (folder / "EARLIER-key.csv").rename(folder / "KEY.csv")
    with (folder / "KEY.csv").open(newline="") as stream:
        truths = {row["item"]: row["truth"] for row in csv.DictReader(stream)}
    (folder / "SHEETS").mkdir()
    for reader in "AB":
        rows = [(reader, item, truth, 4 if truth == "real" else 3) for item, truth in truths.items()]
        write_rows(folder / f"SHEETS/{reader}.csv", [("reader", "item", "origin", "quality"), *rows])
    return [[], ["score=[SHEETS/A.csv,SHEETS/B.csv]"]]


def write_viewed(folder, *metrics):
    """ViewXGen's studies with a picture for each prompt; words that name them."""
    write_views(folder / "data")
    for case in task("viewxgen", folder / "data").cases("test"):
        picture(folder / "PICTURES" / f"{case.id}.png", np.full((8, 8), 9))
    return [f"task.layout.root={folder}/data", *any_number("viewxgen"), *QUICK, *metrics]


@CHAINS.add("test task=viewxgen model=precomputed_images model.root=PICTURES task.layout.given=false")
def _viewxgen(folder, request):
    return write_viewed(folder, "task.metrics=[generation_failure_rate]")  # others ask for weights


@CHAINS.add(
    "test task=viewxgen model=precomputed_images model.root=PICTURES "
    "task.metrics=[finding_agreement@finding_classifier,view_accuracy@view_classifier] "
    "task.layout.labels=mimic-cxr-2.0.0-chexpert.csv.gz"
)
def _viewxgen_findings(folder, request):
    import timm
    import torch

    words = write_viewed(folder)
    studies = (("10000001", "50000001"), ("10000001", "50000002"), ("10000002", "50000003"))
    rows = [",".join([*ids, *("1.0" if number % 2 else "0.0" for number in range(len(FINDINGS)))]) for ids in studies]
    with gzip.open(folder / "data/mimic-cxr-2.0.0-chexpert.csv.gz", "wt") as stream:
        stream.write("\n".join([",".join(["subject_id", "study_id", *FINDINGS]), *rows]) + "\n")
    for name, classes in (("finding", 14), ("view", 3)):
        torch.save(timm.create_model(NETWORK, num_classes=classes).state_dict(), folder / f"{name}.bin")
        words += [f"extractors.{name}_classifier.{key}" for key in (f"backbone={NETWORK}", f"weights={name}.bin")]
    return words


@CHAINS.add("test task=chexgenbench_privacy model=precomputed_images model.root=PICTURES")
def _privacy(folder, request):
    root = request.getfixturevalue("chexgenbench")
    for place, case in enumerate(task("chexgenbench_privacy", root).cases("test")):
        for number in range(10):
            picture(folder / f"PICTURES/{case.id}/{number}.png", np.full((16, 16), 5 * place + number))
    some = "task.metrics=[generation_failure_rate,pixel_distance]"  # others ask for weights
    words = [f"task.layout.root={root}", *any_number("chexgenbench_privacy"), *QUICK, some]
    return [*words, "model.pattern='{case}/{n}.png'"]


@CHAINS.add(
    "test task=chexgenbench model=precomputed_images model.root=PICTURES",
    "utility task=chexpert synthetic=RUN model=timm_classifier",
)
def _utility(folder, request):
    root, classes = request.getfixturevalue("chexgenbench"), list(config("chexpert").classes)
    some = "task.metrics=[generation_failure_rate,pixel_distance]"
    made = [f"task.layout.root={root}", *any_number("chexgenbench"), *QUICK, some, f"model.root={root}/made"]
    for split, count in (("train", 12), ("valid", 6)):
        told = [dict.fromkeys(classes, "0.0") | {classes[n % 14]: "1.0", "Edema": f"{n % 2}.0"} for n in range(count)]
        studies = [(f"patient{count}{n:03d}/study1", ["frontal"], values) for n, values in enumerate(told)]
        sets.chexpert(folder / "chexpert", studies, split, classes)
    words = [f"task.layout.root={folder}/chexpert", *any_number("chexpert"), *QUICK, "trainer.max_epochs=1"]
    words += [f"model.backbone={NETWORK}", "settings=[real,synthetic]", "seeds=[0]", "resamples=20", "batch_size=2"]
    return [[*made, "model.table=generations_with_metadata.csv", "run=RUN"], words]


CLONED = {
    "factchexcker": "rajpurkarlab/FactCheXcker",
    "worldmedqa_v": "WorldMedQA/V",
    "hest": "mahmoodlab/HEST",
    "eva": "kaiko-ai/eva",
    "medsg_bench": "XavierSylus/MedSG-Bench",
    "deeptumorvqa": "Schuture/DeepTumorVQA",
    "segbook": "uni-medical/SegBook",
}


def publish(name, repository):
    def prepare(folder, request):
        require_clone(repository)
        (folder / "CLONES").symlink_to(os.environ["MEDIMG_EVAL_CLONES"])
        return ["resamples=20"]

    prepare.__name__ = f"published_{name}"
    CHAINS.add(f"published {name} clones=CLONES")(prepare)


for asked, held in CLONED.items():
    publish(asked, held)


@pytest.mark.parametrize("lines", CHAINS, ids=CHAINS.names)
def test_commands_run_on_files_of_their_authors_form(lines, run_chain):
    run_chain(CHAINS, lines)
