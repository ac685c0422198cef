"""DICOM SR by TID 1500, as a product would send them."""

import warnings

from pydicom.dataset import Dataset
from pydicom.uid import CTImageStorage, generate_uid


def write_report(path, case, groups):
    """Writes a report; groups are (finding, site, [(name, value, unit)], [(name, value)]), all but numbers codes."""
    import highdicom as hd
    from pydicom.sr.codedict import codes

    image = Dataset()
    image.SOPClassUID, image.SOPInstanceUID = CTImageStorage, generate_uid()
    image.StudyInstanceUID, image.SeriesInstanceUID = generate_uid(), generate_uid()
    image.PatientID, image.AccessionNumber, image.PatientName = f"P-{case}", f"ACC-{case}", "Made^Up"
    image.Modality, image.Rows, image.Columns = "CT", 4, 4
    for name in ("PatientBirthDate", "PatientSex", "StudyDate", "StudyTime", "StudyID", "ReferringPhysicianName"):
        setattr(image, name, None)
    device = hd.sr.DeviceObserverIdentifyingAttributes(uid=generate_uid(), name="Product")
    observer = hd.sr.ObserverContext(observer_type=codes.DCM.Device, observer_identifying_attributes=device)
    measured = [
        hd.sr.MeasurementsAndQualitativeEvaluations(
            tracking_identifier=hd.sr.TrackingIdentifier(uid=generate_uid(), identifier=f"group {number}"),
            finding_type=finding,
            finding_sites=[hd.sr.FindingSite(site)] if site else None,
            measurements=[hd.sr.Measurement(name=name, value=value, unit=unit) for name, value, unit in numbers],
            qualitative_evaluations=[hd.sr.QualitativeEvaluation(name, value) for name, value in words],
            source_images=[hd.sr.SourceImageForMeasurementGroup(image.SOPClassUID, image.SOPInstanceUID)],
        )
        for number, (finding, site, numbers, words) in enumerate(groups)
    ]
    report = hd.sr.MeasurementReport(
        observation_context=hd.sr.ObservationContext(observer_device_context=observer),
        procedure_reported=codes.LN.CTUnspecifiedBodyRegion,
        imaging_measurements=measured,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hd.sr.ComprehensiveSR(
            evidence=[image],
            content=report,
            series_instance_uid=generate_uid(),
            series_number=1,
            sop_instance_uid=generate_uid(),
            instance_number=1,
            manufacturer="Maker",
            is_complete=True,
        ).save_as(path)
    return path
