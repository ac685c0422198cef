"""Slices that repeat positions: to volumes in their order, with what tells them apart, as each vendor writes it."""

import shutil
from contextlib import suppress

import numpy as np
import pytest
from dicom_fixtures import Grid, ramp, rotated, write_volumes
from pydicom.uid import ExplicitVRBigEndian, ExplicitVRLittleEndian, ImplicitVRLittleEndian
from scipy.spatial.transform import Rotation

from medimg_eval.checking import describe_files as describe
from medimg_eval.errors import CaseError
from medimg_eval.imaging.reading import read, read_grid

SHAPE = (3, 4, 5, 6)
TURNED = rotated(Rotation.from_euler("xyz", (10, 20, 30), degrees=True).as_matrix())


def movie(shape=SHAPE):
    """Samples, (volume, slice, row, column), every volume different."""
    return np.stack([ramp(shape[1:]) + 7 * t for t in range(shape[0])])


def private(dataset, group, creator, **elements):
    """Sets private elements, `_0C=("IS", 5)`, of block 10."""
    block = dataset.private_block(group, creator, create=True)
    for name, (kind, value) in elements.items():
        block.add_new(int(name[1:], 16), kind, value)


def made_by(name, **elements):
    """An edit that names the maker and sets elements to what functions of volume and slice say."""

    def edit(dataset, t, z):
        dataset.Manufacturer = name
        for element, value in elements.items():
            found = value(t, z)
            setattr(dataset, element, found) if found is not None else delattr(dataset, element)

    return edit


def require_movie(folder, pixels=None, grid=None, **options):
    """Requires the volumes, each in its channel and place; returns the image."""
    pixels, grid = movie() if pixels is None else pixels, grid or Grid()
    image = read(folder, **options)
    np.testing.assert_array_equal(image.array, pixels.transpose(0, 3, 2, 1))
    np.testing.assert_allclose(image.affine, grid.affine, atol=1e-4)
    assert read_grid(folder, **options).difference(image.geometry) is None
    return image


TIMES = {
    "siemens": (made_by("SIEMENS", AcquisitionNumber=lambda t, _: t + 1, RepetitionTime=lambda *_: "2500",
                        AcquisitionTime=lambda t, z: f"1002{3 + 2.5 * t + 0.1 * z:05.2f}"), [0, 2.5, 5]),
    "ge": (made_by("GE MEDICAL SYSTEMS", TriggerTime=lambda _, z: str(50 * (z % 2) + z),
                   RepetitionTime=lambda *_: "2000", AcquisitionTime=lambda *_: "101112"), [0, 2, 4]),
    "philips, numbered down": (made_by("Philips Medical Systems", InstanceNumber=lambda t, z: 1 + z * 3 + t,
                                       TemporalPositionIdentifier=lambda t, _: t + 1, RepetitionTime=lambda *_: "3000"),
                               [0, 3, 6]),
    "philips, without a time point": (made_by("Philips", InstanceNumber=lambda t, z: 50 + z * 3 + t,
                                              RepetitionTime=lambda *_: "3000"), [0, 3, 6]),
    "perfusion, uneven": (made_by("Canon", AcquisitionTime=lambda t, _: f"1000{[10, 12, 42][t]}",
                                  InstanceNumber=lambda *_: None), [0, 2, 32]),
    "across midnight": (made_by("x", AcquisitionDateTime=lambda t, _: ["20240101235959.5", "20240102000000.5",
                                                                       "20240102000001.5"][t]), [0, 1, 2]),
    "pet": (made_by("x", FrameReferenceTime=lambda t, _: str([15000, 45000, 195000][t])), [0, 30, 180]),
    "nothing is said of time": (made_by("x", InstanceNumber=lambda t, z: 9 * t + z), [np.nan] * 3),
    "in three dimensions, whose repetition is no time": (
        made_by("x", MRAcquisitionType=lambda *_: "3D", RepetitionTime=lambda *_: "4"), [np.nan] * 3),
}  # fmt: skip


@pytest.mark.parametrize("name", TIMES)
def test_times_are_channels_in_their_order(tmp_path, name):
    edit, seconds = TIMES[name]
    write_volumes(tmp_path, movie(), TURNED, edit, modality="PT" if name == "pet" else "MR")
    axis = require_movie(tmp_path, grid=TURNED).channels
    assert (axis.kind, axis.unit, axis.directions) == ("time", "s", None)
    np.testing.assert_allclose(axis.values, seconds, atol=1e-6)
    steps = set(np.diff(seconds).tolist())
    assert axis.step == (steps.pop() if len(steps) == 1 else None)


def test_the_scanners_delay_between_volumes_counts(tmp_path):
    def edit(dataset, *_):
        dataset.Manufacturer, dataset.RepetitionTime = "GE MEDICAL SYSTEMS", "2000"
        private(dataset, 0x43, "GEMS_PARM_01", _7C=("FL", 0.5))

    write_volumes(tmp_path, movie(), edit=edit, modality="MR")
    assert read(tmp_path).channels.step == 2.5


def test_an_order_taken_from_file_numbers_is_said(tmp_path):
    write_volumes(tmp_path, movie(), edit=made_by("x", RepetitionTime=lambda *_: "1000"), modality="MR")
    notes = read(tmp_path).notes
    assert "the order of the volumes is that of the numbers of their files" in notes
    assert "the times of the volumes are those that RepetitionTime states" in notes


def test_the_phases_of_a_heartbeat_differ_in_time_from_slice_to_slice(tmp_path):
    edit = made_by(
        "GE MEDICAL SYSTEMS",
        TriggerTime=lambda t, z: str(40 * t + [0, 3, 1, 2][z]),
        CardiacNumberOfImages=lambda *_: 3,
        InstanceNumber=lambda t, z: 100 - 3 * z - t,
    )
    write_volumes(tmp_path, movie(), edit=edit, modality="MR")
    axis = require_movie(tmp_path).channels
    assert (axis.kind, axis.unit, axis.step) == ("phase", "ms", 40.0)
    np.testing.assert_array_equal(axis.values, [1.5, 41.5, 81.5])


@pytest.mark.parametrize(
    ("element", "kind", "unit"),
    [("EchoTime", "echo", "ms"), ("InversionTime", "inversion", "ms"), ("FlipAngle", "flip angle", "degree")],
)
def test_volumes_of_another_contrast_come_in_ascending_order(tmp_path, element, kind, unit):
    write_volumes(tmp_path, movie(), edit=made_by("x", **{element: lambda t, _: str([4.5, 9, 30][t])}), modality="MR")
    axis = require_movie(tmp_path).channels
    assert (axis.kind, axis.unit, axis.values.tolist()) == (kind, unit, [4.5, 9, 30])


# --- diffusion ------------------------------------------------------------------------------------------------

WEIGHTS = [0.0, 1000.0, 2000.0]
ACROSS, DOWN = (np.array(axis) for axis in (TURNED.across, TURNED.down))
NORMAL = np.cross(ACROSS, DOWN)
IMAGE = np.array([[0, 0, 0], [0.6, 0.8, 0], [0.0, 0.6, 0.8]])
"""Directions along columns, rows and slices."""
PATIENT = IMAGE @ np.stack([ACROSS, DOWN, NORMAL])
"""The same in the patient, LPS."""


def public(dataset, t, _):
    dataset.DiffusionBValue, dataset.DiffusionGradientOrientation = WEIGHTS[t], PATIENT[t].tolist()


def siemens(dataset, t, _):
    dataset.Manufacturer = "SIEMENS"
    private(dataset, 0x19, "SIEMENS MR HEADER", _0C=("IS", int(WEIGHTS[t])))
    if t:
        private(dataset, 0x19, "SIEMENS MR HEADER", _0E=("FD", PATIENT[t].tolist()))


def philips(dataset, t, _):
    dataset.Manufacturer = "Philips Medical Systems"
    private(dataset, 0x2001, "Philips Imaging DD 001", _03=("FL", WEIGHTS[t]))
    private(dataset, 0x2005, "Philips MR Imaging DD 001",
            **{f"_B{axis}": ("FL", float(PATIENT[t][axis])) for axis in range(3)})  # fmt: skip


def ge(row=False):
    def edit(dataset, t, _):
        dataset.Manufacturer = "GE MEDICAL SYSTEMS"
        dataset.InPlanePhaseEncodingDirection = "ROW" if row else "COL"
        private(dataset, 0x43, "GEMS_PARM_01", _39=("IS", [1000000000 + 2000, 8, 0, 0] if t else [0, 8, 0, 0]))
        x, y, z = IMAGE[t] * np.sqrt(WEIGHTS[t] / 2000)  # a lower weighting is a shorter vector
        found = (-y, x, -z) if row else (x, y, -z)
        private(dataset, 0x19, "GEMS_ACQU_01",
                **{f"_B{name}": ("DS", f"{value:.6f}") for name, value in zip("BCD", found, strict=True)})  # fmt: skip

    return edit


def canon(dataset, t, _):
    dataset.Manufacturer = "CANON_MEC"
    if t:
        x, y, z = IMAGE[t]
        dataset.DiffusionBValue = WEIGHTS[t]
        dataset.ImageComments = f"b={WEIGHTS[t]:.0f}({y:.3f},{x:.3f},{z:.3f})"


def united_imaging(dataset, t, _):
    dataset.Manufacturer = "UIH"
    private(dataset, 0x65, "Image Private Header", _09=("FD", WEIGHTS[t] or 1.25), _37=("FD", IMAGE[t].tolist()))


VENDORS = {
    "public": public, "siemens": siemens, "philips": philips, "ge": ge(), "ge, phase along rows": ge(row=True),
    "canon": canon, "uih": united_imaging,
}  # fmt: skip


@pytest.mark.parametrize(
    "syntax", [ExplicitVRLittleEndian, ImplicitVRLittleEndian, ExplicitVRBigEndian], ids=["explicit", "implicit", "big"]
)
@pytest.mark.parametrize("vendor", VENDORS)
def test_diffusion_is_read_as_each_vendor_writes_it(tmp_path, vendor, syntax):
    write_volumes(tmp_path, movie(), TURNED, VENDORS[vendor], modality="MR", syntax=syntax)
    image = require_movie(tmp_path, grid=TURNED)
    axis = image.channels
    assert (axis.kind, axis.unit) == ("diffusion", "s/mm2")
    np.testing.assert_allclose(axis.values, [1.25 if vendor == "uih" else 0, 1000, 2000])
    np.testing.assert_allclose(axis.directions, PATIENT * (-1, -1, 1), atol=2e-3)
    # As FSL counts them: along the volume's axes, whose affine has a positive determinant: the first turned.
    assert np.linalg.det(image.affine) > 0
    np.testing.assert_allclose(axis.bvecs(image.affine), IMAGE * (-1, 1, 1), atol=2e-3)


def test_volumes_alike_keep_their_order_among_the_others(tmp_path):
    b_values = [0, 800, 0, 800, 0]
    pixels = movie((5, 3, 4, 4))
    edit = made_by("x", DiffusionBValue=lambda t, _: float(b_values[t]), AcquisitionNumber=lambda *_: 1)
    write_volumes(tmp_path, pixels, edit=edit, modality="MR")
    axis = require_movie(tmp_path, pixels).channels
    assert axis.values.tolist() == b_values
    notes = read(tmp_path).notes
    assert "diffusion-weighted volumes without a direction, averages of several perhaps: 2, 4" in notes


def test_an_axis_without_directions_has_no_bvecs(tmp_path):
    write_volumes(tmp_path, movie(), edit=made_by("x"), modality="MR")
    image = read(tmp_path)
    with pytest.raises(ValueError, match="an axis of time has no directions"):
        image.channels.bvecs(image.affine)


# --- several images, and what cannot be sorted -----------------------------------------------------------------


def test_echoes_that_repeat_in_time_are_images_of_their_own(tmp_path):
    pixels = movie((6, 3, 4, 4))
    edit = made_by("x", EchoTime=lambda t, _: str([10, 30][t % 2]), RepetitionTime=lambda *_: "2000")
    write_volumes(tmp_path, pixels, edit=edit, modality="MR", series="1.2.3")
    with pytest.raises(CaseError) as caught:
        read(tmp_path)
    assert (
        "1) MR, 3 volumes (time) of 3 slices of 4 x 4, axial, 0.7 x 0.7 x 2.5 mm, echo time 10: series=1.2.3/1"
        in str(caught.value)
    )
    for number in (0, 1):
        image = require_movie(tmp_path, pixels[number::2], series=f"1.2.3/{number + 1}")
        assert image.channels.values.tolist() == [0, 2, 4]
    assert [one.facts["shape"] for one in describe.describe(tmp_path)] == ["4 x 4 x 3, 3 channels"] * 2


def test_magnitude_and_phase_are_images_of_their_own(tmp_path):
    pixels = movie((4, 3, 4, 4))
    edit = made_by(
        "x", ImageType=lambda t, _: ["ORIGINAL", "PRIMARY", "MP"[t % 2]], TemporalPositionIdentifier=lambda t, _: t // 2
    )
    write_volumes(tmp_path, pixels, edit=edit, modality="MR", series="1.2.3")
    with pytest.raises(CaseError, match=r"2\) MR, 2 volumes \(time\) of 3 slices .*, image type .*P: series=1\.2\.3/2"):
        read(tmp_path)
    require_movie(tmp_path, pixels[1::2], series="1.2.3/2")


def test_one_volume_is_read_by_its_number(tmp_path):
    edit = made_by("x", TemporalPositionIdentifier=lambda t, _: t + 1)
    write_volumes(tmp_path, movie(), edit=edit, modality="MR", series="1.2.3")
    image = read(tmp_path, series="1.2.3/2")
    np.testing.assert_array_equal(image.array, movie()[1:2].transpose(0, 3, 2, 1))
    assert image.channels is None
    with pytest.raises(CaseError, match=r"holds no series 1\.2\.3/4"):
        read(tmp_path, series="1.2.3/4")


def test_a_missing_slice_is_named_by_its_place(tmp_path):
    edit = made_by("x", TemporalPositionIdentifier=lambda t, _: t + 1)
    paths = write_volumes(tmp_path, movie(), edit=edit, modality="MR")
    paths[1][2].unlink()
    with pytest.raises(
        CaseError,
        match=r"11 slices at 4 positions are no whole volumes: most positions have 3 slices, and ImagePositionPatient "
        r"\(-100, -80, 45\), .* has 2 files; copy what is missing",
    ):
        read(tmp_path)


def test_what_nothing_puts_in_order_is_refused_by_the_missing_elements(tmp_path):
    def edit(dataset, *_):
        del dataset.InstanceNumber

    write_volumes(tmp_path, movie(), edit=edit, modality="MR")
    with pytest.raises(CaseError) as caught:
        read(tmp_path)
    assert "same position with different pixels" in str(caught.value)
    assert (
        "nothing tells which belong together: TemporalPositionIdentifier (0020,0100), AcquisitionTime (0008,0032), "
        "InstanceNumber (0020,0013) are missing and AcquisitionNumber (0020,0012) does not tell them apart"
    ) in str(caught.value)
    assert "Secret" not in str(caught.value)


def test_a_volume_that_lies_elsewhere_is_refused(tmp_path):
    def edit(dataset, t, _):
        dataset.TemporalPositionIdentifier = t + 1
        if t == 2:
            dataset.ImagePositionPatient[0] += 0.4

    write_volumes(tmp_path, movie(), edit=edit, modality="MR")
    with pytest.raises(CaseError, match=r"lies 0\.4 mm from that of the first volume, in .*IM.*; .*series=UID/NUMBER"):
        read(tmp_path)
    with pytest.raises(CaseError, match=r"lies 0\.4 mm from"):
        read_grid(tmp_path)


def test_a_series_that_is_there_twice_is_read_once(tmp_path):
    edit = made_by("x", TemporalPositionIdentifier=lambda t, _: t + 1)
    write_volumes(tmp_path / "a", movie(), edit=edit, modality="MR")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    image = require_movie(tmp_path)
    assert image.notes[0] == "12 files were there twice, byte for byte, and are used once"


def test_each_slice_of_each_volume_has_its_own_scale(tmp_path):
    slopes = 0.5 + np.arange(12).reshape(3, 4) / 8

    def edit(dataset, t, z):
        dataset.TemporalPositionIdentifier, dataset.RescaleSlope = t + 1, str(slopes[t, z])

    write_volumes(tmp_path, movie(), edit=edit, modality="MR")
    image = read(tmp_path)
    want = movie() * slopes[:, :, None, None]
    np.testing.assert_allclose(image.array, want.transpose(0, 3, 2, 1), rtol=1e-6)


def test_what_any_volume_pads_is_not_valid(tmp_path):
    def edit(dataset, t, _):
        dataset.TemporalPositionIdentifier, dataset.PixelPaddingValue = t + 1, -9

    pixels = movie()
    pixels[:, 0, 0, 0] = -9
    pixels[1, 0, 0, 1] = -9
    write_volumes(tmp_path, pixels, edit=edit, modality="CT")
    valid = require_movie(tmp_path, pixels).valid
    assert np.argwhere(~valid).tolist() == [[0, 0, 0], [1, 0, 0]]


@pytest.mark.parametrize("gaps", ["resample", "largest-run"])
def test_gaps_are_treated_alike_in_every_volume(tmp_path, gaps):
    def edit(dataset, t, z):
        dataset.TemporalPositionIdentifier = t + 1
        dataset.ImagePositionPatient[2] = 40 + 2.5 * (z + (z == 3))

    write_volumes(tmp_path, movie(), edit=edit, modality="MR")
    with pytest.raises(CaseError, match="1 slice seems missing between z=45 and z=50"):
        read(tmp_path)
    image, pixels = read(tmp_path, gaps=gaps), movie().astype(np.float32)
    want = pixels[:, :3] if gaps == "largest-run" else np.insert(pixels, 3, pixels[:, 2:].mean(axis=1), axis=1)
    np.testing.assert_allclose(image.array, want.transpose(0, 3, 2, 1), rtol=1e-6)


def test_single_slices_in_time_are_one_image(tmp_path):
    write_volumes(tmp_path, movie((5, 1, 4, 4)), edit=made_by("x", TriggerTime=lambda t, _: str(t * 40)), modality="MR")
    axis = read(tmp_path).channels
    assert (axis.kind, axis.values.tolist()) == ("phase", [0, 40, 80, 120, 160])


def test_volumes_in_colour_are_refused(tmp_path):
    pixels = np.zeros((2, 3, 4, 4, 3), np.uint8)
    write_volumes(tmp_path, pixels, edit=made_by("x", TemporalPositionIdentifier=lambda t, _: t + 1), modality="MR")
    with pytest.raises(CaseError, match="is of 2 volumes in colour, .* series=UID/1"):
        read(tmp_path)


def test_random_damage_of_what_tells_volumes_apart_ends_in_an_image_or_a_named_error(tmp_path):
    paths = [
        path
        for volume in write_volumes(tmp_path / "a", movie((2, 2, 2, 2)), TURNED, ge(), modality="MR")
        for path in volume
    ]
    random, whole = np.random.default_rng(5), [path.read_bytes() for path in paths]
    shapes = []
    for _ in range(150):
        which = int(random.integers(len(paths)))
        data = bytearray(whole[which])
        for _ in range(int(random.integers(1, 6))):
            data[int(random.integers(132, len(data)))] = int(random.integers(256))
        paths[which].write_bytes(bytes(data))
        with suppress(CaseError):  # anything else fails the test
            shapes.append(read(tmp_path / "a").array.shape)
        paths[which].write_bytes(whole[which])
    assert 0 < len(shapes) < 150
