"""Many slices in one file, in any order: against the volume they were made from, highdicom and SimpleITK."""

import numpy as np
import pydicom
import pytest
from damaging import require_result_or_name
from hypothesis import given, settings
from hypothesis import strategies as st
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import DeflatedExplicitVRLittleEndian, ExplicitVRLittleEndian, RLELossless, generate_uid

from medimg_eval.errors import CaseError
from medimg_eval.imaging.dicom.objects import enhanced as multiframe
from medimg_eval.imaging.dicom.series.geometry import UnevenSlices
from medimg_eval.imaging.reading import read, read_grid

CT, MR, PET = (f"1.2.840.10008.5.1.4.1.1.{end}" for end in ("2.1", "4.1", "130"))
OBLIQUE = (0.8, 0.6, 0.0, 0.0, 0.0, -1.0)


def item(**elements):
    """A sequence of one item."""
    inside = Dataset()
    for name, value in elements.items():
        setattr(inside, name, value)
    return [inside]


def volume(slices=6, rows=4, columns=5, seed=0):
    """Stored values, (slice, row, column)."""
    return np.random.default_rng(seed).integers(0, 4000, (slices, rows, columns), dtype=np.uint16)


def frame(position, slope=None, intercept=None, **groups):
    own = Dataset()
    own.PlanePositionSequence = item(ImagePositionPatient=[round(float(x), 6) for x in position])
    own.FrameContentSequence = item(StackID=groups.pop("stack", "1"), **groups.pop("content", {}))
    if slope is not None:
        own.PixelValueTransformationSequence = item(
            RescaleSlope=slope, RescaleIntercept=intercept or 0, RescaleType="US"
        )
    for name, value in groups.items():
        setattr(own, name, value)
    return own


def write(path, frames, pixels, orientation=OBLIQUE, spacing=(0.5, 0.75), sop_class=CT, **elements):
    """Writes an enhanced file; `frames` are the per-frame functional groups, `pixels` (frame, row, column)."""
    dataset = Dataset()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.SOPClassUID = dataset.file_meta.MediaStorageSOPClassUID = sop_class
    dataset.SOPInstanceUID = dataset.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    dataset.StudyInstanceUID, dataset.SeriesInstanceUID = generate_uid(), generate_uid()
    dataset.PatientName, dataset.PatientID = "Secret^Person", "ID-4711"
    dataset.Modality = {CT: "CT", MR: "MR", PET: "PT"}[sop_class]
    dataset.Rows, dataset.Columns, dataset.NumberOfFrames = *pixels.shape[1:3], len(pixels)
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = 16, 12, 11, 0
    shared = Dataset()
    if orientation is not None:
        shared.PlaneOrientationSequence = item(ImageOrientationPatient=list(orientation))
    shared.PixelMeasuresSequence = item(PixelSpacing=list(spacing), SliceThickness=3)
    dataset.SharedFunctionalGroupsSequence = [shared]
    dataset.PerFrameFunctionalGroupsSequence = frames
    dataset.PixelData = pixels.tobytes()
    for name, value in elements.items():
        setattr(dataset, name, value)
    dataset["PixelData"].VR = "OW"
    dataset.save_as(path, enforce_file_format=True)
    return path


def places(count, step=2.5, first=(10.0, -20.0, 30.0), orientation=OBLIQUE, shear=0.0):
    """Positions along the normal; `shear` moves each slice along the columns."""
    row, column = np.reshape(orientation, (2, 3))
    along = np.cross(row, column) * step + column * shear
    return [np.array(first) + k * along for k in range(count)]


def affine_of(positions, orientation=OBLIQUE, spacing=(0.5, 0.75)):
    """What the volume's affine must be, RAS."""
    row, column = np.reshape(orientation, (2, 3))
    affine = np.eye(4)
    affine[:3, 0], affine[:3, 1] = row * spacing[1], column * spacing[0]
    affine[:3, 2] = (positions[-1] - positions[0]) / (len(positions) - 1)
    affine[:3, 3] = positions[0]
    affine[:2] *= -1
    return affine


def as_stored(image):
    """(slice, row, column)."""
    return image.array[0].transpose(2, 1, 0)


@settings(deadline=None, max_examples=20)
@given(st.integers(2, 7), st.integers(0, 2**31), st.floats(-2, 2), st.booleans())
def test_frames_in_any_order_come_back_as_the_volume(tmp_path_factory, count, seed, shear, backwards):
    rng = np.random.default_rng(seed)
    turned = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    orientation = tuple(np.round(turned[:2].ravel(), 9).tolist())
    positions = places(count, 2.5, rng.uniform(-99, 99, 3), orientation, round(shear, 3))
    stored = volume(count, 3, 4, seed)
    order = rng.permutation(count)
    path = write(
        tmp_path_factory.mktemp("frames") / "a",
        [frame(positions[k]) for k in (order[::-1] if backwards else order)],
        stored[order[::-1] if backwards else order],
        orientation,
    )
    image = multiframe.read(path)
    assert image.array.dtype == np.uint16
    np.testing.assert_array_equal(as_stored(image), stored)
    np.testing.assert_allclose(image.affine, affine_of(positions, orientation), atol=1e-4)
    assert multiframe.grid(path).difference(image.geometry) is None


def test_gantry_tilt_is_kept_in_the_affine_and_said(tmp_path):
    positions = places(6, shear=1.0)
    image = multiframe.read(write(tmp_path / "a", [frame(at) for at in positions], volume()))
    np.testing.assert_allclose(image.affine, affine_of(positions), atol=1e-6)
    assert any("21.8 degrees" in note for note in image.notes)  # atan(1 / 2.5)


def test_highdicom_places_every_voxel_where_we_do(tmp_path):
    hd = pytest.importorskip("highdicom")
    positions = places(6)
    order = [3, 0, 5, 1, 4, 2]
    stored = volume()
    pointers = item(DimensionIndexPointer=0x00200032, FunctionalGroupPointer=0x00209113)
    frames = [frame(positions[k], 2, -1000, content={"DimensionIndexValues": [k + 1]}) for k in order]
    path = write(
        tmp_path / "a.dcm", frames, stored[order], FrameOfReferenceUID=generate_uid(),
        DimensionIndexSequence=pointers, ImageType=["DERIVED", "PRIMARY", "VOLUME", "NONE"], ContentDate="20200101",
        ContentTime="120000",
    )  # fmt: skip
    ours = multiframe.read(path)
    theirs = hd.imread(path).get_volume()
    to_ras = np.diag([-1.0, -1, 1, 1])
    back = np.linalg.inv(to_ras @ theirs.affine) @ ours.affine  # from our indices to theirs
    indices = np.indices(ours.array.shape[1:]).reshape(3, -1)
    there = np.rint((back @ np.vstack([indices, np.ones_like(indices[:1])]))[:3]).astype(int)
    np.testing.assert_allclose(theirs.array[tuple(there)], ours.array[0][tuple(indices)])


def test_simpleitk_reads_the_same_volume_where_frames_are_in_order(tmp_path):
    sitk = pytest.importorskip("SimpleITK")
    positions = places(6, orientation=(1, 0, 0, 0, 1, 0))
    path = write(
        tmp_path / "a.dcm", [frame(at) for at in positions], volume(), (1, 0, 0, 0, 1, 0),
        FrameOfReferenceUID=generate_uid(), ImageType=["ORIGINAL", "PRIMARY", "VOLUME", "NONE"],
    )  # fmt: skip
    ours, theirs = multiframe.read(path), sitk.ReadImage(str(path))
    np.testing.assert_array_equal(as_stored(ours), sitk.GetArrayFromImage(theirs))
    corner = np.array(theirs.TransformIndexToPhysicalPoint((4, 3, 5))) * (-1, -1, 1)
    np.testing.assert_allclose((ours.affine @ (4, 3, 5, 1))[:3], corner, atol=1e-4)


def test_each_frame_has_its_own_slope(tmp_path):
    positions, stored = places(6), volume()
    frames = [frame(at, 0.5 * (k + 1), k) for k, at in enumerate(positions)]
    image = multiframe.read(write(tmp_path / "a", frames[::-1], stored[::-1], sop_class=PET))
    assert image.array.dtype == np.float32
    expected = [stored[k] * 0.5 * (k + 1) + k for k in range(6)]
    np.testing.assert_allclose(as_stored(image), expected)
    assert image.modality == "PT"


def test_hounsfield_units_stay_whole(tmp_path):
    stored = volume()
    image = multiframe.read(write(tmp_path / "a", [frame(at, 1, -1024) for at in places(6)], stored))
    assert image.array.dtype == np.int16
    np.testing.assert_array_equal(as_stored(image), stored.astype(int) - 1024)
    image = multiframe.read(write(tmp_path / "b", [frame(at, 1, 40000) for at in places(6)], stored))
    assert image.array.dtype == np.float32
    np.testing.assert_array_equal(as_stored(image), stored.astype(int) + 40000)


@pytest.mark.parametrize("rescale", [(None, None), (1, -1024), (1, 40000), (0.25, 3)])
def test_encoded_and_deflated_frames_read_as_raw_ones(tmp_path, rescale):
    frames = [frame(at, *rescale) for at in places(6)][::-1]
    path = write(tmp_path / "a", frames, volume()[::-1].copy(), PixelPaddingValue=int(volume()[0, 0, 0]))
    raw = multiframe.read(path)
    dataset = pydicom.dcmread(path)
    dataset.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    dataset.save_as(tmp_path / "deflated")
    dataset = pydicom.dcmread(path)
    dataset.compress(RLELossless, generate_instance_uid=False)
    dataset.save_as(tmp_path / "encoded")
    for name in ("deflated", "encoded"):
        image = multiframe.read(tmp_path / name)
        assert image.array.dtype == raw.array.dtype
        np.testing.assert_array_equal(image.array, raw.array)
        np.testing.assert_array_equal(image.valid, raw.valid)
        assert image.notes == raw.notes


def test_padding_is_a_mask(tmp_path):
    stored = volume()
    stored[2, 1, 3] = 4095
    path = write(tmp_path / "a", [frame(at) for at in places(6)][::-1], stored[::-1].copy(), PixelPaddingValue=4095)
    valid = multiframe.read(path).valid
    assert valid.shape == (5, 4, 6)
    assert np.argwhere(~valid).tolist() == [[3, 1, 2]]


def test_uneven_steps_are_refused_unless_told_what_to_do(tmp_path):
    positions = places(8)
    kept = [0, 1, 2, 3, 4, 6, 7]
    stored = volume(8)
    path = write(tmp_path / "gap.dcm", [frame(positions[k]) for k in kept], stored[kept])
    with pytest.raises(UnevenSlices, match=r"gap\.dcm.*1 slice seems missing"):
        multiframe.read(path)
    with pytest.raises(UnevenSlices):
        multiframe.grid(path)
    run = multiframe.read(path, gaps="largest-run")
    np.testing.assert_array_equal(as_stored(run), stored[:5])
    filled = multiframe.read(path, gaps="resample")
    np.testing.assert_allclose(filled.array[0, :, :, 5], (stored[4].T.astype(float) + stored[6].T) / 2)
    assert filled.array.shape[-1] == 8
    assert multiframe.grid(path, gaps="resample").difference(filled.geometry) is None


def test_frames_that_are_there_twice_are_used_once(tmp_path):
    positions, stored = places(6), volume()
    order = [0, 1, 2, 2, 3, 4, 5]
    path = write(tmp_path / "twice.dcm", [frame(positions[k]) for k in order], stored[order])
    image = multiframe.read(path)
    np.testing.assert_array_equal(as_stored(image), stored)
    assert any("1 frames were there twice" in note for note in image.notes)
    assert multiframe.grid(path).difference(image.geometry) is None
    stored = np.concatenate([stored, stored[:1] + 1])
    path = write(tmp_path / "other.dcm", [frame(positions[k]) for k in [*range(6), 0]], stored)
    for function in (multiframe.read, multiframe.grid):
        with pytest.raises(CaseError, match=r"other\.dcm: frames 1 and 7 lie at the same position"):
            function(path)


def stacks(tmp_path, **groups):
    """Three times four slices, interleaved, told apart by `groups`: name -> function of the stack's number."""
    positions = places(4)
    stored = volume(12)
    frames = [
        frame(positions[k], **{name: value(number) for name, value in groups.items()})
        for k in range(4)
        for number in range(3)
    ]
    return write(tmp_path / "stacks.dcm", frames, stored, sop_class=MR), stored.reshape(4, 3, 4, 5)


CHANNELS = {
    "time": ({"content": lambda n: {"TemporalPositionIndex": n + 1}}, [np.nan] * 3),
    "time, measured": (
        {"content": lambda n: {"FrameAcquisitionDateTime": f"2024010110000{2 * n}.5", "TemporalPositionIndex": n}},
        [0, 2, 4],
    ),
    "diffusion": ({"MRDiffusionSequence": lambda n: item(DiffusionBValue=500.0 * n)}, [0, 500, 1000]),
    "echo": ({"MREchoSequence": lambda n: item(EffectiveEchoTime=12.5 * n)}, [0, 12.5, 25]),
    "flip angle": ({"MRTimingAndRelatedParametersSequence": lambda n: item(FlipAngle=5.0 + n)}, [5, 6, 7]),
}


@pytest.mark.parametrize("name", CHANNELS)
def test_volumes_of_one_file_are_channels_and_one_is_chosen_by_its_number(tmp_path, name):
    groups, values = CHANNELS[name]
    path, stored = stacks(tmp_path, **groups)
    image = multiframe.read(path)
    np.testing.assert_array_equal(image.array, stored.transpose(1, 3, 2, 0))
    assert image.channels.kind == name.partition(",")[0]
    np.testing.assert_array_equal(image.channels.values, values)
    for number in range(3):
        one = multiframe.read(path, stack=number + 1)
        np.testing.assert_array_equal(as_stored(one), stored[:, number])
        assert one.channels is None
        assert any(f"stack {number + 1} of 3" in note for note in one.notes)
    assert multiframe.grid(path).difference(image.geometry) is None
    with pytest.raises(CaseError, match=r"stacks\.dcm: has no stack 4"):
        multiframe.read(path, stack=4)


@pytest.mark.parametrize(
    ("groups", "label"),
    [
        ({"stack": lambda n: str(n + 1)}, "stack 2"),
        ({"MRImageFrameTypeSequence": lambda n: item(FrameType=["ORIGINAL", "PRIMARY", "T1", "MPR"[n]])},
         r"image type ORIGINAL\PRIMARY\T1\P"),
    ],
)  # fmt: skip
def test_several_stacks_are_listed_and_one_is_chosen_by_its_number(tmp_path, groups, label):
    path, stored = stacks(tmp_path, **groups)
    for function in (multiframe.read, multiframe.grid):
        with pytest.raises(CaseError) as error:
            function(path)
        assert "stacks.dcm: holds 3 stacks of frames" in str(error.value)
        assert f"2) 4 oblique frames, {label};" in str(error.value)
        assert "stack=NUMBER" in str(error.value)
    for number in range(3):
        image = multiframe.read(path, stack=number + 1)
        np.testing.assert_array_equal(as_stored(image), stored[:, number])
        assert any(f"stack {number + 1} of 3" in note for note in image.notes)
    assert multiframe.grid(path, stack=2).shape == (5, 4, 4)
    with pytest.raises(CaseError, match=r"stacks\.dcm: has no stack 4"):
        multiframe.read(path, stack=4)


def directed(vector, b_value=1000.0):
    return item(
        DiffusionBValue=b_value,
        DiffusionDirectionality="DIRECTIONAL",
        DiffusionGradientDirectionSequence=item(DiffusionGradientOrientation=list(vector)),
    )


def test_directions_of_frames_are_those_in_the_patient(tmp_path):
    path, stored = stacks(tmp_path, MRDiffusionSequence=lambda n: directed([(0.6, 0.8, 0), (0, 1, 0), (1, 0, 0)][n]))
    image = multiframe.read(path)
    assert image.channels.values.tolist() == [1000] * 3
    np.testing.assert_array_equal(image.channels.directions, [(-0.6, -0.8, 0), (0, -1, 0), (-1, 0, 0)])
    np.testing.assert_array_equal(image.array, stored.transpose(1, 3, 2, 0))


def test_an_average_over_directions_is_an_image_of_its_own(tmp_path):
    def weighting(number):
        return directed((0, 1, 0), 500.0 * number) if number < 2 else item(
            DiffusionBValue=1000.0, DiffusionDirectionality="ISOTROPIC")  # fmt: skip

    path, _ = stacks(tmp_path, MRDiffusionSequence=weighting)
    with pytest.raises(CaseError, match=r"1\) 2 volumes \(diffusion\) of 4 .*; 2\) 4 oblique frames, .*isotropic"):
        multiframe.read(path)


@pytest.mark.parametrize("scattered", [False, True])
def test_a_file_for_each_volume_or_for_parts_of_them_is_one_image(tmp_path, scattered):
    positions, stored = places(4), volume(12)
    frames = [frame(positions[k], content={"TemporalPositionIndex": t + 1}) for t in range(3) for k in range(4)]
    order = np.random.default_rng(1).permutation(12) if scattered else np.arange(12)
    for number, part in enumerate(np.split(order, 3)):
        own = {"SeriesInstanceUID": "1.2.3", "StudyInstanceUID": "1.2", "InstanceNumber": number + 1}
        write(tmp_path / f"{2 - number}.dcm", [frames[k] for k in part], stored[part], sop_class=MR, **own)
    image = read(tmp_path)
    np.testing.assert_array_equal(image.array, stored.reshape(3, 4, 4, 5).transpose(0, 3, 2, 1))
    assert read_grid(tmp_path).difference(image.geometry) is None
    if not scattered:
        np.testing.assert_array_equal(as_stored(read(tmp_path, series="1.2.3/2")), stored[4:8])
    compressed = pydicom.dcmread(tmp_path / "1.dcm")
    compressed.compress(RLELossless, generate_instance_uid=False)
    compressed.save_as(tmp_path / "1.dcm")
    np.testing.assert_array_equal(read(tmp_path).array, image.array)


def test_volumes_told_apart_by_a_dimension_index_alone(tmp_path):
    positions, stored = places(3), volume(6)
    pointers = item(DimensionIndexPointer=0x00200032) + item(DimensionIndexPointer=0x00189089)
    frames = [frame(positions[k], content={"DimensionIndexValues": [k + 1, n + 1]}) for n in (1, 0) for k in range(3)]
    path = write(tmp_path / "a", frames, stored, DimensionIndexSequence=pointers)
    np.testing.assert_array_equal(multiframe.read(path).array[1], stored[:3].transpose(2, 1, 0))
    np.testing.assert_array_equal(as_stored(multiframe.read(path, stack=2)), stored[:3])


def test_volumes_told_apart_by_two_things_are_several_images(tmp_path):
    positions, stored = places(3), volume(12)
    frames = [
        frame(positions[k], content={"TemporalPositionIndex": t + 1}, MREchoSequence=item(EffectiveEchoTime=float(e)))
        for t in range(2) for e in (10, 20) for k in range(3)
    ]  # fmt: skip
    path = write(tmp_path / "a", frames, stored, sop_class=MR)
    with pytest.raises(CaseError, match=r"2\) 2 volumes \(time\) of 3 oblique frames, echo time 20"):
        multiframe.read(path)
    image = multiframe.read(path, stack=2)
    np.testing.assert_array_equal(image.array, stored.reshape(2, 2, 3, 4, 5)[:, 1].transpose(0, 3, 2, 1))


def test_a_scan_that_was_stopped_early_still_splits_by_time(tmp_path):
    positions, stored = places(4), volume(7)
    frames = [frame(positions[n % 4], content={"TemporalPositionIndex": n // 4 + 1}) for n in range(7)]
    path = write(tmp_path / "a", frames, stored)
    np.testing.assert_array_equal(as_stored(multiframe.read(path, stack=1)), stored[:4])
    np.testing.assert_array_equal(as_stored(multiframe.read(path, stack=2)), stored[4:])


def test_slabs_that_join_are_one_stack_and_slabs_apart_are_two(tmp_path):
    positions, stored = places(12), volume(8)
    joined = [frame(positions[k], stack=str(k // 4)) for k in range(8)]
    assert multiframe.read(write(tmp_path / "a", joined, stored)).array.shape[-1] == 8
    apart = [frame(positions[k], stack=str(k // 5)) for k in (0, 1, 2, 3, 8, 9, 5, 6)[:6]]
    path = write(tmp_path / "b", apart, stored[:6])
    with pytest.raises(CaseError, match="1\\) 4 oblique frames, stack 0; 2\\) 2 oblique frames, stack 1"):
        multiframe.read(path)


def test_one_frame_of_another_orientation_is_left_out_and_said(tmp_path):
    positions, stored = places(6), volume(7)
    frames = [frame(at) for at in positions]
    scout = frame(positions[0])
    scout.PlaneOrientationSequence = item(ImageOrientationPatient=[1, 0, 0, 0, 1, 0])
    image = multiframe.read(write(tmp_path / "a", [scout, *frames], stored))
    np.testing.assert_array_equal(as_stored(image), stored[1:])
    assert any("1 single frames" in note for note in image.notes)


def test_frames_without_a_place_are_a_clip(tmp_path):
    empty = [Dataset() for _ in range(3)]
    stored = volume(3)
    path = write(tmp_path / "a", empty, stored, orientation=None)
    image = multiframe.read(path)
    np.testing.assert_array_equal(image.array[0], stored)
    assert any("stored order" in note for note in image.notes)
    with pytest.raises(CaseError, match="SUV is for PET volumes"):
        multiframe.read(path, suv=True)
    assert multiframe.grid(path).difference(image.geometry) is None


def test_one_frame_is_a_volume_of_one_slice(tmp_path):
    image = multiframe.read(write(tmp_path / "a", [frame((1, 2, 3))], volume(1)))
    assert image.array.shape == (1, 5, 4, 1)
    assert image.geometry.spacing == pytest.approx((0.75, 0.5, 3.0))
    assert any("one slice" in note for note in image.notes)


def test_uptake_values_need_what_they_need(tmp_path):
    path = write(tmp_path / "pet.dcm", [frame(at) for at in places(6)], volume(), sop_class=PET)
    with pytest.raises(CaseError, match=r"pet\.dcm: cannot be turned into SUV: Units is missing"):
        multiframe.read(path, suv=True)
    path = write(tmp_path / "suv.dcm", [frame(at) for at in places(6)], volume(), sop_class=PET, Units="GML")
    image = multiframe.read(path, suv=True)
    assert image.array.dtype == np.float32
    np.testing.assert_array_equal(as_stored(image), volume())


def test_notes_and_attributes_identify_nobody(tmp_path):
    path = write(tmp_path / "a", [frame(at) for at in places(6)], volume(), Manufacturer="Maker", KVP="120")
    image = multiframe.read(path)
    assert dict(image.attributes) == {"manufacturer": "Maker", "kVp": "120"}
    assert "Secret" not in repr(image.notes)


def test_what_contradicts_itself_is_refused_by_name(tmp_path):
    positions, stored = places(6), volume()
    few = write(tmp_path / "few.dcm", [frame(at) for at in positions[:5]], stored)
    with pytest.raises(CaseError, match=r"few\.dcm: has 6 frames and describes 5"):
        multiframe.read(few)
    frames = [frame(at) for at in positions]
    del frames[2].PlanePositionSequence
    with pytest.raises(CaseError, match=r"lost\.dcm: frame 3 lacks ImagePositionPatient"):
        multiframe.grid(write(tmp_path / "lost.dcm", frames, stored))
    flat = write(tmp_path / "flat.dcm", [frame(at, 0, 5) for at in positions], stored)
    with pytest.raises(CaseError, match=r"flat\.dcm: RescaleSlope of frame 1 is 0"):
        multiframe.read(flat)
    thin = write(tmp_path / "thin.dcm", [frame(at) for at in positions], stored, spacing=(0, 1))
    with pytest.raises(CaseError, match=r"thin\.dcm: PixelSpacing is 0 x 1"):
        multiframe.read(thin)
    cut = tmp_path / "cut.dcm"
    cut.write_bytes(write(tmp_path / "a", [frame(at) for at in positions], stored).read_bytes()[:-50])
    with pytest.raises(CaseError, match=r"cut\.dcm: is (cut short|damaged)"):
        multiframe.read(cut)


def test_damaged_volumes_of_one_file_are_read_or_named(tmp_path):
    path, _ = stacks(tmp_path, content=lambda n: {"TemporalPositionIndex": n + 1})
    require_result_or_name(path, read, 60)
