"""Images and masks to DICOM files: CT, MR and PET series, X-ray pictures, DICOM-SEG."""
