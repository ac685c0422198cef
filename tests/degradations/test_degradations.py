"""Degradations: what stays, what draws depend on, what moves with the image, and other programs' pixels."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medimg_eval
from medimg_eval.case import Boxes, Condition, Geometry, Image, Mask, Points
from medimg_eval.degradations import (
    SEVERITIES,
    DrawKey,
    Move,
    conditions_on,
    degradations,
    degrade_image,
    find_degradation,
    read_severities,
    read_suite,
    suite_names,
    sweep,
)
from medimg_eval.errors import CaseError, UsageError

KEY = DrawKey(0, "a")


def picture(side=48, seed=0):
    """A smooth picture with colours, uint8 (3, side, side)."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:side, :side] / side
    waves = [np.sin(5 * rows + shift) * np.cos(4 * columns - shift) for shift in (0, 1, 2)]
    pixels = 128 + 80 * np.stack(waves) + rng.normal(0, 6, (3, side, side))
    return Image(np.clip(pixels, 0, 255).astype(np.uint8), np.eye(4), units="pixel")


def volume(shape=(20, 22, 24), spacing=(1.5, 1.0, 2.0)):
    """A bright block off the middle of an MR volume, int16 (1, *shape)."""
    pixels = np.random.default_rng(1).normal(100, 5, shape)
    pixels[8:14, 9:15, 10:16] += 400
    return Image(pixels.astype(np.int16)[None], np.diag([*spacing, 1.0]), modality="MR")


def scan(side=40, slices=2):
    """A cylinder of water with bone off its middle, int16 Hounsfield units (1, side, side, slices)."""
    rows, columns = np.mgrid[:side, :side] - (side - 1) / 2
    pixels = np.where(np.hypot(rows, columns) < 0.4 * side, 40.0, -1000.0)
    pixels[np.hypot(rows - 4, columns) < 3] = 400
    noise = np.random.default_rng(2).normal(0, 8, (side, side, slices))
    return Image(np.rint(pixels[..., None] + noise).astype(np.int16)[None], np.diag([2.0, 2, 1, 1]), modality="CT")


def samples():
    """Those of a picture, complex64 (1, row, column), the middle of k-space in the middle."""
    spectrum = np.fft.fftshift(np.fft.fft2(picture().array[0].astype(float)))
    return Image(spectrum[None].astype(np.complex64), np.eye(4), units="pixel")


def clip(frames=24):
    """A picture that grows brighter, uint8 (3, frame, row, column)."""
    return Image(
        np.stack([picture().array // 2 + 4 * frame for frame in range(frames)], axis=1), np.eye(4), units="pixel"
    )


def suitable(name):
    found = find_degradation(name)
    if found.domain in ("samples", "frames"):
        return samples() if found.domain == "samples" else clip()
    if name == "xray_overexposure":
        return Image(picture().array - picture().array.min(), np.eye(4), units="pixel")
    return scan() if name.startswith("ct_") else volume() if name.startswith("mri_") else picture()


@pytest.mark.parametrize("name", sorted(conditions_on("pixels", "moves", "samples", "frames")))
def test_shape_dtype_and_grid_stay_and_something_changes(name):
    image = suitable(name)
    for severity in (1, SEVERITIES):
        found = degrade_image(image, Condition(name, severity), KEY)
        assert (found.array.shape, found.array.dtype) == (image.array.shape, image.array.dtype)
        np.testing.assert_array_equal(found.affine, image.affine)
        assert np.isfinite(found.array).all()
        assert (found.array != image.array).any()


def projected_slow(names):
    """Names in their order, those of CT by projections marked as slow."""
    projected = ("ct_low_dose", "ct_sparse_view", "ct_limited_angle", "ct_metal", "ct_motion")
    return [pytest.param(name, marks=pytest.mark.slow) if name in projected else name for name in sorted(names)]


COARSE = {"mri_anisotropy", "mri_ghosting", "us_gain_slope", "xray_rotation", *conditions_on("frames")}


@pytest.mark.parametrize("name", projected_slow(conditions_on("pixels", "moves", "samples", "frames") - {"noise"}))
def test_draws_depend_on_seed_case_repeat_and_place_alone(name):
    image, condition = suitable(name), Condition(name, 3)
    before = degrade_image(image, condition, KEY).array
    degrade_image(image, condition, DrawKey(5, "b"))  # another draw in between changes nothing
    np.testing.assert_array_equal(degrade_image(image, condition, DrawKey(0, "a")).array, before)
    drawn = [
        degrade_image(image, condition, key).array for key in (DrawKey(1, "a"), DrawKey(0, "b"), KEY._replace(repeat=1))
    ]
    drawn.append(degrade_image(image, condition, KEY, 1).array)
    differ = [not np.array_equal(other, before) for other in drawn]
    assert find_degradation(name).draws or not any(differ)
    # Nothing is drawn, or everything of the key counts; some draw only an axis or a side, which may be the same; which
    # frames of a film are shown does not depend on its place.
    assert all(differ) or not any(differ) or (name in COARSE and any(differ))


def test_the_pixels_that_salt_and_pepper_hit_are_nested_by_severity():
    image = picture()
    hit = [
        degrade_image(image, Condition("impulse_noise", severity), KEY).array != image.array for severity in range(1, 6)
    ]
    for less, more in pairwise(hit):
        assert not (less & ~more).any()


def test_noise_has_the_standard_deviation_that_it_states():
    image = Image(np.full((1, 200, 200), 0.5, np.float32), np.eye(4), units="pixel")
    image.array[0, 0, :2] = (0, 1)  # the ends of the scale
    for severity, sd in enumerate((0.04, 0.08, 0.12), start=1):
        noise = degrade_image(image, Condition("gaussian_noise", severity), KEY).array - image.array
        assert noise[0, 1:].std() == pytest.approx(sd, rel=0.03)


def test_rician_noise_where_nothing_is_has_rayleighs_mean():
    # With no signal the magnitude of two normal parts of deviation s has the mean s sqrt(pi / 2).
    pixels = np.zeros((1, 40, 40, 40), np.float32)
    pixels[0, :20] = 100  # deviation of the image: 50
    image = Image(pixels, np.eye(4), modality="MR")
    found = degrade_image(image, Condition("mri_rician_noise", 2), KEY).array
    assert found[0, 20:].mean() == pytest.approx(0.32 * 50 * np.sqrt(np.pi / 2), rel=0.01)


def test_gamma_and_contrast_by_hand():
    image = Image(np.array([[[0.0, 0.25], [0.5, 1.0]]], np.float32), np.eye(4), units="pixel")
    found = degrade_image(image, Condition("gamma_up", 2), KEY).array
    np.testing.assert_allclose(found, image.array**1.2, rtol=1e-6)
    brain = Image(np.linspace(10, 30, 27, dtype=np.float32).reshape(1, 3, 3, 3), np.eye(4), modality="MR")
    found = degrade_image(brain, Condition("mri_contrast_expansion", 1), KEY).array
    np.testing.assert_allclose(found, ((brain.array - 10) / 20) ** 1.4 * 20 + 10, rtol=1e-5)


def test_a_ghost_of_every_plane_but_the_middle_is_what_the_fourier_transform_says():
    # All planes weakened to w but the middle one (the mean of a line): w x + (1 - w) mean(x).
    found = find_degradation("mri_ghosting").apply(volume(), KEY.generator("mri_ghosting"), number=1, intensity=0.4)
    pixels = volume().array.astype(float)
    axis = 1 + int(KEY.generator("mri_ghosting").integers(2))
    expected = 0.6 * pixels + 0.4 * pixels.mean(axis=axis, keepdims=True)
    np.testing.assert_allclose(found, np.rint(np.maximum(expected, 0)), atol=1)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), severity=st.integers(1, 3), name=st.sampled_from(["mri_affine", "mri_elastic"]))
def test_masks_points_and_boxes_move_with_the_image(seed, severity, name):
    shape, spacing = (40, 44, 48), (4.0, 4.5, 4.0)
    labels = np.zeros(shape, np.uint8)
    labels[17:23, 19:25, 21:27] = 1
    grid, found = Geometry(shape, np.diag([*spacing, 1.0])), find_degradation(name)
    move = found.apply(grid, DrawKey(seed, "a").generator(name), **found.parameters(Condition(name, severity)))
    mask = move.target(Mask(labels, grid.affine, {1: "block"}), shape)
    point = move.target(Points(np.array([[19.5, 21.5, 23.5]]), ("middle",)), shape)
    box = move.target(Boxes(np.array([[17.0, 19, 21, 22, 24, 26]]), ("block",)), shape)
    inside = np.argwhere(mask.labels)
    if len(inside) < 150 or not len(point.names):  # mostly outside of the field of view
        return
    # A field bends the block, so that its middle need not be the moved one; but that stays within.
    assert np.linalg.norm(inside - point.positions[0], axis=1).min() <= 1
    whole = (inside.min(axis=0) > 0).all() and (inside.max(axis=0) < np.array(shape) - 1).all()
    if whole and name == "mri_affine":
        assert np.linalg.norm(inside.mean(axis=0) - point.positions[0]) < 0.9  # places are rounded to voxels
        np.testing.assert_allclose(box.corners[0], [*inside.min(axis=0), *inside.max(axis=0)], atol=1.6)


def test_a_point_where_a_field_folds_is_said():
    # Eight voxels towards the middle from either side: what stands there comes from both.
    field = np.zeros((3, 16, 16, 16), np.float32)
    field[0] = 8 * np.sign(np.arange(16) - 7.5).reshape(16, 1, 1)
    move = Move(np.eye(3, 4), field)
    with pytest.raises(CaseError, match="where the move folds the image"):
        move.target(Points(np.array([[7.0, 8, 8]]), ("middle",)), (16, 16, 16))


def test_an_image_of_another_kind_is_refused():
    scan = Image(volume().array, volume().affine, modality="CT")
    with pytest.raises(UsageError, match="mri_ghosting is meant for MR, and the image is CT"):
        degrade_image(scan, Condition("mri_ghosting", 1), KEY)
    with pytest.raises(UsageError, match="needs 3 spatial axes, and the image has 2"):
        degrade_image(picture(), Condition("mri_ghosting", 1), KEY)
    with pytest.raises(UsageError, match="got 'gaussian_nois'.*gaussian_noise"):
        degrade_image(picture(), Condition("gaussian_nois", 1), KEY)
    with pytest.raises(UsageError, match="expected a severity from 1 to 5, got 6"):
        degrade_image(picture(), Condition("gaussian_noise", 6), KEY)


def test_severities_and_suites_as_they_are_typed():
    assert read_severities("1..5") == [1, 2, 3, 4, 5]
    assert read_severities(3) == [3]
    assert read_severities([1, 5]) == [1, 5]
    with pytest.raises(UsageError, match="expected severities such as"):
        read_severities("all")
    with pytest.raises(UsageError, match="expected severities from 0 to 5, got 7"):
        sweep(["suite/mri"], [7])
    with pytest.raises(UsageError, match="got 'mrii'"):
        sweep(["suite/mrii"], [1])
    assert len(sweep(["suite/mri"], [0, 1, 5])) == 20
    for name in suite_names():
        assert set(read_suite(name)) <= set(degradations())


NAMES = {"jpeg": "jpeg_compression", "gamma_up": "gamma_corr_up", "gamma_down": "gamma_corr_down"}
EXACT = (
    "saturate",
    "zoom_blur",
    "black_corner",
    "pixelate",
    "jpeg",
    "brightness_up",
    "brightness_down",
    "contrast_up",
    "contrast_down",
    "gamma_up",
    "gamma_down",
)
CLOSE = {"gaussian_blur": 1, "defocus_blur": 1}
SUITES = [name for name in suite_names() if name.startswith("medmnistc_")]


@pytest.mark.parametrize("suite", SUITES)
def test_what_draws_nothing_equals_medmnistc(suite):
    corruptions = pytest.importorskip("medmnistc.corruptions.registry").CORRUPTIONS_DS
    from PIL import Image as Pillow

    theirs = corruptions[f"{suite.removeprefix('medmnistc_')}mnist"]
    assert {NAMES.get(name, name) for name in read_suite(suite)} == set(theirs)
    shown = picture(64)
    pillow = Pillow.fromarray(np.moveaxis(shown.array, 0, -1))
    for condition in sweep([f"suite/{suite}"], [1, 2, 3, 4, 5]):
        if condition.name not in (*EXACT, *CLOSE):
            continue
        ours = degrade_image(shown, condition, KEY).array
        other = theirs[NAMES.get(condition.name, condition.name)].apply(pillow, severity=condition.severity - 1)
        apart = np.abs(np.moveaxis(np.asarray(other), -1, 0).astype(int) - ours.astype(int)).max()
        assert apart <= CLOSE.get(condition.name, 0), condition.key


def test_every_degradation_and_suite_has_a_row_in_the_docs():
    text = (Path(medimg_eval.__file__).parents[1] / "docs" / "evaluate" / "robustness.md").read_text()
    assert [name for name in degradations() if f"| `{name}` |" not in text] == []
    assert [name for name in suite_names() if f"| `suite/{name}` |" not in text] == []
