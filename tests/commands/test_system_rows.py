"""A command of each published system whose answers are files or fitted networks, on files in the authors' form.

`test_system_runs.py` runs those that ask models questions; `tests/systems` runs the others.
"""

import csv
import json
import re
from pathlib import Path

import h5py
import numpy as np
import pytest

from medimg_eval.commands.cli import start
from medimg_eval.imaging import write_mask
from tests.benchmarks import test_nbml, test_ubench
from tests.benchmarks.test_chexgenbench import benchmark as chexgenbench
from tests.benchmarks.test_dlcs import nlst, write_annotations
from tests.benchmarks.test_fairseg import fairseg
from tests.benchmarks.test_nlst import write_treatments
from tests.benchmarks.test_nnunet_sets import decathlon
from tests.benchmarks.test_opencapbench import root as opencap
from tests.benchmarks.test_pictures import drive
from tests.benchmarks.test_reconstruction_sets import fastmri, skm_tea, write_mc_mrrec
from tests.benchmarks.test_skm_tea_detection import root as knees
from tests.benchmarks.test_totalsegmentator import amos
from tests.benchmarks.test_touchstone import totalsegmentator
from tests.benchmarks.test_ubench import busi
from tests.benchmarks.test_viewxgen import write as write_views
from tests.helpers.benchmark_files import picture, task, volume
from tests.helpers.catalogue import composed as stated
from tests.helpers.config_files import config_file
from tests.helpers.system_chains import Chains
from tests.tasks.test_landmarks import aasce
from tests.tasks.test_registration import write as write_pairs
from tests.tasks.test_verse import verse
from tests.tasks.test_vertebrae import root as vertebrae

FIXTURES = (
    aasce, amos, busi, chexgenbench, drive, fairseg, fastmri, knees, nlst, opencap, skm_tea, totalsegmentator,
    verse, vertebrae,
)  # fmt: skip
"""Fixtures of other tests, which pytest finds by their names here."""

SMALL = ["trainer.max_epochs=1", "trainer.accelerator=cpu", "batch_size=2", "num_workers=0"]
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

CHAINS = Chains()


@CHAINS.add("score answers=FILE.csv metrics=[accuracy,spinal_level_exact,spinal_level_within@1]")
def _spinebench(folder, request):
    rows = [("a", "L4-5", "L4/L5"), ("b", "C3", "the third cervical vertebra, C3"), ("c", "T12", "L1")]
    write_rows(folder / "FILE.csv", ("id", "reference", "prediction"), *rows)
    return []


@CHAINS.add("score reports=FILE.csv 'columns={set: GROUP}' metrics=[consistency_rules,consistency_rules_weighted]")
def _icon(folder, request):
    rows = [(f"r{n}", "Mild edema. No effusion.", "Mild edema." if n % 2 else "Clear.", n // 4) for n in range(8)]
    write_rows(folder / "FILE.csv", ("id", "reference", "prediction", "GROUP"), *rows)
    return []


@CHAINS.add("test task=chexgenbench model=precomputed_images model.root=PICTURES")
def _chexgenbench(folder, request):
    request.getfixturevalue("chexgenbench")
    return [
        *(f"task.layout.root={folder}/data", f"model.root={folder}/data/made"),
        "model.table=generations_with_metadata.csv",
        *("task.metrics=[generation_failure_rate,pixel_distance]", "~task.expected"),  # others ask for weights
    ]


@CHAINS.add("test suite=touchstone model=nnunet_results model.root=PREDICTIONS", "compare metric=dice")
def _touchstone(folder, request):
    root = request.getfixturevalue("totalsegmentator")
    write_as_nnunet(task("touchstone_totalsegmentator", root), folder / "PREDICTIONS")
    kept = "tasks.touchstone_totalsegmentator"
    words = ["~tasks.touchstone_dap_atlas", f"{kept}.layout.root={root}", f"~{kept}.expected"]
    other = ["model=nnunet_results", "model.name=Other", f"model.root={folder}/PREDICTIONS", f"runs={folder}/runs"]
    assert start(["test", "suite=touchstone", *words, *other]) == 0
    return [words, []]


@CHAINS.add("test suite=mrsegmentator model=mrsegmentator_results model.root=PREDICTIONS")
def _mrsegmentator(folder, request):
    root = request.getfixturevalue("amos")
    names = ("mrsegmentator_amos_mr", "mrsegmentator_amos_ct")
    for name in names:
        write_masks(task(name, root), folder / "PREDICTIONS", "_seg.nii.gz")
    return [
        *("~tasks.mrsegmentator_totalsegmentator_mri", *(f"tasks.{name}.layout.root={root}" for name in names)),
        *(word for name in names for word in any_number(name, f"tasks.{name}")),
    ]


@CHAINS.add(
    "test task=fairseg model=precomputed model.root=PREDICTIONS",
    "test task=fairseg model=precomputed model.root=PREDICTIONS task.protocol=published",
    "fairness by=race metrics=[dice]",
)
def _fairseg(folder, request):
    root = request.getfixturevalue("fairseg")
    for case in task("fairseg", root).cases("test"):
        picture(folder / "PREDICTIONS" / f"{case.id}.png", case.target.read().labels)
    words = [f"task.layout.root={root}", 'model.pattern="{case}.png"', *any_number("fairseg")]
    return [words, words, []]


@CHAINS.add("test task=healthivert model=precomputed model.root=LABELS")
def _healthivert(folder, request):
    root = request.getfixturevalue("vertebrae")
    return [f"task.layout.root={root}", f"model.root={root}/made"]


@CHAINS.add("test task=opencapbench model=precomputed_motions model.root=PREDICTIONS", "table by=label")
def _opencapbench(folder, request):
    root = request.getfixturevalue("opencap")
    return [[f"task.layout.root={root}/truth", f"model.root={root}/said"], []]


@CHAINS.add(
    "test task=skm_tea_detection model=precomputed_boxes model.root=BOXES.csv model.columns=[x,y,z,dx,dy,dz] "
    "model.form=sizes model.label=label",
)
def _skm_tea(folder, request):
    tear = ("MTR_0025", "Meniscal Tear", 304, 297, 87, 20, 35, 20, 0.9)
    fluid = ("MTR_0026", "Effusion", 1, 1, 1, 9, 9, 9, 0.2)
    write_rows(folder / "BOXES.csv", ("case", "label", "x", "y", "z", "dx", "dy", "dz", "score"), tear, fluid)
    return [f"task.layout.root={request.getfixturevalue('knees')}", "~task.expected"]


def write_tissues(folder, root):
    """A run of reconstructions, RECONSTRUCTED, and MASKS of its knee."""
    scan = ["test", "task=skm_tea_6x", "model=zero_filled", f"task.layout.root={root}", "~task.expected"]
    assert start([*scan, "task.metrics=[ssim@skmtea]", f"run={folder}/RECONSTRUCTED"]) == 0
    (folder / "MASKS").mkdir()
    name = "MTR_030.nii.gz"
    (folder / "MASKS" / name).write_bytes((root / "segmentation_masks/raw-data-track" / name).read_bytes())
    return [f"task.layout.layout.root={root}", "~task.expected"]


@CHAINS.add("test task=skm_tea_tissues model=precomputed model.root=MASKS task.layout.run=RECONSTRUCTED")
def _skm_tissues(folder, request):
    return write_tissues(folder, request.getfixturevalue("skm_tea")[0])


@CHAINS.add("readers real=REAL generated=MADE out=FORM")
def _mewm(folder, request):
    for number in range(4):
        picture(folder / f"REAL/{number}.png", np.full((8, 8), 10 * number))
        picture(folder / f"MADE/{number}.png", np.full((8, 8), 10 * number + 5))
    return []


@CHAINS.add("test task=nbml_patients model=precomputed_classes model.root=PROBABILITIES.csv")
def _realism(folder, request):
    test_nbml.write_patients(folder / "data")
    write_classes(task("nbml_patients", folder / "data"), folder / "PROBABILITIES.csv")
    return [f"task.layout.root={folder}/data"]


@CHAINS.add("test task=kvasir_capsule_synthesis model=precomputed_images model.root=PICTURES")
def _cemis(folder, request):
    rows = [(f"video{n % 10}_{n}.jpg", "Polyp" if n % 3 else "Reduced Mucosal View") for n in range(40)]
    for name, label in rows:
        picture(folder / "data/labelled_images" / label.replace("View", "view") / name, np.zeros((8, 8, 3)))
    (folder / "data/official_splits").mkdir()
    for fold in (0, 1):
        write_rows(folder / f"data/official_splits/split_{fold}.csv", ("filename", "label"), *rows[fold::2])
    return [*_pictures_of("kvasir_capsule_synthesis", folder, (8, 8, 3)), "task.pictures=1"]


@CHAINS.add("test task=viewxgen model=precomputed_images model.root=PICTURES")
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


@CHAINS.add(
    "test task=verse2019 model=nnunet_results model.root=PREDICTIONS",
    "test task=verse2019_landmarks model=precomputed_centroids model.root=CENTRES",
)
def _verse(folder, request, year="verse2019"):
    write_as_nnunet(request.getfixturevalue("verse")(year)(year), folder / "PREDICTIONS")
    (folder / "CENTRES").mkdir()
    for path in (folder / year).rglob("*_ctd.json"):
        name = path.name.replace("_seg-subreg", "")
        (folder / "CENTRES" / name).write_text(path.read_text())
    return [any_number(year), any_number(f"{year}_landmarks")]


@CHAINS.add(
    "test task=verse2020 model=nnunet_results model.root=PREDICTIONS",
    "test task=verse2020_landmarks model=precomputed_centroids model.root=CENTRES",
)
def _verse_of_the_next_year(folder, request):
    return _verse(folder, request, "verse2020")


@CHAINS.add(
    "test task=mc_mrrec_r5 model=sense_combine",
    "test task=mc_mrrec_r10 model=sense_combine",
    "rank 'weights={ssim@mcmrrec: 0.4, psnr@mcmrrec: 0.2, vif@mcmrrec: 0.4}' pool=true",
)
def _mc_mrrec(folder, request):
    write_mc_mrrec(folder / "data", 44, 42)  # VIF asks for pictures of 41 rows and columns
    words = [f"task.layout.root={folder}/data", "task.layout.slices=[100,104]"]
    for name in ("mc_mrrec_r5", "mc_mrrec_r10"):
        other = [f"task={name}", "model=zero_filled", *words, *any_number(name), f"runs={folder}/runs"]
        assert start(["test", *other]) == 0
    return [[*words, *any_number("mc_mrrec_r5")], [*words, *any_number("mc_mrrec_r10")], []]


@CHAINS.add("fit task=segbook task.name=Task009_Spleen model=dynunet")
def _segbook(folder, request):
    decathlon(folder / "segbook/Task009_Spleen", {"1": "Spleen"}, [f"x_{n}" for n in range(10)], values=SPLEEN)
    return [
        *(f"task.layout.root={folder}/segbook/Task009_Spleen", "trainer.max_epochs=1", "trainer.accelerator=cpu"),
        *("model.patches_per_case=1", "num_workers=0", "model.network.filters=[2,4,4,4,4]", "batch_size=1"),
    ]


@CHAINS.add(
    "test suite=ubench_source model=unet efficiency=true",
    "test suite=ubench_target model=unet efficiency=true",
    "compare metric=iou",
)
def _ubench(folder, request):
    root, words = request.getfixturevalue("busi"), []
    image, masks, lists = test_ubench.MASKS["ubench_ph2"]
    test_ubench.write(folder / "target", [(image, masks)], lists)
    small = ["model.network.channels=[2,4]", "model.network.strides=[2]"]
    fit = ["fit", "task=ubench_busi", "model=unet", f"task.layout.root={root}", *any_number("ubench_busi"), *small]
    assert start([*fit, *SMALL, f"run={folder}/FIT"]) == 0
    for suite, name, place in (("source", "ubench_busi", root), ("target", "ubench_ph2", folder / "target")):
        every = re.findall(r"@tasks\.(\w+):", config_file(f"ubench_{suite}", "suite").read_text())
        words.append([f"tasks.{name}.layout.root={place}", *any_number(name, f"tasks.{name}")])
        words[-1] += [f"~tasks.{left}" for left in every if left != name] + [*small, f"model.checkpoint={folder}/FIT"]
    other = ["suite=ubench_source", "model=unet", "model.name=Other", "efficiency=true", *words[0]]
    assert start(["test", *other, f"runs={folder}/runs"]) == 0
    return [*words, []]


@CHAINS.add("test task=aasce_cobb model=precomputed_numbers model.root=ANGLES.csv")
def _cobb(folder, request):
    request.getfixturevalue("aasce")
    write_rows(folder / "ANGLES.csv", ("case", "MT", "PT", "TL"), ("sunhl-1th-test", 38, 10, 15))
    return ["task.expected.test=1"]


@CHAINS.add("test task=dlcs_nlst model=precomputed_points model.root=POINTS.csv")
def _dlcs(folder, request):
    rows = [("1.2.840.113654.2.55.1", -20, -10, 12, 0.9), ("1.2.840.113654.2.55.2", -4, -4, 4, 0.3)]
    write_rows(folder / "POINTS.csv", ("seriesuid", "coordX", "coordY", "coordZ", "probability"), *rows)
    return [f"task.layout.root={request.getfixturevalue('nlst')}", *any_number("dlcs_nlst")]


@CHAINS.add(
    "test task=dlcs_boxes model=precomputed_boxes model.root=BOXES.csv model.columns=[x,y,z,w,h,d] "
    "model.form=sizes model.space=lps"
)
def _dlcs_boxes(folder, request):
    write_annotations(folder / "data")
    rows = [("DLCS_0001.nii.gz", -24, -12, 8, 8, 4, 8, 0.9), ("DLCS_0001.nii.gz", -10, -4, 8, 4, 4, 4, 0.3)]
    write_rows(folder / "BOXES.csv", ("case", "x", "y", "z", "w", "h", "d", "score"), *rows)
    return [f"task.layout.root={folder}/data"]


@CHAINS.add("test task=mewm_treatment model=precomputed_classes model.root=TREATMENTS.csv")
def _treatments(folder, request):
    given = {f"p{number}": ["Lipiodol", "PVA"][: 1 + number % 2] for number in range(6)}
    write_treatments(folder / "data", stated("mewm_treatment")["classes"], given)
    write_classes(task("mewm_treatment", folder / "data"), folder / "TREATMENTS.csv")
    return [f"task.layout.root={folder}/data"]


@CHAINS.add(
    "fit task=brats2024_ssa model=mednext run=SSA",
    "test task=brats2024_ssa model=mednext model.checkpoint=SSA",
    "fit task=brats2024_ped model=mednext run=PED",
    "test task=brats2024_ped model=mednext model.checkpoint=PED",
)
def _mednext(folder, request):
    rng, words = np.random.default_rng(0), []
    small = ["trainer.accelerator=cpu", "batch_size=1", "model.network.init_filters=2", "num_workers=0"]
    for challenge, labels in (("SSA", 3), ("PED", 4)):
        root, name = folder / challenge.lower(), f"brats2024_{challenge.lower()}"
        for number in range(5):
            case = f"BraTS-{challenge}-{number:05d}-000"
            for sequence in ("t1n", "t1c", "t2w", "t2f"):
                volume(root / f"{case}/{case}-{sequence}.nii.gz", rng.integers(1, 99, (16, 16, 16)))
            volume(root / f"{case}/{case}-seg.nii.gz", SPLEEN * (np.indices((16, 16, 16))[0] // 2 % (labels + 1)))
        tested = [f"task.layout.root={root}", *any_number(name), *small]
        words += [[*tested, "trainer.max_epochs=1", "model.patches_per_case=1"], tested]
    return words


@CHAINS.add(
    "fit task=fastmri_knee_4x model=recon_unet run=FIT",
    "test task=skm_tea_6x model=recon_unet model.checkpoint=FIT",
    "test task=skm_tea_8x model=precomputed_reconstructions model.root=FOLDER",
    "test task=skm_tea_6x model=recon_unet model.checkpoint=FIT task.layout.segmentation=SEGMENTED "
    "task.t2.subregions=true",
)
def _skm_tea_images(folder, request):
    knees, (root, _, echoes, _) = request.getfixturevalue("fastmri")[0], request.getfixturevalue("skm_tea")
    (folder / "FOLDER").mkdir()
    with h5py.File(folder / "FOLDER/MTR_030.h5", "w") as file:
        file["reconstruction"] = echoes.transpose(3, 0, 1, 2)
    words = [f"task.layout.root={root}", *any_number("skm_tea_6x"), "trainer.accelerator=cpu", "num_workers=0"]
    small = ["model.network.channels=[4,8]", "model.network.strides=[2]"]
    fit = [f"task.layout.root={knees}", *any_number("fastmri_knee_4x"), *words[-2:], *small, "trainer.max_epochs=1"]
    segmented = [
        "test",
        "task=skm_tea_tissues",
        "model=precomputed",
        f"model.root={folder}/MASKS",
        *write_tissues(folder, root),
    ]
    assert start([*segmented, f"task.layout.run={folder}/RECONSTRUCTED", f"run={folder}/SEGMENTED"]) == 0
    return [fit, [*words, *small], words, [*words, *small, "model.name=Chain"]]


@CHAINS.add("test task=warped_brain model=sitk_demons")
def _warped_brain(folder, request):
    return ["limit=2", "model.iterations=5"]


@CHAINS.add("test suite=tubular model=precomputed model.root=PREDICTIONS")
def _tubular(folder, request):
    root, made = request.getfixturevalue("drive"), folder / "hepatic"
    decathlon(made, {"1": "Vessel", "2": "Tumour"}, [f"hepaticvessel_{n:03d}" for n in range(5)], values=SPLEEN)
    words = ["~tasks.chasedb1", f"tasks.drive.layout.root={root}", f"tasks.msd_hepatic_vessel.layout.root={made}"]
    for name, data in (("drive", root), ("msd_hepatic_vessel", made)):
        words += any_number(name, f"tasks.{name}")
        write_masks(task(name, data), folder / "PREDICTIONS")
    return words


@CHAINS.add("test suite=segbook model=nnunet_results model.root=PREDICTIONS")
def _segbook_suite(folder, request):
    names = re.findall(r"@tasks\.([\w-]+):", config_file("segbook", "suite").read_text())
    root = folder / "segbook/Task009_Spleen"
    decathlon(root, {"1": "Spleen"}, [f"x_{n}" for n in range(10)], values=SPLEEN)
    write_as_nnunet(task("segbook", root, name="Task009_Spleen"), folder / "PREDICTIONS")
    return [f"tasks.Task009_Spleen.layout.root={root}", *(f"~tasks.{n}" for n in names if n != "Task009_Spleen")]


@CHAINS.add("test task=l2r_abdomen_mrct model=precomputed_transforms model.root=TRANSFORMS")
def _skeletons(folder, request):
    write_pairs(folder / "data", name="AbdomenMRCT")
    (folder / "data/config.json").rename(folder / "data/AbdomenMRCT_VAL_evaluation_config.json")
    return [f"task.layout.root={folder}/data", f"model.root={folder}/data/fields"]


@pytest.mark.long
@pytest.mark.parametrize("lines", CHAINS, ids=CHAINS.names)
def test_commands_run_on_files_of_their_authors_form(lines, run_chain):
    run_chain(CHAINS, lines)
