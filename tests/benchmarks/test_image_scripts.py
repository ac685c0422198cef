"""Masks, landmarks and reconstructions scored by their authors' own scripts and by ours.

Each test runs where MEDIMG_EVAL_CLONES names a folder with a clone of the repository that it names.
"""

import json
import math
import os
import statistics
import warnings
from types import SimpleNamespace

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from scipy import ndimage

from medimg_eval.metrics import get
from medimg_eval.metrics.measurement import DessScan, dess_t2, landmark_scores, relative_height_loss
from medimg_eval.metrics.reconstruction import image_scores
from medimg_eval.metrics.registry import ScoreTable
from tests.benchmarks.test_fairseg import write
from tests.benchmarks.test_ubench import write as write_pairs
from tests.helpers.authors import load_functions, require_clone
from tests.helpers.benchmark_files import task

pytestmark = pytest.mark.slow


def blobs(rng, shape, labels=1, empty=0.0):
    """A label map of smooth shapes, sometimes without any."""
    smooth = ndimage.gaussian_filter(rng.normal(size=shape), 3)
    edges = np.quantile(smooth, np.linspace(0.7, 0.9, labels))
    mask = np.digitize(smooth, edges).astype(np.uint8)
    return mask * np.uint8(rng.random() >= empty)


def test_fairsegs_scores_and_equity_are_its_scripts(tmp_path):
    clone = require_clone("Harvard-Ophthalmology-AI-Lab/FairSeg")
    metric = pytest.importorskip("medpy.metric")
    names = ("calculate_metric_percase", "equity_scaled_perf", "equity_scaled_std_perf")
    theirs = load_functions(clone / "SAMed/utils.py", *names, metric=metric, np=np, statistics=statistics)
    rng = np.random.default_rng(0)
    truths = [blobs(rng, (48, 64), 2, empty=0.1) for _ in range(30)]
    for number, truth in enumerate(truths, start=1):
        write(tmp_path, f"data_{number:05d}.npz", -truth.astype(np.int8), race=number % 3)
    (tmp_path / "lists/FairSeg_final").mkdir(parents=True)
    for name, numbers in {"train": range(1, 2), "test": range(2, 31)}.items():
        (tmp_path / f"lists/FairSeg_final/{name}.txt").write_text("".join(f"data_{i:05d}.npz\n" for i in numbers))
    fairseg = task("fairseg", tmp_path)
    rows, by_race = [], {0: [], 1: [], 2: []}
    for case in fairseg.cases("test"):
        truth = case.target.read().labels
        prediction = np.where(rng.random() < 0.9, np.roll(truth, rng.integers(-3, 4, 2), (0, 1)), 0)
        right = [theirs["calculate_metric_percase"](prediction == label, truth == label) for label in (1, 2)]
        for score in fairseg.score(case, prediction, ["dice", "hd95_pooled", "iou"]):
            place = ["dice", "hd95_pooled", "iou"].index(score.metric)
            assert score.value == pytest.approx(right[score.label == "cup"][place], abs=1e-9), (case.id, score)
            if score.metric == "dice" and score.label == "cup":
                rows.append((score.value, case.attributes["race"]))
        by_race[int(case.attributes["race"])].append(right[1][0])
    values = np.array([value for value, _ in rows])
    table = ScoreTable(
        case=np.arange(len(rows)),
        metric=np.full(len(rows), "dice"),
        label=np.full(len(rows), "cup"),
        value=values,
        status=np.full(len(rows), "present"),
        attributes={"race": np.array([race for _, race in rows])},
        cases=len(rows),
        facts={},
    )
    for name, rule in (("es_dice", "equity_scaled_perf"), ("es_dice_sd", "equity_scaled_std_perf")):
        assert get(name).function(table, "race") == pytest.approx(theirs[rule](by_race, values.mean(), 3), abs=1e-12)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_ubenchs_scores_are_its_scripts(tmp_path):
    clone = require_clone("FengheTan9/U-Bench")
    torch = pytest.importorskip("torch")
    binary = pytest.importorskip("medpy.metric.binary")
    given = {name: getattr(binary, name) for name in ("dc", "precision", "recall", "specificity")}
    theirs = load_functions(
        clone / "utils/metrics_medpy.py", "get_metrics", "get_accuracy", torch=torch, np=np, **given
    )
    rng = np.random.default_rng(1)
    truths = {f"benign ({number})": blobs(rng, (256, 256), empty=0.2) for number in range(20)}
    pairs = [(f"images/{name}.png", {f"masks/0/{name}.png": truth * 255}) for name, truth in truths.items()]
    names = list(truths)
    write_pairs(tmp_path, pairs, {"train.txt": names[:1], "val.txt": names[1:]})
    busi = task("ubench_busi", tmp_path)
    for case in busi.cases("test"):
        truth = case.target.read().labels
        np.testing.assert_array_equal(truth, truths[case.id])
        prediction = np.where(rng.random() < 0.8, np.roll(truth, rng.integers(-9, 9, 2), (0, 1)), 0).astype(np.uint8)
        logits = torch.from_numpy(np.where(prediction, 5.0, -5.0))
        iou, dice, *_ = theirs["get_metrics"](logits, torch.from_numpy(truth.astype(np.uint8)))
        scores = {score.metric: score.value for score in busi.score(case, prediction, ["iou", "dice"])}
        assert scores["iou"] == pytest.approx(iou, abs=1e-9), case.id
        if truth.any() or prediction.any():  # medpy divides 0 by 0 else, and U-Bench prints its IoU alone
            assert scores["dice"] == pytest.approx(dice, abs=1e-9), case.id


def test_verses_identified_vertebrae_are_its_scripts():
    clone = require_clone("anjany/verse")
    theirs = load_functions(clone / "utils/eval_utilities.py", "construct_distance_matrix", "get_hits", np=np)
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(300):
        count = int(rng.integers(2, 24))
        spine = np.cumsum(rng.uniform(15, 35, (24, 3)) * (0.1, 0.2, 1), axis=0)
        truth, prediction = spine.copy(), spine + rng.normal(0, 9, spine.shape)
        truth[count:] = np.nan
        prediction[rng.random(24) < 0.2] = np.nan
        if rng.random() < 0.3:  # labels off by one
            prediction = np.roll(prediction, 1, axis=0)
        number, right = theirs["get_hits"](truth, prediction, 24)
        named = [{str(i): p for i, p in enumerate(side) if not np.isnan(p).any()} for side in (truth, prediction)]
        scores = {s.label: s.value for s in landmark_scores(*named, metrics=["identified"], missed="skip")}
        ours = np.array([scores.get(str(label), np.nan) for label in range(24)])
        np.testing.assert_array_equal(ours, right)
        hits += number
    assert 1000 < hits < 300 * 24


def test_the_mc_mrrec_challenges_scores_are_its_scripts():
    clone = require_clone("rmsouza01/MC-MRRec-challenge")
    skimage, sewar = pytest.importorskip("skimage.metrics"), pytest.importorskip("sewar.full_ref")
    theirs = load_functions(
        clone / "Modules/metrics.py",
        "metrics",
        np=np,
        structural_similarity=skimage.structural_similarity,
        peak_signal_noise_ratio=skimage.peak_signal_noise_ratio,
        vifp=sewar.vifp,
    )["metrics"]
    rng = np.random.default_rng(3)
    reference = ndimage.gaussian_filter(rng.uniform(0, 900, (4, 96, 80)), (0, 2, 2)) + 10
    reconstruction = reference + rng.normal(0, 15, reference.shape)
    largest = reference.max(axis=(1, 2), keepdims=True)  # as extract_challenge_metrics.ipynb scales both
    right = [values.mean() for values in theirs(reconstruction / largest, reference / largest)]
    names = ["ssim@mcmrrec", "psnr@mcmrrec", "vif@mcmrrec"]
    ours = {score.metric: score.value for score in image_scores(reference, reconstruction, metrics=names)}
    assert [ours[name] for name in names] == pytest.approx(right, rel=1e-9)


@pytest.mark.filterwarnings("ignore")
def test_mrsegmentators_scores_and_classes_are_its_scripts(tmp_path):
    clone = require_clone("hhaentze/MRSegmentator")
    monai = pytest.importorskip("monai")
    names = ["AsDiscreted", "Compose", "EnsureChannelFirstd", "Lambdad", "LoadImaged", "MapLabelValued", "Spacingd"]
    given = {name: getattr(monai.transforms, name) for name in names}
    given |= {name: getattr(monai.metrics, name) for name in ("DiceMetric", "HausdorffDistanceMetric")}
    mappings = SimpleNamespace(**load_functions(clone / "evaluation/mappings.py", "amos_to_mrseg", "channels"))
    plain = {"pd": pd, "mappings": mappings, "tqdm": lambda items, **_: items, "warnings": warnings}
    theirs = load_functions(clone / "evaluation/eval_data.py", "ConvolutedLoad", "calc_metric", **given, **plain)
    rng = np.random.default_rng(4)
    affine = np.diag([-1.5, -1.5, 3.0, 1.0])  # the spacing that they resample to: nothing is left to resample
    amos = sorted(mappings.amos_to_mrseg)
    files = []
    for number in range(3):
        truth = np.zeros((30, 26, 12), np.uint8)
        for label in rng.permutation(amos)[:9]:
            start = rng.integers(0, (22, 18, 8))
            truth[tuple(slice(low, low + 7) for low in start)] = label
        known = np.vectorize(lambda label: mappings.amos_to_mrseg.get(int(label), 0))(truth).astype(np.uint8)
        prediction = np.roll(np.where(rng.random(truth.shape) < 0.97, known, 0), rng.integers(-2, 3, 3), (0, 1, 2))
        case = f"amos_05{number:02d}"
        for folder, labels in (("imagesTr", truth), ("labelsTr", truth), ("predictions", prediction)):
            (tmp_path / folder).mkdir(exist_ok=True)
            nib.save(nib.Nifti1Image(labels.astype(np.uint8), affine), tmp_path / folder / f"{case}.nii.gz")
        files.append({"image": f"./imagesTr/{case}.nii.gz", "label": f"./labelsTr/{case}.nii.gz"})
    (tmp_path / "dataset.json").write_text(json.dumps({"training": files[:2], "validation": files[2:]}))
    labels = [str(tmp_path / pair["label"]) for pair in files]
    frame = pd.DataFrame({"label": labels, "pred": [path.replace("labelsTr", "predictions") for path in labels]})
    dice, hausdorff = theirs["calc_metric"](frame, mappings.amos_to_mrseg, (1.5, 1.5, 3.0))
    amos_mr = task("mrsegmentator_amos_mr", tmp_path)
    judged = 0
    for place, case in enumerate(amos_mr.cases("test")):
        prediction = np.asarray(nib.load(frame["pred"][place]).dataobj)
        for score in amos_mr.score(case, prediction, ["dice", "hd95"]):
            right = (dice if score.metric == "dice" else hausdorff)[score.label][place]
            assert score.value == pytest.approx(right, rel=1e-6, nan_ok=True), (case.id, score)
            judged += not np.isnan(right)
    assert judged > 20


class Plain:
    """What stands for DOSMA's scans, volumes and maps: the numbers alone."""

    ref_dicom = None
    device = SimpleNamespace(xp=np)

    def __init__(self, volume):
        self.volumes = self.volume = volume

    def get_metadata(self, key, default):
        return default

    def _partial_clone(self, volume, headers):
        return Plain(volume)


def test_skm_teas_t2_is_that_of_dosma_which_its_evaluation_calls():
    clone = require_clone("ad12/DOSMA")
    pydicom = pytest.importorskip("pydicom")
    given = {"math": math, "np": np, "pydicom": pydicom, "warnings": warnings, "Tag": pydicom.tag.Tag}
    given |= {"ScanSequence": Plain, "MedicalVolume": Plain, "T2": lambda made: made.volume}
    given |= dict.fromkeys(("Tissue", "SegModel", "ActionWrapper", "deepcopy"))
    theirs = load_functions(clone / "dosma/scan_sequences/mri/qdess.py", "QDess", **given)["QDess"]
    rng = np.random.default_rng(5)
    first = ndimage.gaussian_filter(rng.uniform(0, 3000, (24, 20, 6)), 1)
    second = first * rng.uniform(0.05, 0.9, first.shape)
    scan = DessScan(repetition_time=20.4, echo_time=6.4, flip_angle=20.0, spoiler_time=1800.0, spoiler_area=3132.0)
    right = theirs([Plain(first), Plain(second)]).generate_t2_map(
        suppress_fat=True,
        suppress_fluid=True,
        gl_area=scan.spoiler_area,
        tg=scan.spoiler_time,
        tr=scan.repetition_time,
        te=scan.echo_time,
        alpha=scan.flip_angle,
        t1=1200.0,
    )
    ours = dess_t2(first, second, scan, t1=1200.0)
    assert 100 < np.count_nonzero(right) < right.size
    np.testing.assert_allclose(np.nan_to_num(ours), right, atol=1e-9)


def vertebra(heights, slices):
    """A mask of columns of these heights, the same in each slice."""
    rows = np.arange(24)[:, None] < np.asarray(heights)[None, :]
    mask = np.zeros((24, len(heights) + 4, slices + 4), np.uint8)
    mask[:, 2:-2, 2:-2] = rows[:, :, None]
    return mask


def test_healthiverts_height_losses_are_its_scripts(tmp_path):
    """Where their choices cannot differ: no part of the real vertebra is the higher one, and the column on the border
    of the thirds, which they give to the last and we to the middle one, is too low to count."""
    clone = require_clone("zhibaishouheilab/HealthiVert-GAN") / "evaluation"
    names = ("calculate_heights", "calculate_rhlv", "process_datasets_to_excel")
    theirs = load_functions(clone / "RHLV_quantification.py", *names, np=np, pd=pd, nib=nib, os=os)
    rng = np.random.default_rng(4)
    losses = {}
    for folder in ("label", "fake"):
        (tmp_path / folder).mkdir()
    for number in range(30):
        real = rng.integers(12, 15, 10)
        made = real + rng.integers(0, 5, 10)
        made[6] = real[6] = 1
        masks = {"label": vertebra(real, 21), "fake": vertebra(made, 21)}
        for folder, mask in masks.items():
            nib.save(nib.Nifti1Image(mask * np.uint8(20), np.eye(4)), tmp_path / folder / f"v{number}_20.nii.gz")
        losses[f"v{number}_20"] = relative_height_loss(masks["fake"] > 0, masks["label"] > 0)
    listed = {"val": dict.fromkeys(losses, 1)}
    theirs["process_datasets_to_excel"](
        listed, str(tmp_path / "label"), str(tmp_path / "fake"), tmp_path / "rhlv.xlsx", height_threshold=0.7
    )
    right = pd.read_excel(tmp_path / "rhlv.xlsx").set_index("Vertebra")
    for name, loss in losses.items():
        assert loss == pytest.approx(right.loc[name, ["All RHLV", "Pre RHLV", "Mid RHLV", "Post RHLV"]], abs=1e-6), name
