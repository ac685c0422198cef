import math

import numpy as np
import pydicom
import pytest
from pydicom.sr.codedict import codes
from pydicom.sr.coding import Code

from medimg_eval.case import Image, Mask
from medimg_eval.errors import CaseError
from medimg_eval.imaging.dicom.reports import Measurement, measurements
from medimg_eval.imaging.dicom.writing.images import write_segmentation, write_series

hd = pytest.importorskip("highdicom")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A TID 1500 report of a nodule outlined on a slice, a segmented one, and one measured as a whole."""
    folder = tmp_path_factory.mktemp("sr")
    image = Image(np.zeros((1, 6, 6, 3), np.int16), np.diag([-1.0, -1, 2, 1]))
    series = write_series(folder / "series", image, PatientName="")
    labels = np.zeros((6, 6, 3), np.uint8)
    labels[2:4, 2:4, 1] = 1
    seg = pydicom.dcmread(
        write_segmentation(folder / "seg.dcm", Mask(labels, image.affine), series, names={1: "nodule"})
    )
    ct = pydicom.dcmread(series[1])
    lung = hd.sr.FindingSite(Code("39607008", "SCT", "Lung"))
    nodule = Code("27925004", "SCT", "Nodule")
    mm = codes.UCUM.Millimeter

    outline = hd.sr.ImageRegion(
        hd.sr.GraphicTypeValues.POLYLINE,
        np.array([(1.0, 1), (4, 1), (4, 4), (1, 1)]),
        hd.sr.SourceImageForRegion(ct.SOPClassUID, ct.SOPInstanceUID),
    )
    first = hd.sr.PlanarROIMeasurementsAndQualitativeEvaluations(
        hd.sr.TrackingIdentifier("1.2.3", "N1"),
        referenced_region=outline,
        finding_type=nodule,
        finding_sites=[lung],
        measurements=[
            hd.sr.Measurement(codes.SCT.Diameter, 7.25, mm),
            hd.sr.Measurement(Code("112031", "DCM", "Attenuation Coefficient"), -50.5, Code("[hnsf'U]", "UCUM", "HU"),
                              derivation=codes.SCT.Mean),
        ],
        qualitative_evaluations=[
            hd.sr.QualitativeEvaluation(Code("111037", "DCM", "Margins"), Code("129738008", "SCT", "Lobular")),
        ],
    )  # fmt: skip
    second = hd.sr.VolumetricROIMeasurementsAndQualitativeEvaluations(
        hd.sr.TrackingIdentifier("1.2.4", "N2"),
        referenced_segment=hd.sr.ReferencedSegment(
            seg.SOPClassUID, seg.SOPInstanceUID, 1,
            source_images=[hd.sr.SourceImageForSegmentation(ct.SOPClassUID, ct.SOPInstanceUID)],
        ),
        measurements=[hd.sr.Measurement(codes.SCT.Volume, 8, codes.UCUM.CubicMillimeter, finding_sites=[lung])],
    )  # fmt: skip
    third = hd.sr.MeasurementsAndQualitativeEvaluations(
        hd.sr.TrackingIdentifier("1.2.5", "N3"),
        finding_type=nodule,
        measurements=[hd.sr.Measurement(codes.SCT.Length, 3, mm)],
        source_images=[hd.sr.SourceImageForMeasurementGroup(ct.SOPClassUID, ct.SOPInstanceUID)],
    )
    observer = hd.sr.ObserverContext(codes.DCM.Device, hd.sr.DeviceObserverIdentifyingAttributes("1.2.6"))
    content = hd.sr.MeasurementReport(
        hd.sr.ObservationContext(observer_device_context=observer),
        procedure_reported=codes.LN.CTUnspecifiedBodyRegion,
        imaging_measurements=[first, second, third],
        referenced_images=[ct],
    )
    file = hd.sr.ComprehensiveSR([ct, seg], content[0], "1.2.7", 1, "1.2.8", 1, manufacturer="a")
    file.save_as(folder / "sr.dcm")
    return folder / "sr.dcm", str(ct.SOPInstanceUID), str(seg.SOPInstanceUID)


def test_every_measurement_is_read_with_its_lesion_site_unit_and_image(report):
    path, ct, seg = report
    shared = {"tracking": "N1", "finding": "Nodule", "site": "Lung", "images": (ct,)}
    assert measurements(path) == [
        Measurement("Diameter", "SCT:81827009", 7.25, "mm", **shared),
        Measurement("Attenuation Coefficient", "DCM:112031", -50.5, "[hnsf'U]", derivation="Mean", **shared),
        Measurement("Volume", "SCT:118565006", 8, "mm3", tracking="N2", site="Lung", images=(seg, ct), segments=(1,)),
        Measurement("Length", "SCT:410668003", 3, "mm", tracking="N3", finding="Nodule", images=(ct,)),
    ]


def number(item, meaning):
    """The first number of that name below a content item."""
    for child in item.get("ContentSequence", []):
        if child.ValueType == "NUM" and child.ConceptNameCodeSequence[0].CodeMeaning == meaning:
            return child
        found = number(child, meaning)
        if found is not None:
            return found
    return None


def test_a_value_that_is_not_stated_is_nan_and_never_zero(report, tmp_path):
    dataset = pydicom.dcmread(report[0])
    number(dataset, "Diameter").MeasuredValueSequence = []
    dataset.save_as(tmp_path / "sr.dcm")
    one = measurements(tmp_path / "sr.dcm")[0]
    assert math.isnan(one.value)
    assert (one.name, one.unit) == ("Diameter", "")


def test_a_damaged_value_is_refused_in_words(report, tmp_path):
    dataset = pydicom.dcmread(report[0])
    measured = number(dataset, "Diameter").MeasuredValueSequence[0]
    for keyword in ("NumericValue", "FloatingPointValue"):
        if keyword in measured:
            delattr(measured, keyword)
    dataset.save_as(tmp_path / "sr.dcm")
    with pytest.raises(CaseError, match=r"sr\.dcm: the measurement 'Diameter' holds no number"):
        measurements(tmp_path / "sr.dcm")


def test_the_images_a_report_lists_are_no_measurements(report):
    # highdicom describes the image it refers to by its spacing, among others.
    assert number(pydicom.dcmread(report[0]), "Horizontal Pixel Spacing") is not None
    assert "Horizontal Pixel Spacing" not in [one.name for one in measurements(report[0])]


def test_a_report_without_numbers_has_no_measurements_and_an_image_is_refused(tmp_path):
    assert measurements(pydicom.data.get_testdata_file("reportsi.dcm", download=False)) == []
    (path,) = write_series(tmp_path, Image(np.zeros((1, 3, 3, 1), np.int16), np.eye(4)))
    with pytest.raises(CaseError, match=r"0001\.dcm: is no structured report; .* modality CT"):
        measurements(path)
