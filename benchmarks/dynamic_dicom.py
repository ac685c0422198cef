"""Reads a made-up fMRI scan of 200 volumes: as Siemens mosaics, and as one file a slice.

Beside dcm2niix (the command) and dicom2nifti, where they are installed: both convert to NIfTI, whose voxels are then
read. Wall and CPU time, those of child processes included, and whether all voxels, the affine and the step in time are
those of the truth.

    python benchmarks/dynamic_dicom.py --data DIR
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

COUNT, SLICES, SIDE, TILES = 200, 36, 64, 6
STEP = 2.0


def truth() -> tuple[Any, Any]:
    """Voxels, (volume, slice, row, column), and the affine to RAS+ mm."""
    rng = np.random.default_rng(0)
    base = rng.integers(0, 3000, (SLICES, SIDE, SIDE), dtype=np.uint16)
    voxels = np.stack([np.roll(base, moment, axis=2) + np.uint16(moment) for moment in range(COUNT)])
    affine = np.diag([-3.0, -3.0, 3.3, 1.0])
    affine[:3, 3] = (96, 90, -50)
    return voxels, affine


def generate(data: Path) -> None:
    """Writes both forms, unless an earlier run left them there."""
    if (data / "complete").exists():
        return
    voxels, _ = truth()
    for moment in range(COUNT):
        side = TILES * SIDE
        frame = voxels[moment].reshape(TILES, TILES, SIDE, SIDE).swapaxes(1, 2).reshape(side, side)
        corner = np.array([-96, -90, -50.0]) - [3 * (side - SIDE) / 2, 3 * (side - SIDE) / 2, 0]
        write(data / "mosaics" / f"{moment:05d}.dcm", frame, corner, moment, moment, mosaic=True)
        for place in range(SLICES):
            at = np.array([-96, -90, -50 + 3.3 * place])
            number = moment * SLICES + place
            write(data / "slices" / f"{number:05d}.dcm", voxels[moment, place], at, moment, number, mosaic=False)
    (data / "complete").touch()


def write(path: Path, frame: Any, position: Any, moment: int, number: int, *, mosaic: bool) -> None:
    """Writes one file as a scanner of Siemens would."""
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, MRImageStorage, generate_uid

    path.parent.mkdir(parents=True, exist_ok=True)
    one = Dataset()
    one.file_meta = FileMetaDataset()
    one.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    one.SOPClassUID = one.file_meta.MediaStorageSOPClassUID = MRImageStorage
    one.SOPInstanceUID = one.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    one.SeriesInstanceUID, one.StudyInstanceUID, one.FrameOfReferenceUID = "1.2.3.4", "1.2.3", "1.2.3.5"
    one.Modality, one.PatientName, one.PatientID, one.Manufacturer = "MR", "Phantom", "1", "SIEMENS"
    one.ManufacturerModelName, one.SeriesDescription, one.ProtocolName = "Phantom", "fmri", "fmri"
    one.ImageType = ["ORIGINAL", "PRIMARY", "M", "ND", *(["MOSAIC"] if mosaic else [])]
    one.StudyDate, one.StudyTime, one.SeriesNumber = "20240101", "100000", 1
    one.InstanceNumber, one.AcquisitionNumber = number + 1, moment + 1
    seconds = moment * STEP
    one.AcquisitionDate = "20240101"
    one.AcquisitionTime = f"10{int(seconds) // 60:02d}{seconds % 60:05.2f}"
    one.RepetitionTime, one.EchoTime, one.SliceThickness, one.SpacingBetweenSlices = "2000", "30", "3.3", "3.3"
    one.MRAcquisitionType, one.ScanningSequence, one.SequenceVariant, one.FlipAngle = "2D", "EP", "SK", "90"
    one.AcquisitionMatrix = [SIDE, 0, 0, SIDE]
    one.ImagePositionPatient = [f"{value:.6f}" for value in position]
    one.ImageOrientationPatient, one.PixelSpacing = ["1", "0", "0", "0", "1", "0"], ["3", "3"]
    one.Rows, one.Columns, one.SamplesPerPixel = *frame.shape, 1
    one.PhotometricInterpretation, one.PixelRepresentation = "MONOCHROME2", 0
    one.BitsAllocated, one.BitsStored, one.HighBit = 16, 12, 11
    if mosaic:
        block = one.private_block(0x19, "SIEMENS MR HEADER", create=True)
        block.add_new(0x0A, "US", SLICES)
        lines = ["### ASCCONV BEGIN ###", f"sSliceArray.lSize = {SLICES}"]
        lines += [f"sSliceArray.asSlice[{at}].sPosition.dTra = {-50 + 3.3 * at}" for at in range(SLICES)]
        text = "\n".join([*lines, "### ASCCONV END ###"]).encode()
        one.private_block(0x29, "SIEMENS CSA HEADER", create=True).add_new(0x20, "OB", text + b" " * (len(text) % 2))
    one.PixelData = np.ascontiguousarray(frame).tobytes()
    one["PixelData"].VR = "OW"
    one.save_as(path, enforce_file_format=True)


def ours(folder: Path) -> tuple[Any, Any, float]:
    from medimg_eval.imaging import read

    image = read(folder)
    return image.array, image.affine, image.channels.step if image.channels and image.channels.step else 0.0


def converted(folder: Path, command: str) -> tuple[Any, Any, float]:
    import nibabel as nib

    with tempfile.TemporaryDirectory() as out:
        if command == "dcm2niix":
            words = ["dcm2niix", "-z", "n", "-b", "n", "-f", "out", "-o", out, str(folder)]
            subprocess.run(words, check=True, capture_output=True)
        else:
            import dicom2nifti

            dicom2nifti.dicom_series_to_nifti(str(folder), f"{out}/out.nii", reorient_nifti=False)
        image: Any = nib.load(next(Path(out).glob("*.nii")))
        array = np.asarray(image.dataobj)
        return np.moveaxis(array, 3, 0), image.affine, float(image.header.get_zooms()[3])


def is_right(found: tuple[Any, Any, float]) -> bool:
    """Whether voxels, affine and step are the truth's, whichever way the axes run."""
    import nibabel as nib

    voxels, affine = truth()
    want = nib.as_closest_canonical(nib.Nifti1Image(voxels.transpose(3, 2, 1, 0).astype(np.float32), affine))
    have = nib.as_closest_canonical(nib.Nifti1Image(np.moveaxis(found[0], 0, 3).astype(np.float32), found[1]))
    same = have.shape == want.shape and np.array_equal(have.dataobj, want.dataobj)
    return same and np.abs(have.affine - want.affine).max() < 0.01 and abs(found[2] - STEP) < 1e-6


def measure(reader: str, folder: Path, repeat: int) -> dict[str, Any]:
    """The best of a few reads, after one that is not counted."""
    warnings.simplefilter("ignore")
    read = ours if reader == "medimg_eval" else lambda path: converted(path, reader)
    right = is_right(read(folder))
    walls, cpus = [], []
    for _ in range(repeat):
        wall, before = time.perf_counter(), os.times()
        read(folder)
        after = os.times()
        walls.append(time.perf_counter() - wall)
        cpus.append(sum(after[:4]) - sum(before[:4]))
    return {"wall s": round(min(walls), 3), "CPU s": round(min(cpus), 3), "right": right}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="where to keep what is read, for the next run")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one[0], Path(options.one[1]), options.repeat)))
        return
    readers = ["medimg_eval", *(["dcm2niix"] if shutil.which("dcm2niix") else [])]
    readers += ["dicom2nifti"] if importlib.util.find_spec("dicom2nifti") else []
    with tempfile.TemporaryDirectory() as temporary:
        data = options.data or Path(temporary)
        generate(data)
        for form in ("mosaics", "slices"):
            for reader in readers:
                words = [sys.executable, __file__, "--repeat", str(options.repeat), "--one", reader, str(data / form)]
                done = subprocess.run(words, check=False, capture_output=True, text=True)
                said = done.stdout.strip() if done.returncode == 0 else done.stderr.strip().splitlines()[-1]
                print(f"{form:8} {reader:12} {said}")


if __name__ == "__main__":
    main()
