"""DICOM-SEG of slides, in tiles of one large plane: written by highdicom, read as a map of the plane."""

import numpy as np
import pydicom
import pytest
from damaging import require_result_or_name
from pydicom.dataset import Dataset
from pydicom.uid import VLWholeSlideMicroscopyImageStorage, generate_uid

from medimg_eval.case import Geometry
from medimg_eval.checking import describe_files as describe
from medimg_eval.errors import CaseError
from medimg_eval.imaging import identify
from medimg_eval.imaging.dicom import read_segments
from medimg_eval.imaging.reading import read, read_mask

hd = pytest.importorskip("highdicom")

SHAPE = (50, 70)


def slide():
    """The header of a slide of 50 x 70 pixels of 0.5 x 0.25 um."""
    source = Dataset()
    source.file_meta = pydicom.dataset.FileMetaDataset()
    source.SOPClassUID, source.SOPInstanceUID = VLWholeSlideMicroscopyImageStorage, generate_uid()
    source.StudyInstanceUID, source.SeriesInstanceUID = "1.2.3", "1.2.3.4"
    source.PatientID, source.PatientName, source.PatientBirthDate, source.PatientSex = "SECRET", "Secret^Name", "", ""
    source.AccessionNumber = source.StudyID = source.StudyDate = source.StudyTime = ""
    source.ReferringPhysicianName, source.FrameOfReferenceUID, source.Modality = "", "1.2.3.5", "SM"
    source.Manufacturer, source.ContainerIdentifier, source.SpecimenDescriptionSequence = "Acme", "c", []
    source.Rows = source.Columns = 32
    source.TotalPixelMatrixRows, source.TotalPixelMatrixColumns = SHAPE
    source.NumberOfFrames, source.SamplesPerPixel, source.PhotometricInterpretation = 6, 3, "RGB"
    source.ImageType = ["ORIGINAL", "PRIMARY", "VOLUME", "NONE"]
    source.BitsAllocated = source.BitsStored = 8
    source.HighBit, source.PixelRepresentation, source.PlanarConfiguration = 7, 0, 0
    source.ImageOrientationSlide = [0, 1, 0, 1, 0, 0]
    source.DimensionOrganizationType = "TILED_FULL"
    origin, measures, shared = Dataset(), Dataset(), Dataset()
    origin.XOffsetInSlideCoordinateSystem, origin.YOffsetInSlideCoordinateSystem = 1, 2
    measures.PixelSpacing, measures.SliceThickness = [0.0005, 0.00025], 0.001
    shared.PixelMeasuresSequence = [measures]
    source.TotalPixelMatrixOriginSequence, source.SharedFunctionalGroupsSequence = [origin], [shared]
    source.ImageOrientationSlide, source.TotalPixelMatrixFocalPlanes = [0, 1, 0, 1, 0, 0], 1
    source.NumberOfOpticalPaths, source.OpticalPathSequence = 1, [Dataset()]
    return source


def write(path, masks, kind="BINARY", organization="TILED_FULL"):
    """Writes bool (segment, row, column) as a tiled segmentation."""
    descriptions = [
        hd.seg.SegmentDescription(
            number, name, hd.sr.CodedConcept("1", "99T", name), hd.sr.CodedConcept("2", "99T", name),
            hd.seg.SegmentAlgorithmTypeValues.MANUAL)
        for number, name in enumerate(["tumour", "stroma"][: len(masks)], 1)
    ]  # fmt: skip
    pixels = np.moveaxis(masks, 0, -1)[None].astype(np.uint8)
    if kind == "LABELMAP":
        pixels = np.max(masks * np.arange(1, len(masks) + 1)[:, None, None], axis=0).astype(np.uint8)[None]
    made = hd.seg.Segmentation(
        [slide()], pixels, kind, descriptions, "1.2.9", 1, "1.2.9.1", 1, "Acme", "M", "1", "2", tile_pixel_array=True,
        tile_size=(32, 32), dimension_organization_type=organization,
        omit_empty_frames=organization == "TILED_SPARSE")  # fmt: skip
    made.save_as(path)
    return path


def drawn():
    masks = np.zeros((2, *SHAPE), bool)
    masks[0, 3:30, 5:40] = True
    masks[1, 35:50, 60:70] = True
    return masks


@pytest.mark.parametrize("organization", ["TILED_FULL", "TILED_SPARSE"])
@pytest.mark.parametrize("kind", ["BINARY", "FRACTIONAL", "LABELMAP"])
def test_tiles_become_a_map_of_the_plane(tmp_path, kind, organization):
    path = write(tmp_path / "a.dcm", drawn(), kind, organization)
    assert identify(path) == "dicom"
    mask = read_mask(path)
    np.testing.assert_array_equal(mask.labels, drawn()[0] + 2 * drawn()[1])
    assert mask.names == {1: "tumour", 2: "stroma"}
    assert mask.units == "mm"
    np.testing.assert_allclose(mask.geometry.spacing, (0.0005, 0.00025))
    only = read_mask(path, labels={"stroma": 7})
    np.testing.assert_array_equal(only.labels, 7 * drawn()[1])
    (one,) = describe.describe(path)
    assert one.readable
    with pytest.raises(CaseError, match="is a segmentation; read it with read_mask"):
        read(path)


def test_segments_that_overlap_are_refused_and_read_by_themselves(tmp_path):
    masks = drawn()
    masks[1] |= masks[0]
    path = write(tmp_path / "a.dcm", masks)
    with pytest.raises(CaseError, match=r"segments overlap.*'tumour' and 'stroma'"):
        read_mask(path)
    found = read_segments(path)
    for number in (1, 2):
        np.testing.assert_array_equal(found.arrays[number], masks[number - 1])


def test_a_plane_of_another_size_than_the_image_is_refused(tmp_path):
    path = write(tmp_path / "a.dcm", drawn())
    assert read_mask(path, grid=Geometry(SHAPE, np.eye(4), "pixel")).labels.shape == SHAPE
    with pytest.raises(CaseError, match=r"on a plane of \(50, 70\), and the image has \(25, 35\) pixels"):
        read_mask(path, grid=Geometry((25, 35), np.eye(4), "pixel"))


def test_damaged_tiles_are_named(tmp_path):
    path = write(tmp_path / "a.dcm", drawn(), organization="TILED_SPARSE")
    dataset = pydicom.dcmread(path)
    del dataset.PerFrameFunctionalGroupsSequence[1].PlanePositionSlideSequence
    dataset.save_as(path)
    with pytest.raises(CaseError, match=r"a\.dcm: its tiles cannot be put together"):
        read_mask(path)


@pytest.mark.parametrize("organization", ["TILED_FULL", "TILED_SPARSE"])
def test_changed_bytes_of_tiles_end_in_a_map_or_a_named_error(tmp_path, organization):
    require_result_or_name(write(tmp_path / "a.dcm", drawn(), organization=organization), read_mask, 40)
