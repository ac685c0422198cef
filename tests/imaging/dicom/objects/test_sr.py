"""Structured reports: what is measured, assessed and found, and what is no such report."""

from __future__ import annotations

import pydicom
import pytest

from medimg_eval.errors import CaseError
from medimg_eval.imaging.dicom import is_structured_report, read_structured_report
from tests.helpers.structured_reports import write_report

hd = pytest.importorskip("highdicom")

from pydicom.sr.codedict import codes  # noqa: E402 - of what may be missing

ASSESSMENT = hd.sr.CodedConcept("A1", "99TEST", "Assessment")
BENIGN = hd.sr.CodedConcept("B1", "99TEST", "Benign")


@pytest.fixture
def path(tmp_path):
    numbers = [
        (codes.SCT.Volume, 12.5, codes.UCUM.CubicMillimeter),
        (codes.DCM.ProbabilityOfCancer, 80, codes.UCUM.Percent),
    ]
    groups = [(codes.SCT.Mass, codes.SCT.Liver, numbers, [(ASSESSMENT, BENIGN)]), (None, None, [], [])]
    return write_report(tmp_path / "a.dcm", "a", groups)


def test_a_report_is_read(path):
    report = read_structured_report(path)
    assert report.keys["accession"] == "ACC-a"
    assert report.keys["patient"] == "P-a"
    mass, nothing = report.groups
    assert mass.name == "Mass (Liver)"
    assert [one[:3] for one in mass.measurements] == [("Volume", 12.5, "mm3"), ("Probability of cancer", 0.8, "1")]
    assert [one.certainty for one in mass.measurements] == [False, True]
    assert mass.evaluations == {"Assessment": "Benign"}
    assert nothing.name == "group 1"
    assert nothing.finding == ""


def test_a_report_in_which_nothing_was_found_has_no_groups(path, tmp_path):
    dataset = pydicom.dcmread(path)
    (measurements,) = (item for item in dataset.ContentSequence if item.ValueType == "CONTAINER")
    del measurements.ContentSequence
    dataset.save_as(tmp_path / "nothing.dcm")
    assert read_structured_report(tmp_path / "nothing.dcm").groups == ()


def test_what_is_no_report_is_said(path, tmp_path):
    assert is_structured_report(path)
    (tmp_path / "note.txt").write_text("no DICOM")
    assert not is_structured_report(tmp_path / "note.txt")
    with pytest.raises(CaseError, match="cannot be read as DICOM"):
        read_structured_report(tmp_path / "note.txt")
    dataset = pydicom.dcmread(path)
    dataset.ContentTemplateSequence[0].TemplateIdentifier = "2000"
    dataset.save_as(tmp_path / "other.dcm")
    with pytest.raises(CaseError, match="follows template 2000; measurements are read of TID 1500"):
        read_structured_report(tmp_path / "other.dcm")
    del dataset.ContentSequence[-1].ContentSequence[0].ContentSequence[1].ConceptNameCodeSequence
    dataset.ContentTemplateSequence[0].TemplateIdentifier = "1500"
    dataset.save_as(tmp_path / "broken.dcm")
    with pytest.raises(CaseError, match="does not keep to TID 1500"):
        read_structured_report(tmp_path / "broken.dcm")
    dataset.SOPClassUID = pydicom.uid.CTImageStorage
    dataset.save_as(tmp_path / "image.dcm")
    with pytest.raises(CaseError, match="is no Enhanced or Comprehensive SR"):
        read_structured_report(tmp_path / "image.dcm")
