"""Image metrics with a reference: values, conventions, and what they refuse."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.metrics import normalized_root_mse, peak_signal_noise_ratio, structural_similarity

from medimg_eval.errors import UsageError
from medimg_eval.metrics import available, get, title
from medimg_eval.metrics.reconstruction.metrics import gmsd, haarpsi, ms_ssim, nmse, nrmse, psnr, ssim, vif
from medimg_eval.metrics.reconstruction.perceptual import pictures
from medimg_eval.metrics.reconstruction.presets import PRESETS
from medimg_eval.metrics.reconstruction.scores import image_scores, worst_image_scores

ALL = {"psnr": psnr, "nrmse": nrmse, "nmse": nmse, "ssim": ssim, "ms_ssim": ms_ssim, "vif": vif, "haarpsi": haarpsi}
ALL["gmsd"] = gmsd
RANGED = [name for name in ALL if name not in ("nrmse", "nmse")]

PEERS = {
    # MONAI 1.6.1 in single precision; sewar 0.4.10 of images times 255; piq 0.8.0 in double precision.
    (192, 224): {
        "ssim": (0.8628384470939636, 1e-5),
        "ms_ssim": (0.9912093877792358, 1e-6),
        "vif": (0.6052482071961145, 1e-12),
        "haarpsi": (0.9858753518446661, 1e-12),
        "gmsd": (0.002193946483978674, 1e-12),
    },
    (185, 201): {
        "ssim": (0.8700042366981506, 1e-5),
        "ms_ssim": (0.9916027784347534, 1e-6),
        "vif": (0.6156999980187127, 1e-12),
        "haarpsi": (0.9854444522223355, 1e-12),
        "gmsd": (0.002209274609689946, 1e-12),
    },
}


def formula(rows, columns):
    """Two images of a formula, from 0 to 1."""
    r, c = np.mgrid[:rows, :columns]
    image = (2 + np.sin(r / 5) * np.cos(c / 9) + np.sin((r + 2 * c) / 31)) / 4
    other = image + 0.05 * np.sin(r * 1.7 + c * 2.3) * np.cos(c / 13) - 0.02 * np.cos(r / 17)
    return np.clip(image, 0, 1), np.clip(other, 0, 1)


def volume(slices=3, shape=(48, 52), seed=0):
    """A volume whose slices differ in brightness, and a noisy copy."""
    rng = np.random.default_rng(seed)
    image = np.stack([(index + 1) * formula(*shape)[0] for index in range(slices)])
    return image, np.abs(image + 0.05 * rng.standard_normal(image.shape))


def scikit(reference, image, data_range):
    return structural_similarity(
        reference, image, data_range=data_range, gaussian_weights=True, sigma=1.5, use_sample_covariance=False
    )


@pytest.mark.parametrize("shape", PEERS)
def test_values_are_those_of_other_programs(shape):
    image, other = formula(*shape)
    for name, (value, tolerance) in PEERS[shape].items():
        assert ALL[name](image, other, data_range=1.0) == pytest.approx(value, abs=tolerance)
    assert psnr(image, other, data_range=1.0) == pytest.approx(
        peak_signal_noise_ratio(image, other, data_range=1.0), abs=1e-12
    )
    assert ssim(image, other, data_range=1.0) == pytest.approx(scikit(image, other, 1.0), abs=1e-12)


@settings(deadline=None, max_examples=20)
@given(st.integers(11, 80), st.integers(11, 80), st.sampled_from([0.5, 1.0, 255.0, 4095.0]), st.integers(0, 10**6))
def test_ssim_is_that_of_scikit_image_for_images_of_any_size_and_range(rows, columns, top, seed):
    rng = np.random.default_rng(seed)
    image, other = rng.random((2, rows, columns)) * top
    assert ssim(image, other, data_range=top) == pytest.approx(scikit(image, other, top), abs=1e-9)
    uniform = structural_similarity(image, other, data_range=top)
    assert ssim(image, other, data_range=top, window="uniform") == pytest.approx(uniform, abs=1e-9)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10**6), st.floats(0.01, 100), st.booleans())
def test_metrics_have_their_best_value_for_the_same_image_and_do_not_depend_on_its_units(seed, unit, integers):
    rng = np.random.default_rng(seed)
    image, other = rng.random((2, 44, 50))
    for name in ("psnr", "ssim", "vif", "haarpsi", "gmsd"):
        found = ALL[name](image, other, data_range=1.0)
        assert ALL[name](unit * image, unit * other, data_range=unit) == pytest.approx(found, rel=1e-9)
        shown = (image * 255).astype(np.uint8) if integers else image
        best = ALL[name](shown, shown.copy(), data_range=255.0)
        assert best == get(name).best or best == pytest.approx(get(name).best, abs=1e-6)
    assert nrmse(image, image) == nmse(image, image) == 0
    assert nmse(image, other) == pytest.approx(nrmse(image, other) ** 2)


def test_a_constant_offset_is_worth_what_the_formula_says():
    image = np.linspace(0, 0.9, 400).reshape(20, 20)
    for offset in (0.001, 0.01, 0.1):
        assert psnr(image, image + offset, data_range=1.0) == pytest.approx(-20 * math.log10(offset), abs=1e-9)
        assert nrmse(image, image + offset, normalisation="mean") == pytest.approx(offset / image.mean())
        assert nrmse(image, image + offset, normalisation="range") == pytest.approx(offset / 0.9)
        assert nrmse(image, image + offset, normalisation="range", data_range=2) == pytest.approx(offset / 2)
    assert nrmse(image, 0 * image) == nmse(image, 0 * image) == 1


def test_three_ways_to_normalise_are_those_of_scikit_image():
    image, other = formula(40, 40)
    names = {"l2": "euclidean", "range": "min-max", "mean": "mean"}
    for ours, theirs in names.items():
        expected = normalized_root_mse(image, other, normalization=theirs)
        assert nrmse(image, other, normalisation=ours) == pytest.approx(expected, abs=1e-12)


def test_fastmri_takes_the_largest_value_of_the_volume_and_errors_of_all_voxels():
    image, other = volume()
    top = image.max()
    assert psnr(image, other, "fastmri") == pytest.approx(peak_signal_noise_ratio(image, other, data_range=top))
    slices = [structural_similarity(one, two, data_range=top) for one, two in zip(image, other, strict=True)]
    assert ssim(image, other, "fastmri") == pytest.approx(np.mean(slices), abs=1e-12)
    relative = np.linalg.norm(image - other) ** 2 / np.linalg.norm(image) ** 2
    assert nmse(image, other, "fastmri") == pytest.approx(relative)


def test_skmtea_judges_slices_each_by_its_own_maximum():
    image, other = volume()
    pairs = list(zip(image, other, strict=True))
    decibels = [20 * np.log10(one.max() / np.sqrt(np.mean((one - two) ** 2))) for one, two in pairs]
    assert psnr(image, other, "skmtea") == pytest.approx(np.mean(decibels))
    assert ssim(image, other, "skmtea") == pytest.approx(np.mean([scikit(a, b, a.max()) for a, b in pairs]))
    relative = [np.linalg.norm(one - two) / np.linalg.norm(one) for one, two in pairs]
    assert nrmse(image, other, "skmtea") == pytest.approx(np.mean(relative))


def test_skmtea_takes_differences_of_complex_images_and_the_others_of_magnitudes():
    image, other = (one.astype(complex) for one in volume())
    turned = other * np.exp(0.5j)
    assert nrmse(image, turned, "skmtea") > 5 * nrmse(image, other, "skmtea")
    assert psnr(image, turned, "skmtea") < psnr(image, other, "skmtea") - 10
    for preset in ("fastmri", "wang", "mcmrrec"):
        assert nrmse(image, turned, preset) == pytest.approx(nrmse(image.real, other.real, preset))
    assert ssim(image, turned, "skmtea") == pytest.approx(ssim(image.real, other.real, "skmtea"))
    assert nrmse(image.real, turned, "skmtea") == pytest.approx(nrmse(image.real, other.real, "skmtea"))


def test_mcmrrec_takes_the_spread_of_both_images_of_a_slice():
    image, other = volume()
    found = []
    for one, two in zip(image, other, strict=True):
        spread = max(one.max(), two.max()) - min(one.min(), two.min())
        found.append(
            (
                peak_signal_noise_ratio(one, two, data_range=spread),
                structural_similarity(one, two, data_range=spread),
            )
        )
    expected = np.mean(found, axis=0)
    assert psnr(image, other, "mcmrrec") == pytest.approx(expected[0])
    assert ssim(image, other, "mcmrrec") == pytest.approx(expected[1])
    # sewar's vifp with sigma_nsq=0.4, of images over the largest value of the reference
    assert vif(*formula(192, 224), "mcmrrec") == pytest.approx(0.9979799849186772, abs=1e-12)


def test_wang_takes_255_for_eight_bits_and_the_largest_value_for_others():
    image, other = (np.round(255 * one).astype(np.uint8) for one in formula(48, 52))
    dark = (image // 4, other // 4)
    assert psnr(*dark, "wang") == pytest.approx(peak_signal_noise_ratio(*dark, data_range=255))
    floats = [one.astype(float) for one in dark]
    assert psnr(*floats, "wang") == pytest.approx(peak_signal_noise_ratio(*floats, data_range=dark[0].max()))


def test_one_reconstruction_has_another_value_under_each_convention():
    image, other = volume()
    values = [psnr(image, other, preset) for preset in PRESETS]
    assert max(values) - min(values) > 2
    assert len({round(ssim(image, other, preset), 4) for preset in PRESETS}) == len(PRESETS)


# What is wrong in published programs, and not here.


@pytest.mark.parametrize("name", RANGED)
def test_a_range_is_never_assumed(name):
    image, other = formula(192, 192)
    with pytest.raises(ValueError, match="`data_range` or a preset"):
        ALL[name](image, other)
    # MONAI takes 1.0 for images from 0 to 255, and answers.
    with pytest.raises(ValueError, match="to hold the reference, got 1 for a spread of 2"):
        ALL[name](255 * image, 255 * other, data_range=1.0)


def test_an_image_has_the_same_value_whatever_it_is_judged_beside():
    image, other = formula(48, 48)
    alone = ssim(image, other, data_range=1.0)
    together = ssim(np.stack([image, image]), np.stack([other, other]), data_range=1.0)
    assert together == pytest.approx(alone)  # torchmetrics takes the spread of a batch for the range


def test_the_range_does_not_grow_with_what_is_predicted():
    image, other = volume()
    bright = other.copy()
    bright[:, 0, 0] = 50.0
    for preset in ("fastmri", "skmtea", "wang"):
        assert psnr(image, bright, preset) < psnr(image, other, preset)
        assert ssim(image, bright, preset) < ssim(image, other, preset)
    noisy = image + 0.5 * np.random.default_rng(0).standard_normal(image.shape)
    brighter = noisy.copy()
    brighter[:, 0, 0] = 10.0
    assert psnr(image, brighter, "mcmrrec") > psnr(image, noisy, "mcmrrec") + 3  # as that challenge has it
    assert psnr(image, brighter, "fastmri") < psnr(image, noisy, "fastmri")


def test_eight_bits_are_not_subtracted_as_eight_bits():
    image = np.full((16, 16), 100, np.uint8)
    image[0, 0] = 0
    assert psnr(image, image + np.uint8(3), data_range=255) == pytest.approx(20 * math.log10(255 / 3))
    brighter = (image.astype(int) + 200).clip(0, 255).astype(np.uint8)
    assert psnr(image, brighter, data_range=255) < 5


def test_large_images_are_not_halved_first():
    rng = np.random.default_rng(0)
    image = rng.random((512, 512))
    other = image + 0.2 * rng.standard_normal(image.shape)
    assert ssim(image, other, data_range=1.0) == pytest.approx(scikit(image, other, 1.0), abs=1e-9)


def test_a_high_level_costs_no_digits():
    image, other = formula(48, 48)
    # variances as mean squares minus squared means; single precision loses them here
    high = ssim(image + 1000, other + 1000, data_range=2000.0)
    exact = scikit((image + 1000).astype(np.float64), (other + 1000).astype(np.float64), 2000.0)
    assert high == pytest.approx(exact, abs=1e-9)
    assert ssim(
        (image + 1000).astype(np.float32), (other + 1000).astype(np.float32), data_range=2000.0
    ) == pytest.approx(exact, abs=1e-6)


# Odd images


@pytest.mark.parametrize("name", ALL)
def test_images_that_cannot_be_compared_are_refused(name):
    image, other = formula(192, 192)
    judge = ALL[name]
    with pytest.raises(ValueError, match=r"one shape, got a reference \(192, 192\), not \(192, 191\)"):
        judge(image, other[:, 1:], "wang")
    broken = other.copy()
    broken[3, 4:6] = np.nan, np.inf
    with pytest.raises(ValueError, match="`reconstruction` to be finite, got 2 of 36864"):
        judge(image, broken, "wang")
    with pytest.raises(ValueError, match="`reference` to be finite"):
        judge(broken, other, "wang")
    with pytest.raises(ValueError, match="row, column"):
        judge(image[0], other[0], "wang")
    with pytest.raises(ValueError, match="hold numbers, got bool"):
        judge(image > 0, other > 0, "wang")
    with pytest.raises(ValueError, match="one bit depth, got uint8 and uint16"):
        judge((9 * image).astype(np.uint8), (9 * other).astype(np.uint16), "wang")
    with pytest.raises(UsageError, match="got 'fastmr'; did you mean 'fastmri'"):
        judge(image, other, "fastmr")


@pytest.mark.parametrize("name", RANGED)
def test_a_preset_and_a_range_exclude_each_other_and_ranges_are_above_0(name):
    image, other = formula(192, 192)
    with pytest.raises(ValueError, match="preset or `data_range`, got both"):
        ALL[name](image, other, "wang", data_range=1.0)
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="above 0"):
            ALL[name](image, other, data_range=wrong)


def test_blank_slices_are_counted_where_a_preset_takes_a_range_of_them():
    image, other = volume(4)
    image[1:3] = 0
    with pytest.raises(ValueError, match="got 2 of 4 without a data range above 0, the first of them slice 1"):
        psnr(image, other, "skmtea")
    with pytest.raises(ValueError, match="got 2 of 4 slices of zeros"):
        nrmse(image, other, "skmtea")
    assert math.isfinite(psnr(image, other, "fastmri"))
    with pytest.raises(ValueError, match="got an image of zeros"):
        nmse(0 * image, other)
    with pytest.raises(ValueError, match="whose range is above 0, got an image without"):
        nrmse(0 * image + 3, other, normalisation="range")
    assert psnr(0 * image, 0 * image + 0.1, data_range=1.0) == pytest.approx(20)


def test_what_tells_nothing_is_not_a_number():
    flat, other = np.full((48, 48), 0.5), formula(48, 48)[1]
    assert math.isnan(vif(flat, other, data_range=1.0))  # piq answers 1 for two constant images
    assert math.isnan(vif(flat, flat, data_range=1.0))
    assert math.isnan(haarpsi(0 * flat, 0 * flat, data_range=1.0))
    # A slice that tells nothing leaves the mean to the others.
    image = formula(48, 48)[0]
    both = vif(np.stack([flat, image]), np.stack([other, other]), data_range=1.0)
    assert both == vif(image, other, data_range=1.0)


def test_equal_images_have_an_infinite_psnr_and_equal_slices_leave_the_mean():
    image, other = volume(2)
    assert psnr(image, image, "fastmri") == math.inf
    partly = np.stack([image[0], other[1]])
    assert psnr(image, partly, "skmtea") == pytest.approx(psnr(image[1:], other[1:], "skmtea"))
    assert psnr(image, image, "skmtea") == math.inf


@pytest.mark.parametrize(("name", "smallest"), [("ssim", 11), ("ms_ssim", 176), ("vif", 41), ("haarpsi", 16)])
def test_images_that_are_too_small_are_refused(name, smallest):
    image, other = formula(smallest, smallest)
    assert math.isfinite(ALL[name](image, other, data_range=1.0))
    with pytest.raises(ValueError, match=f"at least {smallest} rows and columns"):
        ALL[name](image[1:], other[1:], data_range=1.0)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ALL)
def test_colours_are_not_the_columns_of_slices(name, channels):
    image = np.random.default_rng(0).random((200, 190, channels))
    for preset in ("fastmri", "mcmrrec"):
        with pytest.raises(
            ValueError, match=rf"grey images .*\(200, 190, {channels}\), whose last axis is one of channels"
        ):
            ALL[name](image, image / 2, preset)
    with pytest.raises(ValueError, match=r"image.mean\(axis=-1\)"):
        pictures(image, image / 2, None, 1.0)
    assert gmsd(image.mean(axis=-1), image.mean(axis=-1), data_range=1.0) == 0


def test_settings_that_are_none_are_refused():
    image, other = formula(20, 20)
    with pytest.raises(ValueError, match="one of gaussian, uniform, got 'box'"):
        ssim(image, other, data_range=1.0, window="box")
    with pytest.raises(ValueError, match="one of l2, range, mean, got 'max'"):
        nrmse(image, other, normalisation="max")
    with pytest.raises(ValueError, match="no `data_range` where errors are divided by l2"):
        nrmse(image, other, data_range=1.0)


# Names and scores


def test_the_metrics_of_images_are_these():
    assert set(available("image")) >= set(ALL)
    assert title("psnr@fastmri") == "PSNR (fastmri)"
    assert title("ssim") == "SSIM"


def test_scores_of_an_image_have_a_row_for_each_metric():
    image, other = volume()
    scores = image_scores(image, other, metrics=["psnr@fastmri", "ssim", "nrmse"], data_range=3.5)
    assert [(score.label, score.metric, score.status) for score in scores] == [
        ("image", "psnr@fastmri", "present"),
        ("image", "ssim", "present"),
        ("image", "nrmse", "present"),
    ]
    assert scores[1].value == ssim(image, other, data_range=3.5)
    (same,) = image_scores(image, image, metrics=["psnr@wang"])
    assert math.isnan(same.value)  # infinite, which no mean can hold
    assert [score.value for score in worst_image_scores(["ssim@wang", "nmse"])] == [0, 1]
    assert {score.status for score in worst_image_scores(["ssim@wang", "nmse"])} == {"failed"}
    assert math.isnan(worst_image_scores(["nmse"], known=False)[0].value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("psnr", r"needs a data range: set data_range, or name a preset, as in psnr@wang"),
        ("ssim@fast", "got 'fast'; did you mean 'fastmri'"),
        ("dice", "judges mask, not images"),
    ],
)
def test_names_that_cannot_be_meant_are_refused(name, words):
    with pytest.raises(UsageError, match=words):
        image_scores(np.eye(20), np.eye(20), metrics=[name])


def test_presets_say_in_words_what_they_take():
    assert PRESETS["fastmri"].describe() == (
        "fastmri: range largest reference value of the volume, errors per volume, uniform window, magnitudes"
    )
    assert "complex differences" in PRESETS["skmtea"].describe()
    assert "joint spread of both images" in PRESETS["mcmrrec"].describe()
