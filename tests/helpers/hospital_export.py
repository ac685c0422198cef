"""A DICOM export as a PACS writes it: several series, and what lies beside them."""

import numpy as np
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, generate_uid

from medimg_eval.case import Image
from medimg_eval.imaging.dicom import write_series

KEY_OBJECT = "1.2.840.10008.5.1.4.1.1.88.59"
PRESENTATION = "1.2.840.10008.5.1.4.1.1.11.1"
CAPTURE = "1.2.840.10008.5.1.4.1.1.7"
SHAPE = (16, 14, 5)


def body(seed):
    """CT, (1, i, j, k): air, a block of 40 HU, and in it one of 300 HU; noise of 5 HU."""
    array = np.full((1, *SHAPE), -1000, np.int16)
    array[0, 2:14, 2:12] = 40
    array[0, 6:10, 5:9, 1:4] = 300
    array += np.random.default_rng(seed).normal(0, 5, array.shape).astype(np.int16)
    affine = np.diag([-0.8, -0.7, 2.5, 1.0])
    affine[:3, 3] = (50, 40, -100)
    return Image(array, affine, "CT")


def write_export(folder):
    """Returns the images of the arterial (series 2) and the portal phase (series 3), by their SeriesNumber."""
    images = {}
    for number, name in ((2, "Abdomen ARTERIAL"), (3, "Abdomen PORTAL venous")):
        place = folder / "DICOM" / "PA000001" / "ST000001" / f"SE00000{number}"
        images[number] = body(number)
        same = {"StudyInstanceUID": "1.2.3.4", "SeriesNumber": number}
        write_series(place, images[number], names="shuffled", seed=number, description=name, **same)
    place = folder / "DICOM" / "PA000001" / "ST000001" / "SE000009"
    place.mkdir()
    write_object(place / "IM000001", "KO", KEY_OBJECT)
    write_object(place / "IM000002", "PR", PRESENTATION)
    screen = {"Rows": 8, "Columns": 8, "SamplesPerPixel": 1, "PhotometricInterpretation": "MONOCHROME2"}
    screen |= {"BitsAllocated": 8, "BitsStored": 8, "HighBit": 7, "PixelRepresentation": 0, "PixelData": bytes(64)}
    write_object(place / "IM000003", "CT", CAPTURE, SeriesNumber=99, **screen)
    (folder / "AUTORUN").mkdir()
    write_logo(folder / "AUTORUN" / "logo.png")
    (folder / "README.pdf").write_bytes(b"%PDF-1.4\n%%EOF\n")
    (folder / "autorun.inf").write_text("[autorun]\nopen=viewer.exe\n")
    return images


def write_object(path, modality, sop_class, **more):
    one = Dataset()
    one.file_meta = FileMetaDataset()
    one.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    one.SOPClassUID = one.file_meta.MediaStorageSOPClassUID = sop_class
    one.SOPInstanceUID = one.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    one.StudyInstanceUID, one.SeriesInstanceUID, one.Modality = "1.2.3.4", generate_uid(), modality
    one.PatientID, one.PatientName = "PHANTOM", "PHANTOM"
    for keyword, value in more.items():
        setattr(one, keyword, value)
    one.save_as(path, enforce_file_format=True)


def write_logo(path):
    import imagecodecs

    path.write_bytes(imagecodecs.png_encode(np.zeros((4, 4, 3), np.uint8)))
