"""Folders and files that invite a wrong volume in silence, or a wait without an end."""

import io
import logging
import os
import re

import numpy as np
import pydicom
import pytest
from dicom_fixtures import Grid, ramp, require_equal, save, slice_dataset, still, write_series
from pydicom.dataelem import RawDataElement
from pydicom.sequence import Sequence
from pydicom.tag import Tag

from medimg_eval.case import Image, Mask
from medimg_eval.errors import CaseError
from medimg_eval.imaging import MaskFile
from medimg_eval.imaging.dicom.headers.header import header_of, read_header
from medimg_eval.imaging.reading import read, read_grid

UPPER = Grid(origin=(-100.0, -80.0, 52.5))
"""Goes on where a series of five slices on the usual grid ends."""

FACING_DOWN = Grid(down=(0.0, -1.0, 0.0))


def setting(**elements):
    def edit(dataset, _):
        for name, value in elements.items():
            setattr(dataset, name, value)

    return edit


def refused(source, words, **options):
    """Both ways in refuse it in the same words."""
    for way in (read, read_grid):
        with pytest.raises(CaseError, match=words):
            way(source, **options)


@pytest.mark.parametrize(
    "elements",
    [
        {"PatientID": "another"},
        {"PatientID": "", "PatientName": "Another^One"},
        {"StudyInstanceUID": "1.2.3.4"},
        {"SOPClassUID": "1.2.840.10008.5.1.4.1.1.7"},
    ],
)
def test_slices_of_another_patient_study_or_kind_are_never_put_on_top_of_a_series(tmp_path, elements):
    write_series(tmp_path / "a", ramp((5, 6, 7)))
    write_series(tmp_path / "b", ramp((5, 6, 7)), UPPER, edit=setting(**elements))
    refused(tmp_path, "holds several images")
    assert read(tmp_path, series="2").array.shape[-1] == 5
    with pytest.raises(CaseError) as caught:
        read(tmp_path)
    assert "Secret" not in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_a_header_shows_nobody(tmp_path):
    (path, *_) = write_series(tmp_path, ramp(), edit=setting(SeriesDescription="Secret^Words"))
    header = read_header(path)
    assert header.patient == "SECRET-ID"
    assert "secret" not in repr(header).casefold()


def test_slices_behind_a_link_belong_to_the_series(tmp_path):
    pixels = ramp((6, 5, 4))
    paths = write_series(tmp_path / "tree" / "a", pixels)
    (tmp_path / "far").mkdir()
    for path in paths[4:]:
        path.rename(tmp_path / "far" / path.name)
    (tmp_path / "tree" / "b").symlink_to(tmp_path / "far", target_is_directory=True)
    (tmp_path / "tree" / "loop").symlink_to(tmp_path / "tree", target_is_directory=True)
    require_equal(tmp_path / "tree", pixels, Grid())


def test_a_slice_whose_link_leads_nowhere_is_named(tmp_path):
    write_series(tmp_path, ramp())
    (tmp_path / "notes.txt").symlink_to(tmp_path / "gone")
    assert read(tmp_path).notes == ()
    (tmp_path / "IM0099.dcm").symlink_to(tmp_path / "gone")
    refused(tmp_path, r"IM0099\.dcm: is a link to a file that is not there")


def test_a_pipe_beside_the_slices_is_not_waited_for(tmp_path):
    pixels = ramp()
    write_series(tmp_path, pixels)
    os.mkfifo(tmp_path / "pipe")
    require_equal(tmp_path, pixels, Grid())


def test_a_folder_that_cannot_be_opened_is_named(tmp_path, monkeypatch):
    write_series(tmp_path / "a", ramp())
    write_series(tmp_path / "b", ramp(), UPPER)
    real = os.scandir

    def guarded(folder):
        if str(folder) == str(tmp_path / "b"):
            raise PermissionError(13, "Permission denied")
        return real(folder)

    monkeypatch.setattr(os, "scandir", guarded)
    from medimg_eval.imaging.dicom import reading as dicom

    with pytest.raises(CaseError, match=r"b: cannot be opened \(Permission denied\)"):
        dicom.read([tmp_path])


@pytest.mark.parametrize("length", ["defined", "undefined", "empty"])
def test_slices_that_go_through_a_table_are_refused(tmp_path, length):
    def edit(dataset, _):
        table = pydicom.Dataset()
        table.LUTDescriptor, table.ModalityLUTType = [2, 0, 16], "HU"
        table.add_new("LUTData", "OW", b"\1\0\2\0")
        dataset.ModalityLUTSequence = Sequence([] if length == "empty" else [table])
        dataset["ModalityLUTSequence"].is_undefined_length = length == "undefined"

    paths = write_series(tmp_path, ramp(), edit=edit)
    assert read_header(paths[0]).modality_lut == (length != "empty")
    assert header_of(pydicom.dcmread(paths[0]), paths[0]).modality_lut == (length != "empty")
    if length == "empty":
        require_equal(tmp_path, ramp(), Grid())
    else:
        refused(tmp_path, "its values go through a modality lookup table")


def test_slices_where_black_and_white_change_places_are_refused(tmp_path):
    def edit(dataset, index):
        dataset.PhotometricInterpretation = "MONOCHROME1" if index == 2 else "MONOCHROME2"

    write_series(tmp_path, ramp(), edit=edit)
    refused(tmp_path, "one of a stack of MONOCHROME1 and MONOCHROME2 slices")


def test_a_series_whose_zero_is_white_keeps_its_values_and_says_so(tmp_path):
    pixels = ramp()
    write_series(tmp_path, pixels, edit=setting(PhotometricInterpretation="MONOCHROME1"))
    (note,) = require_equal(tmp_path, pixels, Grid()).notes
    assert note.startswith("MONOCHROME1: ")


def test_plain_pixels_of_an_unknown_transfer_syntax_are_refused(tmp_path):
    # GE's private syntax has a header of little endian and pixels of big endian.
    path = save(slice_dataset(ramp()[0]), tmp_path / "a.dcm")
    path.write_bytes(path.read_bytes().replace(b"1.2.840.10008.1.2.1\0", b"1.2.840.113619.5.2\0\0", 1))
    with pytest.raises(CaseError, match=r"a\.dcm: .*unknown codec \(1\.2\.840\.113619\.5\.2\).* order of their bytes"):
        read(path)


def test_rows_of_zero_are_refused_by_the_grid_as_well(tmp_path):
    write_series(tmp_path, ramp(), edit=setting(Rows=0))
    refused(tmp_path, "states 0 rows and 5 columns")


@pytest.mark.parametrize("grid", [Grid(), FACING_DOWN, Grid(step=(0.0, 0.0, -2.5))])
def test_a_gap_is_named_by_the_z_of_its_slices_whichever_way_the_normal_points(tmp_path, grid):
    paths = write_series(tmp_path, ramp((6, 6, 7)), grid)
    ends = sorted(grid.origin[2] + index * grid.step[2] for index in (2, 4))
    paths[3].unlink()
    refused(tmp_path, re.escape(f"1 slice seems missing between z={ends[0]:g} and z={ends[1]:g} mm"))


@pytest.mark.parametrize(
    ("step", "elements", "note"),
    [
        (
            90.0,
            {"SliceThickness": "2"},
            "slices of 2 mm lie 90 mm apart: what is between was not scanned, or is missing",
        ),
        (5.0, {"SpacingBetweenSlices": "2.5"}, "slices lie 5 mm apart, and SpacingBetweenSlices says 2.5"),
        (5.0, {"SpacingBetweenSlices": "5"}, None),
        (5.0, {"SpacingBetweenSlices": "-5"}, None),
        (5.0, {"SliceThickness": "0"}, None),
    ],
)
def test_steps_that_the_header_contradicts_are_in_doubt(tmp_path, step, elements, note):
    write_series(tmp_path, ramp((2, 6, 7)), Grid(step=(0.0, 0.0, step)), edit=setting(**elements))
    notes = read(tmp_path).notes
    assert len(notes) == (note is not None)
    assert note is None or notes[0].startswith(note)


def test_cosines_that_are_a_little_too_long_do_not_stretch_a_lone_slice(tmp_path):
    long = Grid(across=(1.008, 0.0, 0.0), down=(0.0, 1.008, 0.0))
    write_series(tmp_path, ramp((1, 6, 7)), long)
    np.testing.assert_allclose(read_grid(tmp_path).spacing, (0.7, 0.7, 3.0))


def test_options_that_mean_nothing_of_an_image_are_refused(tmp_path):
    write_series(tmp_path / "ct", ramp())
    picture = still(tmp_path / "a.dcm")
    refused(tmp_path / "ct", "is no picture, .*read it without voi", voi=True)
    refused(tmp_path / "ct", "holds no stacks of frames; choose among series with series=UID", stack=1)
    refused(picture, "is no PET volume; read it without suv", suv=True)
    refused(picture, "holds no stacks of frames", stack=2)


def test_a_mask_beside_its_series_has_the_grid_of_the_series(tmp_path):
    from medimg_eval.imaging.dicom.writing.images import write_segmentation
    from medimg_eval.imaging.dicom.writing.images import write_series as written

    paths = written(tmp_path / "ct", Image(np.zeros((1, 5, 6, 7), np.int16), np.diag([1.0, 1.0, 2.0, 1.0])))
    grid = read_grid(tmp_path / "ct")
    labels = np.zeros(grid.shape, np.uint8)
    labels[1:3, 2:4, 2:4] = 1
    write_segmentation(tmp_path / "seg.dcm", Mask(labels, grid.affine), paths, names={1: "lesion"})
    reference = MaskFile(tmp_path)
    mask = reference.read()
    np.testing.assert_array_equal(mask.labels, labels)
    assert reference.geometry().difference(mask.geometry) is None
    # By itself it is the box that its frames span.
    alone = MaskFile(tmp_path / "seg.dcm")
    assert alone.read().labels.shape == alone.geometry().shape == (5, 6, 2)


def test_pydicom_logs_no_values(tmp_path):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.getLogger().addHandler(handler)
    try:
        dataset = slice_dataset(ramp()[0])
        value = b"Zxqwvy^O'Bri\"en "
        dataset._dict[Tag("KVP")] = RawDataElement(Tag("KVP"), "DS", len(value), value, 0, False, True)
        path = save(dataset, tmp_path / "a.dcm")
        image = read(path)
    finally:
        logging.getLogger().removeHandler(handler)
    assert "kVp" not in image.attributes
    assert "Zxqwvy" not in stream.getvalue() + repr(image.notes)
    logging.getLogger("pydicom").addHandler(handler)
    try:
        logging.getLogger("pydicom").warning("Invalid value for VR UI: '%s'. See there", "Zxqwvy^O'Brien")
    finally:
        logging.getLogger("pydicom").removeHandler(handler)
    assert stream.getvalue().endswith("Invalid value for VR UI: '...'. See there\n")


@pytest.mark.parametrize(("name", "value"), [("RescaleIntercept", "-1024"), ("RescaleSlope", "2")])
def test_a_slice_that_lacks_the_rescale_of_the_others_is_named(tmp_path, name, value):
    def edit(dataset, index):
        setattr(dataset, name, value)
        if index == 2:
            delattr(dataset, name)

    paths = write_series(tmp_path, ramp(), edit=edit)
    with pytest.raises(CaseError, match=rf"{paths[2].name}: has no {name}, and other slices have one"):
        read(tmp_path)


def test_slices_without_a_rescale_that_would_change_nothing_stay(tmp_path):
    def edit(dataset, index):
        if index == 2:
            del dataset.RescaleIntercept, dataset.RescaleSlope

    write_series(tmp_path, ramp(), edit=edit)
    require_equal(tmp_path, ramp(), Grid())


def test_a_position_that_lies_miles_away_is_not_reached_by_resampling(tmp_path):
    pixels = ramp((6, 6, 7))
    paths = write_series(tmp_path, pixels)
    far = slice_dataset(pixels[5], position=(-100, -80, 1e9))
    save(far, paths[5])
    refused(tmp_path, "would make 399999985 slices of 6; mend the positions", gaps="resample")
    assert read(tmp_path, gaps="largest-run").array.shape[-1] == 5


def test_a_size_beyond_this_machines_memory_is_refused_before_it_is_asked_for(tmp_path, monkeypatch):
    from medimg_eval.imaging import voxel_data as payload

    write_series(tmp_path, ramp(), edit=setting(Rows=60000, Columns=60000))
    real = os.sysconf
    monkeypatch.setattr(payload.os, "sysconf", lambda name: 1 if name == "SC_PHYS_PAGES" else real(name))
    with pytest.raises(CaseError, match=r"\.dcm: its header asks for 40 GiB of voxels"):
        read(tmp_path)
