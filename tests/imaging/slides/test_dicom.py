"""DICOM whole-slide images: one folder, one file per level, a label beside them."""

import imagecodecs
import numpy as np
import openslide
import pytest
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.uid import ExplicitVRLittleEndian, JPEGBaseline8Bit, generate_uid

from medimg_eval.errors import CaseError
from medimg_eval.imaging import read, read_grid
from medimg_eval.imaging.slides.reading import Slide

TILE = 128
MICROSCOPY = "1.2.840.10008.5.1.4.1.1.77.1.6"


def one_level(path, pixels, series, spacing, *, flavour="VOLUME", jpeg=False):
    """Writes one instance of VL Whole Slide Microscopy, TILED_FULL."""
    rows, columns = pixels.shape[:2]
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = JPEGBaseline8Bit if jpeg else ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = MICROSCOPY, generate_uid()
    ds = Dataset()
    ds.file_meta = meta
    ds.SOPClassUID, ds.SOPInstanceUID = MICROSCOPY, meta.MediaStorageSOPInstanceUID
    ds.SeriesInstanceUID, ds.StudyInstanceUID, ds.FrameOfReferenceUID = series, series + ".1", series + ".2"
    ds.PatientName, ds.PatientID, ds.Modality = "DOE^JANE", "SECRET-7", "SM"
    ds.ImageType = ["ORIGINAL" if flavour == "VOLUME" else "DERIVED", "PRIMARY", flavour, "NONE"]
    ds.PatientBirthDate = ds.PatientSex = ds.StudyDate = ds.StudyTime = ds.AccessionNumber = ds.StudyID = ""
    ds.ReferringPhysicianName, ds.SeriesNumber, ds.InstanceNumber = "", 1, 1
    ds.Manufacturer, ds.ManufacturerModelName, ds.DeviceSerialNumber, ds.SoftwareVersions = "m", "n", "1", "1"
    ds.ContentDate, ds.ContentTime, ds.AcquisitionDateTime = "20200101", "000000", "20200101000000"
    ds.ContainerIdentifier, ds.IssuerOfTheContainerIdentifierSequence, ds.AcquisitionContextSequence = "c", [], []
    ds.ContainerTypeCodeSequence, ds.SpecimenDescriptionSequence, ds.PositionReferenceIndicator = [], [], ""
    ds.DimensionOrganizationType, ds.VolumetricProperties, ds.BurnedInAnnotation = "TILED_FULL", "VOLUME", "NO"
    ds.LossyImageCompression, ds.SpecimenLabelInImage, ds.FocusMethod = "00", "NO", "AUTO"
    ds.ExtendedDepthOfField, ds.TotalPixelMatrixFocalPlanes, ds.NumberOfOpticalPaths = "NO", 1, 1
    ds.Rows = ds.Columns = TILE
    ds.TotalPixelMatrixRows, ds.TotalPixelMatrixColumns = rows, columns
    ds.ImagedVolumeWidth, ds.ImagedVolumeHeight, ds.ImagedVolumeDepth = columns * spacing, rows * spacing, 0.001
    ds.ImageOrientationSlide = [0, -1, 0, -1, 0, 0]
    ds.TotalPixelMatrixOriginSequence = [Dataset()]
    ds.TotalPixelMatrixOriginSequence[0].XOffsetInSlideCoordinateSystem = 0
    ds.TotalPixelMatrixOriginSequence[0].YOffsetInSlideCoordinateSystem = 0
    ds.SamplesPerPixel, ds.PlanarConfiguration, ds.PixelRepresentation = 3, 0, 0
    ds.PhotometricInterpretation = "YBR_FULL_422" if jpeg else "RGB"
    ds.BitsAllocated, ds.BitsStored, ds.HighBit = 8, 8, 7
    ds.SharedFunctionalGroupsSequence, ds.OpticalPathSequence = [groups(ds.ImageType, spacing)], [optics()]
    add_frames(ds, pixels, jpeg=jpeg)
    ds.save_as(path, enforce_file_format=True)


def groups(image_type, spacing):
    measures = Dataset()
    measures.PixelSpacing, measures.SliceThickness, measures.SpacingBetweenSlices = [spacing, spacing], 0.001, 0.001
    frame_type = Dataset()
    frame_type.FrameType = image_type
    shared = Dataset()
    shared.PixelMeasuresSequence, shared.WholeSlideMicroscopyImageFrameTypeSequence = [measures], [frame_type]
    return shared


def optics():
    found = Dataset()
    found.OpticalPathIdentifier = "1"
    illumination = Dataset()
    illumination.CodeValue, illumination.CodingSchemeDesignator, illumination.CodeMeaning = (
        "111744",
        "DCM",
        "Brightfield",
    )
    found.IlluminationTypeCodeSequence = found.IlluminationColorCodeSequence = [illumination]
    return found


def add_frames(ds, pixels, *, jpeg):
    rows, columns = pixels.shape[:2]
    high, wide = -(-rows // TILE), -(-columns // TILE)
    padded = np.pad(pixels, ((0, high * TILE - rows), (0, wide * TILE - columns), (0, 0)), mode="edge")
    frames = [
        padded[r * TILE : (r + 1) * TILE, c * TILE : (c + 1) * TILE].copy() for r in range(high) for c in range(wide)
    ]
    ds.NumberOfFrames = len(frames)
    if jpeg:
        ds.PixelData = encapsulate([imagecodecs.jpeg8_encode(frame, level=95, subsampling="422") for frame in frames])
        ds["PixelData"].is_undefined_length = True
    else:
        ds.PixelData = b"".join(frame.tobytes() for frame in frames)


def squares():
    pixels = np.full((500, 700, 3), 240, np.uint8)
    pixels[128:384, 256:512] = (200, 30, 40)
    return pixels


def folder(path, *, jpeg=False, label=True, series="1.2.3.4"):
    path.mkdir(exist_ok=True)
    pixels = squares()
    for index in range(3):
        step = 2**index
        one_level(path / f"l{index}.dcm", pixels[::step, ::step], series, 0.0005 * step, jpeg=jpeg)
    if label:
        one_level(path / "a_label.dcm", np.full((64, 64, 3), 9, np.uint8), series, 0.01, flavour="LABEL", jpeg=jpeg)
    return path


@pytest.fixture(params=[False, True], ids=["raw", "jpeg"])
def slide(request, tmp_path):
    return folder(tmp_path / "slide", jpeg=request.param)


def test_a_folder_or_any_of_its_files_is_the_slide(slide):
    for source in (slide, slide / "l0.dcm", slide / "l1.dcm", sorted(slide.glob("l*.dcm"))):
        image = read(source)
        assert (image.array.shape, image.modality, image.units) == ((3, 500, 700), "SM", "mm")
        np.testing.assert_allclose(np.moveaxis(image.array, 0, 2), squares(), atol=60)  # chroma at the edges of JPEG
        np.testing.assert_allclose(image.array[:, 200:300, 300:450].mean(axis=(1, 2)), (200, 30, 40), atol=1)
        assert np.diag(image.affine)[0] == pytest.approx(0.0005)
    assert read_grid(slide, um_per_px=2.0).shape == (125, 175)
    with Slide(slide) as one:
        assert [level.size for level in one.levels] == [(500, 700), (250, 350), (125, 175)]


def test_wsidicom_reads_what_openslide_cannot(slide, monkeypatch):
    expected = read(slide, um_per_px=1.3)

    def refuse(path):
        raise openslide.OpenSlideUnsupportedFormatError("Unsupported or missing image file")

    monkeypatch.setattr(openslide, "OpenSlide", refuse)
    image = read(slide, um_per_px=1.3)
    np.testing.assert_allclose(image.array.astype(int), expected.array.astype(int), atol=3)
    assert any("read with wsidicom" in note for note in image.notes)
    assert any("holds a label" in note for note in image.notes)


def test_nothing_of_the_patient_leaves_the_reader(slide):
    image = read(slide)
    said = repr((image.notes, image.attributes))
    assert "DOE" not in said
    assert "SECRET" not in said
    assert not (image.array == 9).all(axis=0).any()  # the label's colour
    assert any("holds a label picture" in note for note in image.notes)


def test_a_label_alone_is_refused_without_being_shown(tmp_path):
    series = tmp_path / "slide"
    series.mkdir()
    one_level(series / "label.dcm", np.full((64, 64, 3), 9, np.uint8), "1.2.3", 0.01, flavour="LABEL")
    for source in (series, series / "label.dcm"):
        with pytest.raises(CaseError, match="slide") as caught:
            read(source)
        assert "DOE" not in str(caught.value)


def test_two_slides_in_a_folder_must_be_named(tmp_path):
    both = folder(tmp_path / "slides", label=False)
    one_level(both / "other.dcm", np.zeros((200, 200, 3), np.uint8), "9.9.9", 0.0005)
    with pytest.raises(CaseError, match=r"slides: expected a folder of one DICOM slide, found 2 \(l0.dcm, other.dcm\)"):
        read(both)
    assert read(both / "other.dcm").array.shape == (3, 200, 200)
    assert read(both / "l0.dcm").array.shape == (3, 500, 700)


def test_a_truncated_level_is_refused(tmp_path):
    series = folder(tmp_path / "slide")
    content = (series / "l0.dcm").read_bytes()
    (series / "l0.dcm").write_bytes(content[: len(content) // 2])
    with pytest.raises(CaseError, match="slide"):
        read(series)


def test_several_files_that_are_not_one_slide_are_refused(tmp_path):
    first, second = folder(tmp_path / "one"), folder(tmp_path / "two")
    with pytest.raises(CaseError, match=r"two/l0\.dcm: one slide is one file"):
        read([first / "l0.dcm", second / "l0.dcm"])
