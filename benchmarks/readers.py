"""How fast series, volumes and further formats are read, and in how much memory, beside what people use.

    python benchmarks/readers.py [--slices 300] [--size 512] [--repeat 3] [--rounds 3] [--parts series volumes formats]
                                 [--data FOLDER] [--out RESULTS.json]

An oblique CT of 12 bits in 16 with noise of 12 HU, its files named at random, in five codings; the same voxels, and
labels, as NIfTI; and what `reader_formats.py` makes. Each reader runs in a process of its own, reads once to warm the
page cache, and counts its best of a few reads: wall seconds, CPU seconds (of programs that it starts, too), and the
most memory the process held above what it held before. Readers of one thing take turns; `CPU / ours` is the median over
rounds. Whether sampled voxels of every slice have the right value in the right place is checked in patient space.
"""

import argparse
import importlib.metadata
import json
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import reader_formats
from reader_formats import IN_MONAI, OURS

ALONE = "imagecodecs alone"  # decodes every slice and does nothing else
CODINGS = ("raw", "RLE", "JPEG-LS", "JPEG lossless .70", "JPEG 2000")
VOLUMES = ("packed/ct.nii.gz", "packed/labels.nii.gz", "plain/ct.nii")  # ITK takes a .nii that lies beside a .nii.gz
SERIES_READERS = (OURS, IN_MONAI, "MONAI (ITK)", "MONAI (pydicom)", "SimpleITK", "pydicom + sort")
PARTS = ("series", "volumes", "formats")
VOLUME_READERS = (OURS, IN_MONAI, "MONAI", "nibabel", "SimpleITK")
LIBRARIES = ("numpy", "monai", "itk", "SimpleITK", "pydicom", "nibabel", "imagecodecs", "isal")
LPS = np.diag([-1.0, -1.0, 1.0, 1.0])


def truth(data: Path) -> tuple[Any, Any]:
    """Voxels, (column, row, slice), memory-mapped, and the affine to RAS+ mm."""
    return np.load(data / "ct.npy", mmap_mode="r"), np.load(data / "affine.npy")


def generate(data: Path, slices: int, size: int) -> None:
    """Makes what is read, unless an earlier run left it there."""
    if (data / "complete").exists():
        return
    import nibabel as nib

    rng = np.random.default_rng(0)
    row, column = np.mgrid[:size, :size] / size - 0.5
    body = np.hypot(row * 1.3, column) < 0.4
    stored = np.empty((slices, size, size), np.uint16)
    for index in range(slices):
        tissue = np.where(body, 1060 + 400 * np.sin(9 * row + index / 40) * (np.cos(13 * column) > 0.3), 24)
        stored[index] = np.clip(tissue + rng.normal(0, 12, tissue.shape), 0, 4095)
    turn = np.array([[0.9, -0.4359, 0.0], [0.4359, 0.9, 0.0], [0.0, 0.0, 1.0]])
    turn = turn @ np.array([[1.0, 0.0, 0.0], [0.0, 0.94, -0.3412], [0.0, 0.3412, 0.94]])
    cosines = np.round(np.linalg.qr(turn)[0], 8)
    normal = np.cross(cosines[:, 0], cosines[:, 1])
    for coding in CODINGS:
        write_series(data / coding, coding, stored, cosines, 1.25 * normal)
    affine = np.eye(4)
    affine[:3, :3] = np.stack([cosines[:, 0] * 0.7, cosines[:, 1] * 0.7, 1.25 * normal], axis=1)
    affine[:3, 3] = (-120, -90, 33)
    affine = LPS @ affine
    volume = (stored.astype(np.int16) - 1024).transpose(2, 1, 0)
    np.save(data / "affine.npy", affine)
    np.save(data / "ct.npy", volume)
    for name, array in (("ct", volume), ("labels", (volume > 0).astype(np.uint8) + (volume > 300))):
        image = nib.Nifti1Image(array, affine)
        image.header.set_xyzt_units("mm")
        for folder, suffix in (("packed", ".nii.gz"), ("plain", ".nii")):
            (data / folder).mkdir(exist_ok=True)
            nib.save(image, data / folder / f"{name}{suffix}")
    (data / "complete").touch()


def write_series(folder: Path, coding: str, stored: Any, cosines: Any, step: Any) -> None:
    """Writes one file a slice, named at random."""
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.encaps import encapsulate
    from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

    folder.mkdir(parents=True, exist_ok=True)
    series, study, frame = generate_uid(), generate_uid(), generate_uid()
    names = np.random.default_rng(1).permutation(len(stored))
    for index, plane in enumerate(stored):
        one = Dataset()
        one.file_meta = FileMetaDataset()
        one.SOPClassUID = one.file_meta.MediaStorageSOPClassUID = CTImageStorage
        one.SOPInstanceUID = one.file_meta.MediaStorageSOPInstanceUID = generate_uid()
        one.SeriesInstanceUID, one.StudyInstanceUID, one.FrameOfReferenceUID = series, study, frame
        one.Modality, one.PatientName, one.PatientID, one.Manufacturer = "CT", "Phantom", "1", "synthetic"
        one.StudyDate, one.SeriesNumber, one.InstanceNumber, one.SliceThickness = "20240101", 1, index + 1, "2"
        one.ImagePositionPatient = [f"{x:.10g}"[:16] for x in np.array([-120, -90, 33]) + index * step]
        one.ImageOrientationPatient = [f"{x:.8f}" for x in cosines.T[:2].ravel()]
        one.PixelSpacing, one.RescaleSlope, one.RescaleIntercept = ["0.7", "0.7"], "1", "-1024"
        one.Rows, one.Columns, one.SamplesPerPixel = *plane.shape, 1
        one.PhotometricInterpretation, one.PixelRepresentation = "MONOCHROME2", 0
        one.BitsAllocated, one.BitsStored, one.HighBit = 16, 12, 11
        syntax, data = encoded(coding, plane)
        one.file_meta.TransferSyntaxUID = syntax
        one.PixelData = data if syntax == ExplicitVRLittleEndian else encapsulate([data])
        one["PixelData"].VR = "OW" if syntax == ExplicitVRLittleEndian else "OB"
        one["PixelData"].is_undefined_length = syntax != ExplicitVRLittleEndian
        one.save_as(folder / f"{names[index]:05d}.dcm", implicit_vr=False, little_endian=True, enforce_file_format=True)


def encoded(coding: str, plane: Any) -> tuple[str, bytes]:
    """Transfer syntax and bytes of one slice."""
    import imagecodecs
    from pydicom.pixels import get_encoder
    from pydicom.uid import ExplicitVRLittleEndian, RLELossless

    if coding == "raw":
        return ExplicitVRLittleEndian, plane.tobytes()
    if coding == "JPEG-LS":
        return "1.2.840.10008.1.2.4.80", imagecodecs.jpegls_encode(plane)
    if coding == "JPEG lossless .70":
        return "1.2.840.10008.1.2.4.70", imagecodecs.jpeg8_encode(plane, lossless=True, bitspersample=12)
    if coding == "JPEG 2000":
        options: dict[str, Any] = {"level": 0, "reversible": True, "codecformat": "j2k", "bitspersample": 12}
        return "1.2.840.10008.1.2.4.90", imagecodecs.jpeg2k_encode(plane, **options)
    options = {"samples_per_pixel": 1, "bits_allocated": 16, "bits_stored": 12, "pixel_representation": 0}
    options |= {"photometric_interpretation": "MONOCHROME2", "number_of_frames": 1}
    rows, columns = plane.shape
    return RLELossless, get_encoder(RLELossless).encode(plane, rows=rows, columns=columns, **options)


def ours(path: Path) -> tuple[Any, Any]:
    from medimg_eval.imaging import read, read_mask

    if path.name == "labels.nii.gz":
        mask = read_mask(path)
        return mask.labels, mask.affine
    image = read(path)
    return image.array[0], image.affine


def monai(reader: Any) -> Callable[[Path], tuple[Any, Any]]:
    from monai.transforms import LoadImage

    load = LoadImage(reader, image_only=True)

    def run(path: Path) -> tuple[Any, Any]:
        image = load(path)
        return image.array, image.affine.numpy()

    return run


def simpleitk(path: Path) -> tuple[Any, Any]:
    import SimpleITK as sitk  # noqa: N813

    if path.is_dir():
        reader = sitk.ImageSeriesReader()
        reader.SetFileNames(reader.GetGDCMSeriesFileNames(str(path)))
        image = reader.Execute()
    else:
        image = sitk.ReadImage(str(path))
    affine = np.eye(4)
    affine[:3, :3] = np.array(image.GetDirection()).reshape(3, 3) * image.GetSpacing()
    affine[:3, 3] = image.GetOrigin()
    return sitk.GetArrayViewFromImage(image).T, LPS @ affine, image  # the view lives as long as the image


def pydicom_and_sort(path: Path) -> tuple[Any, Any]:
    from pydicom import dcmread

    slices = [dcmread(name) for name in path.iterdir()]
    cosines = np.array(slices[0].ImageOrientationPatient).reshape(2, 3)
    normal = np.cross(*cosines)
    slices.sort(key=lambda one: np.dot(one.ImagePositionPatient, normal))
    volume = np.empty((len(slices), *slices[0].pixel_array.shape), np.int16)
    for index, one in enumerate(slices):
        volume[index] = one.pixel_array
        volume[index] += int(one.RescaleIntercept)
        one.PixelData = None
    ends = [np.array(slices[index].ImagePositionPatient) for index in (0, -1)]
    affine = np.eye(4)
    affine[:3, 0] = cosines[0] * slices[0].PixelSpacing[1]
    affine[:3, 1] = cosines[1] * slices[0].PixelSpacing[0]
    affine[:3, 2] = (ends[1] - ends[0]) / (len(slices) - 1)
    affine[:3, 3] = ends[0]
    return volume.T, LPS @ affine


def decoded(path: Path) -> tuple[Any, None]:
    """Every slice of a series in JPEG 2000, in no order."""
    from concurrent.futures import ThreadPoolExecutor

    import imagecodecs
    from pydicom import dcmread
    from pydicom.encaps import generate_frames

    def one(name: Path) -> Any:
        return imagecodecs.jpeg2k_decode(next(generate_frames(dcmread(name).PixelData, number_of_frames=1)))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return np.stack(list(pool.map(one, path.iterdir()))), None


def nibabel(path: Path) -> tuple[Any, Any]:
    import nibabel as nib

    image = nib.load(path)
    return np.asanyarray(image.dataobj), image.affine


def reader_of(name: str) -> Callable[[Path], tuple[Any, Any]]:
    """The reader of that name, with what it needs imported."""
    if name == IN_MONAI:
        from medimg_eval.data.monai_reader import MedimgReader

        return monai(MedimgReader())
    if name.startswith("MONAI"):
        return monai({"MONAI (ITK)": "ITKReader", "MONAI (pydicom)": "PydicomReader"}.get(name))
    if name == OURS:
        import pydicom  # noqa: F401 - what a reader imports is not what it needs for the image

        from medimg_eval.imaging import read  # noqa: F401
    if name == "SimpleITK":
        import SimpleITK  # noqa: F401
    return {OURS: ours, "SimpleITK": simpleitk, "pydicom + sort": pydicom_and_sort, "nibabel": nibabel, ALONE: decoded}[
        name
    ]


def is_right(found: tuple[Any, ...], data: Path, *, labels: bool) -> bool:
    """Whether voxels sampled from every slice are found through the affine, with their value."""
    volume, affine = truth(data)
    if found[0].shape != volume.shape and found[0].size != volume.size:
        return False
    rng = np.random.default_rng(2)
    samples = np.stack([rng.integers(0, n, 40 * volume.shape[2]) for n in volume.shape])
    samples[2] = np.arange(samples.shape[1]) % volume.shape[2]
    world = affine @ np.vstack([samples, np.ones_like(samples[:1])])
    index = np.linalg.solve(found[1], world)[:3]
    nearest = np.rint(index).astype(int)
    if np.abs(index - nearest).max() > 0.02 or (nearest < 0).any() or (found[0].shape <= nearest.T).any():
        return False
    values = np.asarray(volume[tuple(samples)])
    wanted = (values > 0).astype(int) + (values > 300) if labels else values
    return bool((np.asarray(found[0][tuple(nearest)]) == wanted).all())


def measure(name: str, what: str, data: Path, repeat: int) -> dict[str, Any]:
    """Runs in a process of its own: the best of a few reads."""
    warnings.simplefilter("ignore")
    further = what in reader_formats.READERS
    read = reader_formats.reader_of(what, name) if further else reader_of(name)
    path = reader_formats.path_of(data, what) if further else data / what
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        file.read_bytes()
    small = next(path.iterdir()) if path.is_dir() else path
    if small != path or further:
        read_quietly(read, path if further else small)  # plugins load on the first call
    before = start_of_peak()
    found = read(path)
    touch(found[0])
    peak = (highest() - before) / 1024
    volume = found[0].nbytes / 2**20
    # Converters work in a process of their own; small arrays may lie where those of the first read did.
    hidden = name in reader_formats.CONVERTERS or (further and volume < 32)
    if further:
        right: bool | None = reader_formats.is_right(what, found)
    else:
        right = None if found[1] is None else is_right(found, data, labels=path.name.startswith("labels"))
    walls, cpus = [], []
    for _ in range(repeat):
        del found
        wall, cpu = time.perf_counter(), cpu_seconds()
        found = read(path)
        touch(found[0])
        walls.append(time.perf_counter() - wall)
        cpus.append(cpu_seconds() - cpu)
    return {
        "wall s": min(walls),
        "CPU s": min(cpus),
        "peak MiB": None if hidden else peak,
        "returned MiB": volume,
        "dtype": str(found[0].dtype),
        "right": right,
    }


def cpu_seconds() -> float:
    """Of this process and of those that it has started and waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def touch(array: Any) -> None:
    """Brings a memory-mapped array in, so that all readers have done the same work."""
    array.ravel(order="K")[:: max(1, 4096 // array.itemsize)].sum()


def start_of_peak() -> int:
    """Forgets the highest memory so far where Linux allows it; the memory held now, in KiB."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return highest()
    return status("VmRSS")


def highest() -> int:
    """The most memory held since then, in KiB."""
    try:
        return status("VmHWM")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def status(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])


def read_quietly(read: Callable[[Path], Any], path: Path) -> None:
    try:
        read(path)
    except Exception as error:  # noqa: BLE001 - one file is not a series for every reader
        warnings.warn(str(error), stacklevel=2)


def jobs(parts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """What is read -> its readers."""
    found: dict[str, tuple[str, ...]] = {}
    if "series" in parts:
        found |= dict.fromkeys(CODINGS, SERIES_READERS) | {"JPEG 2000": (*SERIES_READERS, ALONE)}
    if "volumes" in parts:
        found |= dict.fromkeys(VOLUMES, VOLUME_READERS)
    return found | (reader_formats.READERS if "formats" in parts else {})


def run_all(data: Path, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Measures, readers of one thing in turns: what -> reader -> the best of all rounds."""
    found: dict[str, dict[str, Any]] = {}
    for what, readers in jobs(options.parts).items():
        chosen = [name for name in readers if options.only in (None, what, name)]
        rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
        for _ in range(options.rounds):
            for name in chosen:
                rounds[name].append(run_one(name, what, data, options.repeat))
        found |= {what: {name: best(turns, rounds.get(OURS, ())) for name, turns in rounds.items()}} if chosen else {}
    return found


def run_one(name: str, what: str, data: Path, repeat: int) -> dict[str, Any]:
    words = [sys.executable, __file__, "--data", str(data), "--repeat", str(repeat), "--one", name, what]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        told = (done.stderr.strip().splitlines() or ["died"])[-1]
        return {"error": told.replace(str(data), "DATA")}
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def best(turns: Sequence[dict[str, Any]], ours: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The smallest of each figure, and the median of the ratios of CPU time to ours of the same round."""
    if failed := [one for one in turns if "error" in one]:
        return failed[0]
    found = dict(turns[0])
    for figure in ("wall s", "CPU s", "peak MiB"):
        found[figure] = min((one[figure] for one in turns if one[figure] is not None), default=None)
    pairs = [(one["CPU s"], other["CPU s"]) for one, other in zip(turns, ours, strict=False) if "CPU s" in other]
    if pairs:
        found["CPU / ours"] = statistics.median(one / other for one, other in pairs)
    return found


def show(found: dict[str, dict[str, Any]]) -> None:
    """Prints a table; wall times are beside those of MONAI's default reader."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Reading")
    for column in (
        "what",
        "reader",
        "wall s",
        "CPU s",
        "CPU / ours",
        "wall / MONAI",
        "peak MiB",
        "peak / array",
        "dtype",
        "right",
    ):
        table.add_column(column, justify="left" if column in ("what", "reader", "dtype") else "right")
    for name, readers in found.items():
        base = next((readers[key]["wall s"] for key in ("MONAI (ITK)", "MONAI") if "wall s" in readers.get(key, {})), 0)
        for reader, one in readers.items():
            if "error" in one:
                table.add_row(name, reader, one["error"])
                continue
            peak = one["peak MiB"]
            figures = [f"{one['wall s']:.3f}", f"{one['CPU s']:.3f}", f"{one.get('CPU / ours', math.nan):.2f}"]
            figures += [f"{one['wall s'] / base:.2f}" if base else ""]
            figures += ["", ""] if peak is None else [f"{peak:.0f}", f"{peak / one['returned MiB']:.2f}"]
            figures += [one["dtype"], {True: "yes", False: "NO", None: ""}[one["right"]]]
            table.add_row(name, reader, *figures)
        table.add_section()
    Console(width=120).print(table)


def main() -> None:
    """Measures, prints, and writes where it is told to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slices", type=int, default=300)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--data", type=Path, help="where to keep what is read, for the next run")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", help="one coding, volume, format or reader")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*options.one, options.data, options.repeat)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        data = (options.data or Path(temporary)) / f"{options.slices}x{options.size}"
        data.mkdir(parents=True, exist_ok=True)
        if {"series", "volumes"} & set(options.parts):
            generate(data, options.slices, options.size)
        if "formats" in options.parts:
            reader_formats.generate(data)
        found = run_all(data, options)
    show(found)
    if options.out:
        machine = {"cpus": os.cpu_count(), "python": platform.python_version()}
        machine |= {name: importlib.metadata.version(name) for name in LIBRARIES}
        kept = json.loads(options.out.read_text())["found"] if options.out.exists() else {}  # of parts not asked for
        result = {"slices": options.slices, "size": options.size, "machine": machine, "found": kept | found}
        options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
