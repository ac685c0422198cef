"""A command of each published system whose answers are files or fitted networks, on files in the authors' form.

`test_system_runs.py` runs those that ask models questions; `STARTED` names the tests that start the others.
"""

import csv
import json
import re
import shlex
from pathlib import Path

import h5py
import numpy as np
import pytest

from medimg_eval.api.listing import published_systems
from medimg_eval.commands.cli import start
from medimg_eval.imaging import write_mask
from tests.benchmarks import test_nbml, test_olives
from tests.benchmarks.test_chexgenbench import benchmark as chexgenbench
from tests.benchmarks.test_dlcs import nlst, write_annotations
from tests.benchmarks.test_fairseg import fairseg
from tests.benchmarks.test_nlst import write_treatments
from tests.benchmarks.test_nnunet_sets import decathlon
from tests.benchmarks.test_opencapbench import root as opencap
from tests.benchmarks.test_reconstruction_sets import mc_mrrec, skm_tea
from tests.benchmarks.test_skm_tea_detection import root as knees
from tests.benchmarks.test_totalsegmentator import amos
from tests.benchmarks.test_touchstone import totalsegmentator
from tests.benchmarks.test_ubench import busi
from tests.benchmarks.test_viewxgen import write as write_views
from tests.commands.test_system_runs import RUNNABLE
from tests.helpers.benchmark_files import picture, task, volume
from tests.helpers.catalogue import composed as stated
from tests.helpers.config_files import config_file
from tests.tasks.test_landmarks import aasce
from tests.tasks.test_registration import write as write_pairs
from tests.tasks.test_verse import verse
from tests.tasks.test_vertebrae import root as vertebrae

FIXTURES = (
    aasce, amos, busi, chexgenbench, fairseg, knees, mc_mrrec, nlst, opencap, skm_tea, totalsegmentator, verse,
    vertebrae,
)  # fmt: skip
"""Fixtures of other tests, which pytest finds by their names here."""

STARTED = {
    "HEST-Benchmark": "benchmarks/test_hest.py",
    "MultiMed": "benchmarks/test_multimed.py",
    "Hulu-Med": "benchmarks/test_question_suites.py",
    "Lingshu (MedEvalKit)": "benchmarks/test_question_suites.py",
    "Pillar-0 (RATE)": "benchmarks/test_rate.py",
    "PitVis-2023": "end_to_end/test_film_systems.py",
    "BleedOrigin-Bench": "end_to_end/test_film_systems.py",
    "Scoliosis1K-Pose (DRF)": "end_to_end/test_film_systems.py",
    "StrokeVision-Bench": "end_to_end/test_film_systems.py",
    "MOSAIC": "commands/test_label.py",
    "GPFM": "benchmarks/test_gpfm.py",
    "T^3 (test-time merging)": "models/classification/test_merged.py",
}
"""Row -> the test that starts its commands, or runs its task or model without them."""

SMALL = ["trainer.max_epochs=1", "trainer.accelerator=cpu", "batch_size=2", "num_workers=0"]
TINY = "resnet10t"
"""A network of timm that is fitted in a second."""

SPLEEN = (np.indices((16, 16, 16)).sum(0) > 30).astype(np.int16)


def write_rows(path, *rows):
    with Path(path).open("w", newline="") as stream:
        csv.writer(stream).writerows(rows)
    return path


def write_classes(benchmark, path):
    """The right classes as a table of probabilities."""
    cases = [(case.id, case.target.read().values) for case in benchmark.cases("test")]
    names = list(cases[0][1])
    return write_rows(path, ["case", *names], *([name, *(held[one] for one in names)] for name, held in cases))


def write_masks(benchmark, folder, ending=".nii.gz"):
    """The right label maps in files that are called as their cases."""
    for case in benchmark.cases("test"):
        path = folder / f"{case.id}{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_mask(path, case.target.read())
    return folder


def write_as_nnunet(benchmark, folder):
    """The right label maps as nnU-Net leaves its predictions."""
    write_masks(benchmark, folder)
    labels = {"background": 0} | {name: number for number, name in benchmark.labels.items()}
    (folder / "dataset.json").write_text(json.dumps({"labels": labels, "file_ending": ".nii.gz"}))


def any_number(name, key="task"):
    """Words that let a task go on with fewer cases than are published."""
    return [f"~{key}.expected"] if stated(name).get("expected") else []


# What each command finds: functions of a folder and of pytest's request, which return further words ----------------

FILES = {}


def serves(*words):
    """Registers the files of a command, as the list of systems writes it."""
    return lambda function: FILES.setdefault(" ".join(words), function)


@serves("score answers=FILE.csv metrics=[accuracy,spinal_level_exact,spinal_level_within@1]")
def _spinebench(folder, request):
    rows = [("a", "L4-5", "L4/L5"), ("b", "C3", "the third cervical vertebra, C3"), ("c", "T12", "L1")]
    write_rows(folder / "FILE.csv", ("id", "reference", "prediction"), *rows)
    return []


@serves("score reports=FILE.csv 'columns={set: GROUP}' metrics=[consistency_rules,consistency_rules_weighted]")
def _icon(folder, request):
    rows = [(f"r{n}", "Mild edema. No effusion.", "Mild edema." if n % 2 else "Clear.", n // 4) for n in range(8)]
    write_rows(folder / "FILE.csv", ("id", "reference", "prediction", "GROUP"), *rows)
    return []


@serves("test task=chexgenbench model=precomputed_images model.root=PICTURES")
def _chexgenbench(folder, request):
    request.getfixturevalue("chexgenbench")
    return [
        *(f"task.layout.root={folder}/data", f"model.root={folder}/data/made"),
        "model.table=generations_with_metadata.csv",
        *("task.metrics=[generation_failure_rate,pixel_distance]", "~task.expected"),  # others ask for weights
    ]


@serves("test suite=touchstone model=nnunet_results model.root=PREDICTIONS")
def _touchstone(folder, request):
    root = request.getfixturevalue("totalsegmentator")
    write_as_nnunet(task("touchstone_totalsegmentator", root), folder / "PREDICTIONS")
    kept = "tasks.touchstone_totalsegmentator"
    return ["~tasks.touchstone_dap_atlas", f"{kept}.layout.root={root}", f"~{kept}.expected"]


@serves("test suite=mrsegmentator model=mrsegmentator_results model.root=PREDICTIONS")
def _mrsegmentator(folder, request):
    root = request.getfixturevalue("amos")
    names = ("mrsegmentator_amos_mr", "mrsegmentator_amos_ct")
    for name in names:
        write_masks(task(name, root), folder / "PREDICTIONS", "_seg.nii.gz")
    return [
        *("~tasks.mrsegmentator_totalsegmentator_mri", *(f"tasks.{name}.layout.root={root}" for name in names)),
        *(word for name in names for word in any_number(name, f"tasks.{name}")),
    ]


@serves("test task=fairseg model=precomputed model.root=PREDICTIONS")
def _fairseg(folder, request):
    root = request.getfixturevalue("fairseg")
    for case in task("fairseg", root).cases("test"):
        picture(folder / "PREDICTIONS" / f"{case.id}.png", case.target.read().labels)
    return [f"task.layout.root={root}", 'model.pattern="{case}.png"', *any_number("fairseg")]


@serves("test task=healthivert model=precomputed model.root=LABELS")
def _healthivert(folder, request):
    root = request.getfixturevalue("vertebrae")
    return [f"task.layout.root={root}", f"model.root={root}/made"]


@serves("fit task=benchx_nih model=timm_classifier model.backbone=BACKBONE run=FIT")
def _benchx(folder, request):
    names = [f"{number:08d}_000.png" for number in range(12)]
    lines = ["Image Index,Finding Labels,Patient Gender,Patient Age,View Position"]
    for number, name in enumerate(names):
        picture(folder / "data/images" / name, np.full((32, 32), 20 * number))
        lines.append(f"{name},{'Mass|Edema' if number % 2 else 'No Finding'},F,40,PA")
    (folder / "data/Data_Entry_2017_v2020.csv").write_text("\n".join(lines) + "\n")
    for place, part in enumerate(("train", "val", "test")):
        (folder / f"data/{part}.txt").write_text("".join(f"{name}\n" for name in names[place::3]))
    return [f"task.layout.root={folder}/data", f"model.backbone={TINY}", "~task.expected", *SMALL]


@serves("test task=opencapbench model=precomputed_motions model.root=PREDICTIONS")
def _opencapbench(folder, request):
    root = request.getfixturevalue("opencap")
    return [f"task.layout.root={root}/truth", f"model.root={root}/said"]


@serves(
    "test task=skm_tea_detection model=precomputed_boxes model.root=BOXES.csv model.columns=[x,y,z,dx,dy,dz]",
    "model.form=sizes model.label=label",
)
def _skm_tea(folder, request):
    tear = ("MTR_0025", "Meniscal Tear", 304, 297, 87, 20, 35, 20, 0.9)
    fluid = ("MTR_0026", "Effusion", 1, 1, 1, 9, 9, 9, 0.2)
    write_rows(folder / "BOXES.csv", ("case", "label", "x", "y", "z", "dx", "dy", "dz", "score"), tear, fluid)
    return [f"task.layout.root={request.getfixturevalue('knees')}", "~task.expected"]


@serves("test task=skm_tea_tissues model=precomputed model.root=MASKS task.layout.run=RECONSTRUCTED")
def _skm_tissues(folder, request):
    root = request.getfixturevalue("skm_tea")[0]
    scan = ["test", "task=skm_tea_6x", "model=zero_filled", f"task.layout.root={root}", "~task.expected"]
    assert start([*scan, "task.metrics=[ssim@skmtea]", f"run={folder}/RECONSTRUCTED"]) == 0
    (folder / "MASKS").mkdir()
    name = "MTR_030.nii.gz"
    (folder / "MASKS" / name).write_bytes((root / "segmentation_masks/raw-data-track" / name).read_bytes())
    return [f"task.layout.layout.root={root}", "~task.expected"]


@serves("readers real=REAL generated=MADE out=FORM")
def _mewm(folder, request):
    for number in range(4):
        picture(folder / f"REAL/{number}.png", np.full((8, 8), 10 * number))
        picture(folder / f"MADE/{number}.png", np.full((8, 8), 10 * number + 5))
    return []


@serves("test task=nbml_patients model=precomputed_classes model.root=PROBABILITIES.csv")
def _realism(folder, request):
    test_nbml.write_patients(folder / "data")
    write_classes(task("nbml_patients", folder / "data"), folder / "PROBABILITIES.csv")
    return [f"task.layout.root={folder}/data"]


@serves("test task=kvasir_capsule_synthesis model=precomputed_images model.root=PICTURES")
def _cemis(folder, request):
    rows = [(f"video{n % 10}_{n}.jpg", "Polyp" if n % 3 else "Reduced Mucosal View") for n in range(40)]
    for name, label in rows:
        picture(folder / "data/labelled_images" / label.replace("View", "view") / name, np.zeros((8, 8, 3)))
    (folder / "data/official_splits").mkdir()
    for fold in (0, 1):
        write_rows(folder / f"data/official_splits/split_{fold}.csv", ("filename", "label"), *rows[fold::2])
    return [*_pictures_of("kvasir_capsule_synthesis", folder, (8, 8, 3)), "task.pictures=1"]


@serves("test task=viewxgen model=precomputed_images model.root=PICTURES")
def _viewxgen(folder, request):
    write_views(folder / "data")
    return _pictures_of("viewxgen", folder, (8, 8))


def _pictures_of(name, folder, shape):
    """A picture for each prompt, and what asks for no weights."""
    for case in task(name, folder / "data").cases("test"):
        picture(folder / "PICTURES" / f"{case.id}.png", np.full(shape, 9))
    return [
        *(f"task.layout.root={folder}/data", "task.metrics=[generation_failure_rate]"),
        *any_number(name),
    ]


@serves("fit task=olives_biomarkers model=timm_classifier model.backbone=BACKBONE run=FIT")
def _olives(folder, request):
    test_olives.write(folder / "data")
    return [f"task.layout.root={folder}/data", f"model.backbone={TINY}", *SMALL]


@serves("fit task=swinchex_nih model=timm_classifier model.backbone=swin_large_patch4_window7_224")
def _swinchex(folder, request):
    classes = list(stated("swinchex_nih")["classes"])
    (folder / "data/configs/NIH").mkdir(parents=True)
    for place, split in enumerate(("train", "validation", "test")):
        rows = []
        for number in range(4):
            name = f"{4 * place + number:08d}_000.png"
            picture(folder / f"data/images_001/images/{name}", np.full((32, 32), 40 * number))
            rows.append([name, *(int(at % 2 == number % 2) for at in range(14))])
        write_rows(folder / f"data/configs/NIH/{split}.csv", ("Image Index", *classes), *rows)
    return [f"task.layout.root={folder}/data", f"model.backbone={TINY}", "~task.expected", *SMALL]


@serves("test task=verse2019 model=nnunet_results model.root=PREDICTIONS")
def _verse(folder, request):
    write_as_nnunet(request.getfixturevalue("verse")("verse2019")("verse2019"), folder / "PREDICTIONS")
    return any_number("verse2019")


@serves("test task=mc_mrrec_r5 model=sense_combine")
def _mc_mrrec(folder, request):
    smaller = "task.metrics=[ssim@mcmrrec,psnr@mcmrrec]"  # VIF asks for pictures of 41 rows and columns
    return [f"task.layout.root={request.getfixturevalue('mc_mrrec')[0]}", smaller, *any_number("mc_mrrec_r5")]


@serves("fit task=pcam model=probe +model@model.encoder=phikon_v2 run=PROBE")
def _pcam(folder, request):
    rng, root = np.random.default_rng(0), folder / "data"
    root.mkdir()
    for split in ("train", "valid", "test"):
        with h5py.File(root / f"camelyonpatch_level_2_split_{split}_x.h5", "w") as file:
            file["x"] = rng.integers(0, 255, (8, 96, 96, 3), dtype=np.uint8)
        with h5py.File(root / f"camelyonpatch_level_2_split_{split}_y.h5", "w") as file:
            file["y"] = np.arange(8, dtype=np.uint8).reshape(8, 1, 1, 1) % 2
    return [f"task.layout.root={root}", "~task.expected"]


@serves("fit task=crc_100k model=owkin_probe +model@model.encoder=phikon_v2 run=PROBE")
def _phikon(folder, request):
    for place, name in enumerate(("ADI", "BACK", "DEB", "LYM", "MUC", "MUS", "NORM", "STR", "TUM")):
        for number in range(12):
            tile = np.full((24, 24, 3), 20 * place + number)
            picture(folder / f"data/NCT-CRC-HE-100K/{name}/{name}-{number}.tif", tile)
        picture(folder / f"data/CRC-VAL-HE-7K/{name}/{name}-99.tif", np.full((24, 24, 3), 20 * place))
    return [f"task.layout.root={folder}/data", "~task.expected"]


@serves("fit task=segbook task.name=Task009_Spleen model=dynunet")
def _segbook(folder, request):
    decathlon(folder / "segbook/Task009_Spleen", {"1": "Spleen"}, [f"x_{n}" for n in range(10)], values=SPLEEN)
    return [
        *(f"task.layout.root={folder}/segbook/Task009_Spleen", "trainer.max_epochs=1", "trainer.accelerator=cpu"),
        *("model.patches_per_case=1", "num_workers=0", "model.network.filters=[2,4,4,4,4]", "batch_size=1"),
    ]


@serves("test suite=ubench_source model=unet efficiency=true")
def _ubench(folder, request):
    root, kept = request.getfixturevalue("busi"), "tasks.ubench_busi"
    every = re.findall(r"@tasks\.(\w+):", config_file("ubench_source", "suite").read_text())
    others = [name for name in every if name != "ubench_busi"]
    words = [f"{kept}.layout.root={root}", *any_number("ubench_busi", kept), *(f"~tasks.{name}" for name in others)]
    small = ["model.network.channels=[2,4]", "model.network.strides=[2]"]
    fit = ["fit", "task=ubench_busi", "model=unet", f"task.layout.root={root}", *any_number("ubench_busi"), *small]
    assert start([*fit, *SMALL, f"run={folder}/FIT"]) == 0
    return [*words, *small, f"model.checkpoint={folder}/FIT"]


@serves("test task=aasce_cobb model=precomputed_numbers model.root=ANGLES.csv")
def _cobb(folder, request):
    request.getfixturevalue("aasce")
    write_rows(folder / "ANGLES.csv", ("case", "MT", "PT", "TL"), ("sunhl-1th-test", 38, 10, 15))
    return ["task.expected.test=1"]


@serves("test task=dlcs_nlst model=precomputed_points model.root=POINTS.csv")
def _dlcs(folder, request):
    rows = [("1.2.840.113654.2.55.1", -20, -10, 12, 0.9), ("1.2.840.113654.2.55.2", -4, -4, 4, 0.3)]
    write_rows(folder / "POINTS.csv", ("seriesuid", "coordX", "coordY", "coordZ", "probability"), *rows)
    return [f"task.layout.root={request.getfixturevalue('nlst')}", *any_number("dlcs_nlst")]


@serves(
    "test task=dlcs_boxes model=precomputed_boxes model.root=BOXES.csv model.columns=[x,y,z,w,h,d]",
    "model.form=sizes model.space=lps",
)
def _dlcs_boxes(folder, request):
    write_annotations(folder / "data")
    rows = [("DLCS_0001.nii.gz", -24, -12, 8, 8, 4, 8, 0.9), ("DLCS_0001.nii.gz", -10, -4, 8, 4, 4, 4, 0.3)]
    write_rows(folder / "BOXES.csv", ("case", "x", "y", "z", "w", "h", "d", "score"), *rows)
    return [f"task.layout.root={folder}/data"]


@serves("test task=mewm_treatment model=precomputed_classes model.root=TREATMENTS.csv")
def _treatments(folder, request):
    given = {f"p{number}": ["Lipiodol", "PVA"][: 1 + number % 2] for number in range(6)}
    write_treatments(folder / "data", stated("mewm_treatment")["classes"], given)
    write_classes(task("mewm_treatment", folder / "data"), folder / "TREATMENTS.csv")
    return [f"task.layout.root={folder}/data"]


@serves("fit task=brats2024_ssa model=mednext")
def _mednext(folder, request):
    rng = np.random.default_rng(0)
    for number in range(5):
        name = f"BraTS-SSA-{number:05d}-000"
        for sequence in ("t1n", "t1c", "t2w", "t2f"):
            volume(folder / f"data/{name}/{name}-{sequence}.nii.gz", rng.integers(1, 99, (16, 16, 16)))
        volume(folder / f"data/{name}/{name}-seg.nii.gz", SPLEEN)
    return [
        *(f"task.layout.root={folder}/data", "trainer.max_epochs=1", "trainer.accelerator=cpu", "batch_size=1"),
        *("model.network.init_filters=2", "model.patches_per_case=1", "num_workers=0", *any_number("brats2024_ssa")),
    ]


@serves("test task=l2r_abdomen_mrct model=precomputed_transforms model.root=TRANSFORMS")
def _skeletons(folder, request):
    write_pairs(folder / "data", name="AbdomenMRCT")
    (folder / "data/config.json").rename(folder / "data/AbdomenMRCT_VAL_evaluation_config.json")
    return [f"task.layout.root={folder}/data", f"model.root={folder}/data/fields"]


def takes_the_place(word):
    """Weights that nobody has here make room for an encoder without any."""
    return re.sub(r"=(uni|phikon_v2)$", "=colours_encoder", word)


@pytest.mark.long
@pytest.mark.parametrize("line", FILES)
def test_a_command_runs_on_files_of_its_authors_form(line, tmp_path, monkeypatch, capsys, request):
    monkeypatch.setattr("medimg_eval.results.statistics.summaries.MOST_RESAMPLES", 20)
    extra = FILES[line](tmp_path, request)
    monkeypatch.chdir(tmp_path)
    words = [takes_the_place(word) for word in shlex.split(line)]
    kept = [word for word in words if word.partition("=")[0] not in {one.partition("=")[0] for one in extra}]
    code, told = start([*kept, *extra]), capsys.readouterr().err
    assert code == 0 or "no case has a value" in told, told  # of what a few cases leave undefined
    manifests = [json.loads(path.read_text()) for path in tmp_path.rglob("manifest.json")]
    assert manifests or words[0] == "readers"
    assert {manifest["status"] for manifest in manifests} <= {"finished"}


def test_of_every_system_a_command_is_run():
    run = {*RUNNABLE, *FILES}
    for name, system in published_systems().items():
        if system["commands"] and not run & set(system["commands"]):
            assert name in STARTED, f"{name}: no command of it is run; add its files here, or name the test in STARTED"
            assert (Path(__file__).parents[1] / STARTED[name]).is_file()
    assert set(FILES) <= {line for system in published_systems().values() for line in system["commands"]}
