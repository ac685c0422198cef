"""Orientation and resampling keep every voxel where it was in the patient."""

import itertools

import nibabel as nib
import numpy as np
import pytest
import SimpleITK
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.case import Geometry, Image, Mask
from medimg_eval.imaging.geometry import grid_of_spacing, orientation, reorient, resample

CODES = ["".join(code) for ends in itertools.product("RL", "AP", "SI") for code in itertools.permutations(ends)]
PLAIN = settings(deadline=None, max_examples=25)


@st.composite
def affines(draw, oblique=0.3):
    """A permutation with flips, spacing, origin and a rotation too small to change the code."""
    turn = np.eye(3)[list(draw(st.permutations(range(3))))] * draw(st.tuples(*[st.sampled_from([-1, 1])] * 3))
    # Rounded: of the smallest numbers there are ITK makes a grid on which nothing lies, and it is what we compare with.
    angles = [round(angle, 6) for angle in draw(st.tuples(*[st.floats(-oblique, oblique)] * 3))]
    for axis, angle in enumerate(angles):
        one, other = [a for a in range(3) if a != axis]
        rotation = np.eye(3)
        rotation[[one, one, other, other], [one, other, one, other]] = (
            np.cos(angle),
            -np.sin(angle),
            np.sin(angle),
            np.cos(angle),
        )
        turn = rotation @ turn
    affine = np.eye(4)
    affine[:3, :3] = turn * draw(st.tuples(*[st.floats(0.4, 3)] * 3))
    affine[:3, 3] = draw(st.tuples(*[st.floats(-100, 100)] * 3))
    return affine


@st.composite
def things(draw, kind=None):
    shape = draw(st.tuples(*[st.integers(1, 6)] * 3))
    affine = draw(affines())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if (kind or draw(st.sampled_from([Image, Mask]))) is Mask:
        return Mask(rng.integers(0, 4, shape).astype(np.uint8), affine, {1: "liver"})
    channels = draw(st.integers(1, 2))
    return Image(rng.normal(size=(channels, *shape)).astype(np.float32), affine, valid=rng.random(shape) > 0.3)


def values(thing):
    return thing.labels[None] if isinstance(thing, Mask) else thing.array


def at(affine, indices):
    return indices @ affine[:3, :3].T + affine[:3, 3]


def test_orientation_of_known_affines():
    assert orientation(np.eye(4)) == "RAS"
    assert orientation(np.diag([-1.0, -1, 1, 1])) == "LPS"
    assert orientation(np.array([[0, 0, -2.0, 0], [1, 0, 0, 0], [0, -3, 0, 0], [0, 0, 0, 1]])) == "AIL"


@PLAIN
@given(affines(oblique=0.7))
def test_orientation_agrees_with_nibabel(affine):
    # nibabel assigns axes greedily, and agrees wherever no two axes lie nearest to the same patient axis.
    cosines = np.abs(affine[:3, :3] / np.linalg.norm(affine[:3, :3], axis=0))
    if len(set(cosines.argmax(axis=0))) == 3 and (np.sort(cosines, axis=0)[1] < 0.65).all():
        assert orientation(affine) == "".join(nib.aff2axcodes(affine))


@PLAIN
@given(things(), st.sampled_from(CODES))
def test_reorienting_keeps_every_voxel_where_it_was(thing, code):
    turned = reorient(thing, code)
    assert orientation(turned.affine) == code
    assert np.shares_memory(values(turned), values(thing))
    places = np.argwhere(np.ones(turned.geometry.shape))
    back = np.rint(at(np.linalg.inv(thing.affine), at(turned.affine, places))).astype(int)
    pick = tuple(back.T)
    np.testing.assert_array_equal(
        values(turned).reshape(len(values(thing)), -1), [channel[pick] for channel in values(thing)]
    )
    if isinstance(thing, Image):
        np.testing.assert_array_equal(turned.valid.ravel(), thing.valid[pick])


@PLAIN
@given(things(), st.sampled_from(CODES))
def test_reorienting_there_and_back_changes_nothing(thing, code):
    back = reorient(reorient(thing, code), orientation(thing.affine))
    np.testing.assert_array_equal(values(back), values(thing))
    np.testing.assert_allclose(back.affine, thing.affine, atol=1e-9)


@PLAIN
@given(things(), st.sampled_from(CODES))
def test_the_handedness_of_the_affine_is_that_of_the_code(thing, code):
    columns = np.zeros((3, 3))
    for axis, letter in enumerate(code):
        columns["LRPAIS".index(letter) // 2, axis] = 1 if letter in "RAS" else -1
    assert np.sign(np.linalg.det(reorient(thing, code).affine[:3, :3])) == np.sign(np.linalg.det(columns))


@pytest.mark.parametrize("code", ["", "RA", "RRS", "XAS", "RAL", "RASS"])
def test_a_code_that_is_none_is_refused(code):
    with pytest.raises(ValueError, match="expected one of each of R or L"):
        reorient(Mask(np.zeros((2, 2, 2), np.uint8), np.eye(4)), code)


def test_a_picture_has_no_orientation_to_change():
    with pytest.raises(ValueError, match="three spatial axes"):
        reorient(Image(np.zeros((1, 4, 4)), np.eye(4)))


@PLAIN
@given(things())
def test_resampling_to_its_own_grid_changes_nothing(thing):
    for options in (
        [{"order": 0}, {"order": 1}] if isinstance(thing, Image) else [{"labels": "nearest"}, {"labels": "linear"}]
    ):
        same = resample(thing, thing.geometry, **options)
        np.testing.assert_allclose(values(same), values(thing), atol=1e-5)
        assert same.geometry.difference(thing.geometry) is None
        if isinstance(thing, Image):
            np.testing.assert_array_equal(same.valid, thing.valid)


@PLAIN
@given(things(Mask), affines(), st.sampled_from(["nearest", "linear"]))
def test_resampled_labels_are_labels_that_were_there_or_the_fill(mask, affine, labels):
    found = resample(mask, Geometry((5, 4, 6), affine), labels=labels, fill=9)
    assert set(np.unique(found.labels)) <= {*np.unique(mask.labels), 9}
    assert found.labels.dtype == mask.labels.dtype
    assert found.names == mask.names


@PLAIN
@given(things(Image), st.sampled_from([0, 1, 3]), st.tuples(*[st.floats(-50, 50)] * 3))
def test_resampling_moves_along_when_the_patient_moves(image, order, shift):
    target = grid_of_spacing(image.geometry, (1.1, 0.9, 1.7))
    step = np.eye(4)
    step[:3, 3] = shift
    moved = resample(Image(image.array, step @ image.affine), Geometry(target.shape, step @ target.affine), order=order)
    here = resample(Image(image.array, image.affine), target, order=order)
    np.testing.assert_allclose(moved.array, here.array, atol=1e-3)


def world_axes(code):
    return [next(axis for axis, ends in enumerate(("LR", "PA", "IS")) if letter in ends) for letter in code]


@PLAIN
@given(things(Mask), st.sampled_from(CODES), st.tuples(*[st.floats(0.3, 4)] * 3))
def test_respacing_and_reorienting_can_change_places(mask, code, spacing):
    along = dict(zip(world_axes(orientation(mask.affine)), spacing, strict=True))
    one = grid_of_spacing(reorient(mask, code).geometry, [along[world] for world in world_axes(code)])
    grid = grid_of_spacing(mask.geometry, spacing)
    other = reorient(Mask(np.zeros(grid.shape, np.uint8), grid.affine), code).geometry
    assert one.difference(other) is None


def test_a_new_spacing_keeps_the_middle_and_the_field_of_view():
    grid = grid_of_spacing(Geometry((4, 6, 5), np.diag([2.0, 1, 3, 1])), (1, 2, 3.0))
    assert grid.shape == (8, 3, 5)
    np.testing.assert_allclose(grid.spacing, (1, 2, 3))
    np.testing.assert_allclose(grid.affine[:3, 3], [-0.5, 0.5, 0])  # outer faces at -1, -0.5 and -1.5 stay


@pytest.mark.parametrize("spacing", [(1, 1), (0, 1, 1), (1, -1, 1), (float("inf"), 1, 1), (float("nan"), 1, 1)])
def test_a_spacing_that_is_none_is_refused(spacing):
    with pytest.raises(ValueError, match="expected 3 spacings above 0"):
        grid_of_spacing(Geometry((2, 2, 2), np.eye(4)), spacing)


def test_linear_interpolation_worked_by_hand():
    image = Image(np.array([0, 10, 40], np.int16).reshape(1, 3, 1, 1), np.eye(4))
    fine = resample(image, (0.5, 1, 1))
    np.testing.assert_allclose(fine.array.ravel(), [0, 2.5, 7.5, 17.5, 32.5, 40])
    assert fine.array.dtype == np.float32
    assert fine.valid is None
    assert resample(image, (0.5, 1, 1), order=0).array.ravel().tolist() == [0, 0, 10, 10, 40, 40]


def test_what_lies_outside_is_filled_and_not_valid():
    image = Image(np.full((1, 2, 2, 2), 7, np.int16), np.eye(4))
    wide = resample(image, Geometry((4, 2, 2), np.eye(4)), fill=-1000)
    assert wide.array[0, :, 0, 0].tolist() == [7, 7, -1000, -1000]
    assert wide.valid[:, 0, 0].tolist() == [True, True, False, False]
    mask = resample(Mask(np.full((2, 2, 2), 3, np.uint8), np.eye(4)), Geometry((4, 2, 2), np.eye(4)))
    assert mask.labels[:, 0, 0].tolist() == [3, 3, 0, 0]


def test_values_mixed_from_padding_are_not_valid():
    valid = np.ones((4, 1, 1), bool)
    valid[0] = False
    image = Image(np.array([-2000.0, 1, 1, 1]).reshape(1, 4, 1, 1), np.eye(4), valid=valid)
    grid = Geometry((3, 1, 1), np.array([[1, 0, 0, 0.5], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]))
    assert resample(image, grid).valid.ravel().tolist() == [False, True, True]


def test_labels_are_shared_out_and_never_averaged():
    mask = Mask(np.array([1, 1, 5, 5], np.uint8).reshape(4, 1, 1), np.eye(4))
    for labels in ("nearest", "linear"):
        assert set(resample(mask, (0.3, 1, 1), labels=labels).labels.ravel().tolist()) == {1, 5}


def test_linear_labels_are_the_largest_share():
    rng = np.random.default_rng(0)
    mask = Mask(rng.integers(0, 4, (9, 8, 7)).astype(np.uint16) * 300, np.diag([1, 1.5, 2, 1.0]))
    grid = grid_of_spacing(mask.geometry, (0.7, 0.8, 0.9))
    found = resample(mask, grid, labels="linear").labels
    names = np.unique(mask.labels)
    shares = np.stack([resample(Image((mask.labels == name)[None], mask.affine), grid).array[0] for name in names])
    best = shares.max(axis=0)
    np.testing.assert_allclose(np.take_along_axis(shares, np.searchsorted(names, found)[None], 0)[0], best, atol=1e-5)


def itk_resampled(image, grid, interpolator):
    def placed(affine):
        flipped = np.diag([-1.0, -1, 1, 1]) @ affine
        steps = np.linalg.norm(flipped[:3, :3], axis=0)
        return steps.tolist(), (flipped[:3, :3] / steps).ravel().tolist(), flipped[:3, 3].tolist()

    source = SimpleITK.GetImageFromArray(np.ascontiguousarray(image.array[0].T))
    for setter, value in zip(
        (source.SetSpacing, source.SetDirection, source.SetOrigin), placed(image.affine), strict=True
    ):
        setter(value)
    resampler = SimpleITK.ResampleImageFilter()
    resampler.SetSize(grid.shape)
    steps, direction, origin = placed(grid.affine)
    resampler.SetOutputSpacing(steps)
    resampler.SetOutputDirection(direction)
    resampler.SetOutputOrigin(origin)
    resampler.SetInterpolator(interpolator)
    resampler.SetDefaultPixelValue(-99)
    return SimpleITK.GetArrayFromImage(resampler.Execute(source)).T


@PLAIN
@given(affines(), affines(), st.sampled_from([0, 1]))
def test_resampling_agrees_with_itk_inside(source, target, order):
    source[:3, 3] = -source[:3, :3] @ [6, 5, 4]  # both about the same middle
    target[:3, 3] = -target[:3, :3] @ [4, 4, 4]
    image = Image(np.random.default_rng(0).normal(size=(1, 13, 11, 9)).astype(np.float32), source)
    grid = Geometry((9, 9, 9), target)
    ours = resample(image, grid, order=order, fill=-99)
    theirs = itk_resampled(image, grid, SimpleITK.sitkLinear if order else SimpleITK.sitkNearestNeighbor)
    place = at(np.linalg.inv(source), at(target, np.argwhere(np.ones(grid.shape)))).reshape(*grid.shape, 3)
    inside = ((place > -0.49) & (place < np.array([12.49, 10.49, 8.49]))).all(axis=-1)
    if order == 0:  # a centre on the face between two voxels may go either way
        inside &= (np.abs(place - np.floor(place) - 0.5) > 1e-3).all(axis=-1)
    np.testing.assert_allclose(ours.array[0][inside], theirs[inside], atol=2e-4)
    outside = ((place < -0.51) | (place > np.array([12.51, 10.51, 8.51]))).any(axis=-1)
    assert (ours.array[0][outside] == -99).all()
    assert not ours.valid[outside].any() if ours.valid is not None else not outside.any()


def test_sheared_grids_are_followed():
    shear = np.eye(4)
    shear[1, 2] = 0.3  # a tilted gantry
    field = np.fromfunction(lambda i, j, k: 2 * i + 3 * (j + 0.3 * k) - k, (8, 9, 5), dtype=np.float64)
    plain = resample(Image(field[None], shear), Geometry((6, 6, 4), np.eye(4)), fill=np.nan)
    expected = np.fromfunction(lambda i, j, k: 2 * i + 3 * j - k, (6, 6, 4), dtype=np.float64)
    inside = plain.valid if plain.valid is not None else np.ones(expected.shape, bool)
    inside[:, :1] = False  # half a voxel at the edge keeps the outermost value
    np.testing.assert_allclose(plain.array[0][inside], expected[inside], atol=1e-9)
    assert inside.sum() > 60


def test_pictures_are_resampled_in_their_plane():
    picture = Image(np.arange(24, dtype=np.uint8).reshape(2, 3, 4), np.diag([2.0, 1, 1, 1]), units="pixel")
    fine = resample(picture, (1, 1))
    assert fine.array.shape == (2, 6, 4)
    assert fine.units == "pixel"
    np.testing.assert_allclose(fine.array[0, :, 0], [0, 1, 3, 5, 7, 8])
    tilted = np.eye(4)
    tilted[2, 0] = 1
    with pytest.raises(ValueError, match="the picture's own plane"):
        resample(picture, Geometry((3, 4), tilted, "pixel"))


def test_pixels_are_not_taken_for_millimetres():
    picture = Image(np.zeros((1, 3, 4), np.uint8), np.eye(4), units="pixel")
    with pytest.raises(ValueError, match="expected a grid in pixel, as what is resampled, got one in mm"):
        resample(picture, Geometry((3, 4), np.eye(4)))
    with pytest.raises(ValueError, match="expected a grid in mm, as what is resampled, got one in pixel"):
        resample(Mask(np.zeros((3, 4), np.uint8), np.eye(4)), Geometry((3, 4), np.eye(4), "pixel"))


@pytest.mark.parametrize("order", [0, 1, 3])
def test_a_shape_may_be_of_the_integers_of_numpy(order):
    shape = tuple(np.array([4, 5, 6]) * 2)
    image = Image(np.random.default_rng(0).normal(size=(1, 4, 5, 6)), np.eye(4))
    assert resample(image, Geometry(shape, np.eye(4)), order=order).array.shape == (1, 8, 10, 12)


@pytest.mark.parametrize("kind", ["?", "u1", "i2", "u4", "f2", "f4", "f8", "c8", ">i2"])
@pytest.mark.parametrize("order", [0, 1, 3])
def test_every_dtype_is_resampled(kind, order):
    array = np.random.default_rng(0).integers(0, 2, (1, 6, 5, 4)).astype(kind)
    found = resample(Image(array, np.eye(4)), (0.5, 1, 2), order=order).array
    assert found.shape == (1, 12, 5, 2)
    if order == 0:
        assert found.dtype == array.dtype
    else:
        assert found.dtype in (np.float32, np.float64, np.complex64)


def test_fills_and_orders_that_cannot_be_are_refused():
    image, mask = Image(np.zeros((1, 2, 2, 2), np.uint8), np.eye(4)), Mask(np.zeros((2, 2, 2), np.uint8), np.eye(4))
    wide = Geometry((4, 4, 4), np.eye(4))
    with pytest.raises(ValueError, match="order 0, 1 or 3"):
        resample(image, wide, order=2)
    with pytest.raises(ValueError, match="'nearest' or 'linear'"):
        resample(mask, wide, labels="cubic")
    with pytest.raises(ValueError, match="a fill that uint8 can hold, got -1000"):
        resample(image, wide, order=0, fill=-1000)
    with pytest.raises(ValueError, match="a grid of 3 axes"):
        resample(mask, Geometry((4, 4), np.eye(4)))


@pytest.mark.parametrize("edge", [1, 2, 3])
def test_cubic_resampling_of_few_slices_stays_within_reach_of_their_values(edge):
    pixels = np.random.default_rng(edge).normal(size=(1, 6, 5, edge)).astype(np.float32)
    image = Image(pixels, np.diag([1.0, 1, 5, 1]))
    found = resample(image, grid_of_spacing(image.geometry, (0.7, 0.9, 1.0)), order=3)
    assert np.abs(found.array).max() < 3 * np.abs(pixels).max()
    assert edge > 1 or np.ptp(found.array, axis=3).max() < 1e-5
