"""fastMRI, SKM-TEA and MC-MRRec over files in their authors' layout, made for the tests."""

from __future__ import annotations

import json
import zlib
from functools import partial

import h5py
import lightning.pytorch as pl
import nibabel as nib
import numpy as np
import pytest

from medimg_eval.commands.cli import start
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.imaging.kspace import inverse_fft
from medimg_eval.metrics import parse
from medimg_eval.metrics.measurement import DessScan, dess_t2
from medimg_eval.metrics.reconstruction.metrics import psnr, ssim
from medimg_eval.models.reconstruction.linear import SenseCombine, ZeroFilled
from medimg_eval.phantoms.multicoil import forward
from medimg_eval.results import build_table, load_runs
from tests.helpers.benchmark_files import task
from tests.helpers.oracle import check_rows
from tests.helpers.running import evaluate


def ellipse(rows, columns):
    """A disc with stripes, (row, column)."""
    r, c = np.mgrid[:rows, :columns]
    inside = ((r - rows / 2) / (0.4 * rows)) ** 2 + ((c - columns / 2) / (0.35 * columns)) ** 2 < 1
    return inside * (1 + 0.3 * np.sin(r / 3) * np.cos(c / 4))


def loops(coils, rows, columns):
    """Smooth sensitivities, complex, (coil, row, column), whose squares add up to 1."""
    r, c = np.mgrid[:rows, :columns] / max(rows, columns)
    turns = 2 * np.pi * np.arange(coils) / coils
    maps = np.stack([np.exp(-((r - np.cos(t)) ** 2) - (c - np.sin(t)) ** 2) * np.exp(1j * (t + r - c)) for t in turns])
    return maps / np.sqrt(np.square(np.abs(maps)).sum(axis=0))


# fastMRI


@pytest.fixture
def fastmri(tmp_path):
    """Two knees to judge and ten to fit on: 2 slices, 3 coils, 64 by 48 samples, images of 40 by 32 in the middle."""
    image = np.stack([ellipse(64, 48), 0.5 * ellipse(64, 48)])
    samples = forward(loops(3, 64, 48) * image[:, None]).astype(np.complex64)
    full = np.sqrt(np.square(np.abs(inverse_fft(samples, (2, 3)))).sum(axis=1))
    for split, count in (("train", 10), ("val", 2)):
        (tmp_path / f"multicoil_{split}").mkdir()
        for number in range(count):
            name = f"file{1000000 + number + 100 * (split == 'val')}.h5"
            with h5py.File(tmp_path / f"multicoil_{split}" / name, "w") as file:
                file["kspace"] = samples
                file["reconstruction_rss"] = full[:, 12:52, 8:40].astype(np.float32)
                file["ismrmrd_header"] = np.bytes_("<ismrmrdHeader/>")
                file.attrs.update(acquisition="CORPDFS_FBK", max=1.0, norm=2.0, patient_id="0beb8905d9b7fad304389b9d")
    return tmp_path, samples, full


def test_fastmri_is_judged_in_the_square_middle_of_its_images(fastmri):
    root, samples, full = fastmri
    made = task("fastmri_knee_4x", root)
    assert [len(made.cases(part)) for part in ("fit", "validate", "test")] == [9, 1, 2]
    case = made.cases("test")[0]
    assert case.id == "file1000100"
    assert case.target.read().array.shape == (1, 2, 32, 32)
    assert case.target.geometry().shape == (2, 32, 32)
    np.testing.assert_allclose(case.target.read().array[0], full[:, 16:48, 8:40], rtol=1e-5, atol=1e-5 * full.max())
    answer = made.accept(case, full)  # as oversampled as the samples
    np.testing.assert_allclose(answer, full[:, 16:48, 8:40], rtol=1e-5, atol=1e-5 * full.max())
    assert all(score.value == pytest.approx(1) for score in made.score(case, full, ["ssim@fastmri"]))
    (shown,) = made.read_images(case)
    assert shown.attributes["acquisition"] == "CORPDFS_FBK"
    lines = (shown.array != 0).any(axis=(0, 1, 2))
    np.testing.assert_array_equal(shown.array[..., lines], samples.transpose(1, 0, 2, 3)[..., lines])
    assert not lines.all()
    assert "patient" not in str(shown.attributes)


# Counts, and checksums of the bits, of what fastmri.data.subsample draws for a k-space of that many columns.
DRAWN = [
    ("fastmri_knee_4x", "file_brain_AXT2_200_2000020", 368, 82, 62585872),
    ("fastmri_knee_8x", "file_brain_AXT2_200_2000020", 372, 49, 2667599216),
    ("fastmri_brain_4x", "file_brain_AXT2_200_2000020", 320, 80, 1709764005),
    ("fastmri_brain_8x", "file_brain_AXT2_200_2000020", 331, 42, 3754856826),
]


@pytest.mark.parametrize(("name", "case", "count", "lines", "bits"), DRAWN)
def test_fastmris_lines_are_those_of_its_authors_code(name, case, count, lines, bits, fastmri):
    sampling = task(name, fastmri[0])._sampling
    mask = sampling.of(case, count)
    assert mask.sum() == lines
    assert zlib.crc32(np.packbits(mask).tobytes()) == bits
    np.testing.assert_array_equal(mask, sampling.of(case, count))


# SKM-TEA

LABELS = ["patellar cartilage", "femoral cartilage", "tibial cartilage", "meniscus"]


@pytest.fixture
def skm_tea(tmp_path):
    """One scan to test on and one of each other split: 3 slices of 24 by 16, two echoes, 2 coils; masks of 20 by 12."""
    rng = np.random.default_rng(0)
    first = np.stack([ellipse(24, 16) * (1 + 0.1 * i) for i in range(3)])  # (x, y, z)
    decay = rng.uniform(0.3, 0.5, first.shape)
    echoes = np.stack([first, first * decay], axis=-1)  # (x, y, z, echo)
    maps = loops(2, 24, 16).transpose(1, 2, 0)
    kspace = forward((echoes[..., None] * maps[None, :, :, None]).transpose(0, 3, 4, 1, 2)).transpose(0, 3, 4, 1, 2)
    labels = np.zeros((3, 24, 16), np.uint8)
    for place, label in enumerate((1, 2, 3, 4, 5, 6)):
        labels[:, 6 + 2 * place : 8 + 2 * place, 6:10] = label
    mask = np.zeros((20, 12), bool)
    mask[6:14, 4:8] = True
    mask[::3, ::2] = True
    for folder in ("files_recon_calib-24", "annotations/v1.0.0", "segmentation_masks/raw-data-track"):
        (tmp_path / folder).mkdir(parents=True)
    rows = [
        ",MTR_ID,EchoTime1,EchoTime2,FlipAngle,RepetitionTime,SpoilerGradientArea,SpoilerGradientTime,MedialDirection"
    ]
    for number, (scan, split) in enumerate((("MTR_005", "train"), ("MTR_013", "val"), ("MTR_030", "test"))):
        with h5py.File(tmp_path / "files_recon_calib-24" / f"{scan}.h5", "w") as file:
            file["kspace"] = kspace.astype(np.complex64)
            file["maps"] = np.broadcast_to(maps[None, ..., None], (3, *maps.shape, 1)).astype(np.complex64)
            file["target"] = echoes[..., None].astype(np.complex64)
            if split == "test":
                file["masks/poisson_6.0x"] = mask
                file["masks/poisson_8.0x"] = mask & (np.arange(20)[:, None] % 2 == 0)
        images = [{"id": 1, "file_name": f"{scan}.h5", "scan_id": scan, "subject_id": 90 + number}]
        content = {"info": {}, "categories": [], "images": images, "annotations": []}
        (tmp_path / "annotations/v1.0.0" / f"{split}.json").write_text(json.dumps(content))
        rows.append(f"{number},{scan},6.428,34.296,20.0,20.36,3132.0,3400.0,{'LR'[number % 2]}")
        # Rows from superior to inferior, columns from anterior to posterior, slices from left to right.
        affine = np.array([[0, 0, 0.8, 0], [0, -0.3125, 0, 0], [-0.3125, 0, 0, 0], [0, 0, 0, 1]])
        nib.save(nib.Nifti1Image(labels, affine), tmp_path / "segmentation_masks/raw-data-track" / f"{scan}.nii.gz")
    (tmp_path / "all_metadata.csv").write_text("\n".join(rows) + "\n")
    return tmp_path, kspace, echoes, mask


def test_skm_tea_has_two_echoes_and_a_mask_in_the_middle(skm_tea):
    root, kspace, echoes, mask = skm_tea
    made = task("skm_tea_6x", root)
    (case,) = made.cases("test")
    assert case.id == "MTR_030"
    assert case.attributes["repetition_time"] == "20.36"
    (shown,) = made.read_images(case)
    assert shown.attributes["axes"] == "echo x ky kz"
    wide = np.zeros((24, 16), bool)
    wide[2:22, 2:14] = mask
    np.testing.assert_allclose(shown.array, kspace.transpose(4, 3, 0, 1, 2) * wide, rtol=1e-5)
    assert case.images[0].geometry().shape == (2, 3, 24, 16)
    np.testing.assert_allclose(case.target.read().array[0], echoes.transpose(3, 0, 1, 2), rtol=1e-6)
    assert case.target.geometry().shape == (2, 3, 24, 16)
    fewer = task("skm_tea_8x", root)
    assert (fewer.read_images(fewer.cases("test")[0])[0].array != 0).sum() < (shown.array != 0).sum()


def test_skm_tea_is_judged_echo_by_echo_and_tissue_by_tissue(skm_tea):
    root, _, echoes, _ = skm_tea
    made = task("skm_tea_6x", root)
    (case,) = made.cases("test")
    truth = echoes.transpose(3, 0, 1, 2)
    answer = truth * np.array([1, 0.97])[:, None, None, None] + 0.01
    found = {(score.label, score.metric): score.value for score in made.score(case, answer)}
    for number in (0, 1):
        for metric in ("psnr@skmtea", "ssim@skmtea"):
            judge = {"psnr": psnr, "ssim": ssim}[parse(metric)[0].name]
            value = judge(truth[number].astype(np.complex64), answer[number].astype(np.float32), "skmtea")
            assert found[f"echo {number + 1}", metric] == pytest.approx(value, rel=1e-6)
    for tissue in LABELS:
        error = found[tissue, "measured"] - found[tissue, "measured_reference"]
        assert found[tissue, "t2_error_ms"] == pytest.approx(error)
        assert found[tissue, "t2_absolute_error_ms"] == pytest.approx(abs(error))
        assert 10 < found[tissue, "measured_reference"] < 60
        assert error != 0
    perfect = {score.metric: score.value for score in made.score(case, truth)}
    assert perfect["t2_absolute_error_ms"] == 0
    assert {score.label for score in made.worst(case)} == {"echo 1", "echo 2", *LABELS}
    assert "meniscus 1000" in made.signature()


@pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`")
@pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec")
def test_a_run_of_skm_tea_has_images_errors_and_limits_in_one_table(skm_tea, tmp_path):
    made = task("skm_tea_6x", skm_tea[0])
    trainer = partial(pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, logger=False)
    settings = Settings(runs=tmp_path / "runs", run=None, trainer=trainer, config={}, score_workers=0)
    folder = evaluate(made, ModelSpec("Z", ZeroFilled, {}, ZeroFilled), settings)
    check_rows("skm_tea_6x", folder, rtol=1e-5)
    (run,) = load_runs([folder])
    assert run.failed_cases == 0
    cells = dict(zip(made.metrics, build_table([run]).rows[0].cells, strict=True))
    rows = run.scores
    errors = rows.loc[rows["metric"] == "t2_error_ms"].set_index("label")["value"]
    assert list(errors.index) == LABELS
    assert cells["t2_error_ms"].mean == pytest.approx(errors.mean())
    assert cells["psnr@skmtea"].mean == pytest.approx(rows.loc[rows["metric"] == "psnr@skmtea", "value"].mean())
    assert np.isnan(cells["bland_altman_low"].mean)  # of one subject there are no limits


def test_t2_of_the_meniscus_has_its_own_t1_and_joins_both_sides(skm_tea):
    made = task("skm_tea_6x", skm_tea[0])
    other = task("skm_tea_6x", skm_tea[0], t2={"t1": {"meniscus": 1200}})
    (case,) = made.cases("test")
    truth = case.target.read().array[0]
    one, two = (
        {s.label: s.value for s in each.score(case, truth) if s.metric == "measured_reference"}
        for each in (made, other)
    )
    assert one["meniscus"] != two["meniscus"]
    assert one["tibial cartilage"] == two["tibial cartilage"]


def test_what_skm_teas_t2_lacks_is_named(skm_tea):
    root = skm_tea[0]
    truth = task("skm_tea_6x", root).cases("test")[0].target.read().array[0]
    broken = task("skm_tea_6x", root, layout={"columns": {"echo_time": "MTR_ID"}})
    with pytest.raises(CaseError, match="T2 needs its attribute 'echo_time', a number, and has 'MTR_030'"):
        broken.score(broken.cases("test")[0], truth)
    (root / "segmentation_masks/raw-data-track/MTR_030.nii.gz").unlink()
    made = task("skm_tea_6x", root)
    with pytest.raises(CaseError, match=r"MTR_030\.nii\.gz"):
        made.score(made.cases("test")[0], truth)
    with pytest.raises(UserError, match="names no scan 'MTR_005'"):
        task("skm_tea_6x", root, layout={"id": "EchoTime1"}).cases("test")


def test_skm_teas_sub_regions_lie_on_the_side_that_is_medial(skm_tea):
    root, *_ = skm_tea
    made = task("skm_tea_6x", root, t2={"subregions": True}, metrics=["t2_error_ms"])
    (case,) = made.cases("test")
    assert case.attributes["medial_direction"] == "L"
    truth = case.target.read().array[0]
    answer = truth.copy()
    answer[1, :, :, :8] *= 0.98  # of slices 0 to 7, which are left
    found = {s.label: s.value for s in made.score(case, answer) if s.metric == "t2_error_ms"}
    assert len([name for name in found if name.startswith("femoral cartilage: ")]) == 18
    assert found["meniscus: medial"] < -0.1
    assert found["meniscus: lateral"] == 0
    path = root / "segmentation_masks/raw-data-track/MTR_030.nii.gz"
    stored = nib.load(path)  # of which slices run from right to left now
    nib.save(nib.Nifti1Image(np.asarray(stored.dataobj), stored.affine * [1, 1, -1, 1]), path)
    found = {s.label: s.value for s in made.score(case, answer) if s.metric == "t2_error_ms"}
    assert found["meniscus: lateral"] < -0.1
    assert found["meniscus: medial"] == 0
    assert {score.label for score in made.worst(case)} == set(found)
    assert "by DOSMA's sub-regions" in made.signature()


def test_what_skm_teas_sub_regions_lack_is_named(skm_tea):
    root, *_ = skm_tea
    truth = task("skm_tea_6x", root).cases("test")[0].target.read().array[0]
    blind = task("skm_tea_6x", root, t2={"subregions": True}, layout={"columns": {"medial_direction": "MTR_ID"}})
    with pytest.raises(CaseError, match="need its attribute 'medial_direction', L or R, and it has 'MTR_030'"):
        blind.score(blind.cases("test")[0], truth)
    path = root / "segmentation_masks/raw-data-track/MTR_030.nii.gz"
    nib.save(nib.Nifti1Image(np.asarray(nib.load(path).dataobj), np.eye(4)), path)
    made = task("skm_tea_6x", root, t2={"subregions": True})
    with pytest.raises(CaseError, match="a map of tissues with the axes SI, AP and LR"):
        made.score(made.cases("test")[0], truth)
    with pytest.raises(UsageError, match=r"tissue with sub-regions \(t2.regions\) is invalid.*got 'bone'"):
        task("skm_tea_6x", root, t2={"subregions": True, "regions": {"bone": [7]}})


@pytest.mark.long
def test_skm_teas_chain_goes_from_raw_data_to_masks_to_t2(skm_tea, tmp_path, monkeypatch, capsys):
    root, *_ = skm_tea
    monkeypatch.chdir(tmp_path)
    stored = nib.load(root / "segmentation_masks/raw-data-track/MTR_030.nii.gz")
    (tmp_path / "masks").mkdir()
    moved = np.roll(np.asarray(stored.dataobj), 1, axis=1)
    nib.save(nib.Nifti1Image(moved, stored.affine), tmp_path / "masks/MTR_030.nii.gz")
    scan = ["test", "task=skm_tea_6x", "model=zero_filled", f"task.layout.root={root}", "~task.expected"]
    scan += ["task.metrics=[ssim@skmtea,t2_error_ms]"]
    tissues = ["test", "task=skm_tea_tissues", "model=precomputed", "model.root=masks", "~task.expected"]
    assert start([*scan, "run=runs/images"]) == 0
    assert start([*tissues, f"task.layout.layout.root={root}", "task.layout.run=runs/images", "run=runs/masks"]) == 0
    assert start([*scan, "task.layout.segmentation=runs/masks", "run=runs/t2"]) == 0
    (run,) = load_runs([tmp_path / "runs/t2"])
    rows = run.scores[run.scores["metric"] == "t2_error_ms"].set_index("label")["value"]
    made = task("skm_tea_6x", root)
    (case,) = made.cases("test")
    truth = case.target.read().array[0]
    image = np.load(next((tmp_path / "runs/images/predictions").rglob("*.npy")))
    maps = [
        dess_t2(*np.abs(echoes), DessScan(20.36, 6.428, 20.0, 3400.0, 3132.0), where=moved > 0)
        for echoes in (truth, image)
    ]
    before = dess_t2(*np.abs(truth), DessScan(20.36, 6.428, 20.0, 3400.0, 3132.0))
    own = np.nanmean(before[np.asarray(stored.dataobj) == 2])
    assert rows["femoral cartilage (predicted mask)"] == pytest.approx(np.nanmean(maps[0][moved == 2]) - own)
    assert rows["femoral cartilage (predicted mask and map)"] == pytest.approx(np.nanmean(maps[1][moved == 2]) - own)
    assert rows["femoral cartilage"] != rows["femoral cartilage (predicted mask and map)"]
    with pytest.raises(UserError, match="has no mask of the scans; name the folder of a segmentation run"):
        task("skm_tea_6x", root, layout={"segmentation": str(tmp_path)}).cases("test")


# MC-MRRec


@pytest.fixture(scope="module")
def mc_mrrec(tmp_path_factory):
    return write_mc_mrrec(tmp_path_factory.mktemp("mc_mrrec"), 44, 34)


def write_mc_mrrec(tmp_path, rows, columns):
    """Scans of 256 slices and 3 coils; the lowest frequency is in the middle, signs alternate."""
    image = ellipse(rows, columns) * np.linspace(0.5, 1, 256)[:, None, None]
    coils = np.moveaxis(loops(3, rows, columns), 0, -1) * image[..., None]
    # A plain inverse FFT of these shows the image where it is, and yet the middle holds the lowest frequency.
    signs = (-1.0) ** np.add.outer(np.arange(rows), np.arange(columns))[None, :, :, None]
    samples = np.fft.fft2(coils * signs, axes=(1, 2))
    stored = np.empty((256, rows, columns, 6), np.float32)
    stored[..., ::2], stored[..., 1::2] = samples.real, samples.imag
    for split, names in (("Train", ["e1s3_P1.7", "e2s3_P2.7"]), ("Val", ["e3s3_P3.7"])):
        (tmp_path / "12-channel" / split).mkdir(parents=True)
        for name in names:
            with h5py.File(tmp_path / "12-channel" / split / f"{name}.h5", "w") as file:
                file["kspace"] = stored
    (tmp_path / "poisson_sampling").mkdir()
    rng = np.random.default_rng(0)
    masks = rng.random((5, rows, columns)) < 0.2
    masks[:, 18:26, 13:21] = True
    np.save(tmp_path / f"poisson_sampling/R5_{rows}x{columns}.npy", masks)
    np.save(tmp_path / f"poisson_sampling/R10_{rows}x{columns}.npy", masks & (rng.random(masks.shape) < 0.6))
    return tmp_path, stored, masks, image


def test_mc_mrrecs_masks_lie_over_the_samples_as_they_are_stored(mc_mrrec):
    root, stored, masks, image = mc_mrrec
    made = task("mc_mrrec_r5", root)
    (case,) = made.cases("test")
    assert (case.id, case.attributes) == ("e3s3_P3.7", {"coils": "12"})
    (shown,) = made.read_images(case)
    assert shown.array.shape == (3, 156, 44, 34)
    theirs = np.abs(stored[50:206, :, :, ::2] + 1j * stored[50:206, :, :, 1::2])
    there = (shown.array != 0).any(axis=(0, 1))
    drawn = [place for place, mask in enumerate(masks) if np.array_equal(mask, there)]
    assert drawn == [zlib.crc32(b"e3s3_P3.7") % 5]
    np.testing.assert_allclose(np.abs(shown.array), np.moveaxis(theirs, -1, 0) * masks[drawn[0]], rtol=1e-4, atol=1e-4)
    # The truth is what a plain inverse FFT shows, up to the factor of an orthonormal one, and nothing is wrapped.
    truth = case.target.read().array[0]
    np.testing.assert_allclose(truth, image[50:206] * np.sqrt(44 * 34), rtol=1e-3, atol=1e-3)
    assert case.images[0].files == (root / "12-channel/Val/e3s3_P3.7.h5", root / "poisson_sampling/R5_44x34.npy")


def test_sensitivities_of_mc_mrrec_are_taken_from_its_low_frequencies(mc_mrrec):
    made = task("mc_mrrec_r5", mc_mrrec[0], layout={"slices": [100, 102]})
    (case,) = made.cases("test")
    prompt = made.prompt(case, made.read_images(case))
    errors = [made.score(case, made.ask(one, [prompt])[0], ["nmse"])[0].value for one in (ZeroFilled(), SenseCombine())]
    assert errors[1] < 0.8 * errors[0]
    harder = task("mc_mrrec_r10", mc_mrrec[0], layout={"slices": [100, 102]})
    (case,) = harder.cases("test")
    assert (harder.read_images(case)[0].array != 0).sum() < 0.9 * (prompt.image.array != 0).sum()
    assert [len(made.cases(part)) for part in ("fit", "validate", "test")] == [1, 1, 1]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (np.ones((5, 60, 34), bool), r"of shape \(60, 34\) does not fit slices of \(44, 34\)"),
        (np.full((44, 34), 0.5), "holds 0 and 1"),
        (b"none", "cannot be read as sampling masks"),
        (None, "cannot be read as sampling masks"),
    ],
)
def test_a_mask_that_does_not_fit_is_named(mc_mrrec, content, words):
    path = mc_mrrec[0] / "bad_44x34.npy"
    path.unlink(missing_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.save(path, content)
    layout = {"slices": [100, 101], "mask": "bad_{rows}x{columns}.npy"}
    (case,) = task("mc_mrrec_r5", mc_mrrec[0], layout=layout).cases("test")
    with pytest.raises(CaseError, match=rf"bad_44x34\.npy: .*{words}"):
        case.images[0].read()
