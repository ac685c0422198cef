"""What `readers.py` reads besides series and volumes of CT: scans of several volumes, tiles, packed files, `.nii.gz`.

Each is made up, written by pydicom, highdicom, tifffile, nibabel, h5py or by hand, and read by us and by whoever else
reads it. Most are one scan of 40 moments of 30 slices of 128 x 128.
"""

from __future__ import annotations

import bz2
import gzip
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dynamic_dicom
import numpy as np

OURS = "medimg_eval"
IN_MONAI = "MONAI (medimg_eval)"
COUNT, SLICES, SIDE = 40, 30, 128
STEP = 2.0
PLANE, TILE = 4096, 256
CONVERTERS = ("dcm2niix", "dicom2nifti")
SMALL = {"nii.gz/small_int16": (48, 48, 32), "nii.gz/int16": (192, 192, 120), "nii.gz/float32": (192, 192, 120)}

READERS: dict[str, tuple[str, ...]] = {
    "dynamic/mosaics": (OURS, *CONVERTERS),
    "dynamic/slices": (OURS, *CONVERTERS),
    "enhanced.dcm": (OURS, "pydicom + sort"),
    "tiles.dcm": (OURS, "highdicom"),
    "packed_series": (OURS, "pydicom + gzip"),
    "scan.ome.tif": (OURS, "tifffile"),
    "scan.nrrd": (OURS, "pynrrd", "SimpleITK"),
    "scan_bzip2.nrrd": (OURS, "pynrrd"),
    "scan.mnc": (OURS, "nibabel"),
    **dict.fromkeys(SMALL, (OURS, IN_MONAI, "MONAI", "nibabel", "SimpleITK")),
}
"""What is read -> who reads it. Peers that are not installed are named in the table."""


def truth() -> tuple[Any, Any]:
    """The scan, int16 (moment, slice, row, column), and its affine (column, row, slice) to RAS+ mm."""
    rng = np.random.default_rng(3)
    row, column = np.mgrid[:SIDE, :SIDE] / SIDE - 0.5
    head = np.hypot(row * 1.2, column) < 0.42
    base = np.where(head, 900 + 300 * np.sin(11 * row) * np.cos(7 * column), 20)
    scan = base + rng.normal(0, 10, (COUNT, SLICES, SIDE, SIDE)).astype(np.float32)
    affine = np.diag([-2.0, -2.0, 3.0, 1.0])
    affine[:3, 3] = (110, 120, -40)
    return np.clip(scan, 0, 4095).astype(np.int16), affine


def small(name: str) -> tuple[Any, Any]:
    """The voxels of a `.nii.gz`, (i, j, k), and its affine."""
    shape = SMALL[name]
    rng = np.random.default_rng(4)
    wave = np.sin(np.arange(shape[0]) / 9)[:, None, None] * np.cos(np.arange(shape[1]) / 7)[:, None]
    array = np.clip(600 + 500 * wave + rng.normal(0, 15, shape), 0, 4095)
    affine = np.diag([1.5, 1.5, 2.0, 1.0])
    affine[:3, 3] = (-90, -120, -70)
    return (array / 4 if name.endswith("float32") else array).astype(name.rpartition("_")[2].rpartition("/")[2]), affine


def labels() -> Any:
    """The segmentation of a slide, uint8 (row, column)."""
    row, column = np.mgrid[:PLANE, :PLANE]
    return ((row // 300 + column // 500) % 3).astype(np.uint8)


def generate(data: Path) -> None:
    """Makes what is read, unless an earlier run left it there."""
    if (data / "formats_complete").exists():
        return
    import h5py
    import nibabel as nib
    import tifffile

    dynamic_dicom.generate(data / "dynamic")
    scan, _ = truth()
    write_enhanced(data / "enhanced.dcm", scan)
    write_tiles(data / "tiles.dcm", labels())
    (data / "packed_series").mkdir(exist_ok=True)
    for name in (data / "dynamic" / "slices").iterdir():
        if int(name.stem) < 40 * dynamic_dicom.SLICES:
            (data / "packed_series" / f"{name.name}.gz").write_bytes(gzip.compress(name.read_bytes(), 6))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sizes = {"PhysicalSizeX": 2.0, "PhysicalSizeY": 2.0, "PhysicalSizeZ": 3.0, "TimeIncrement": STEP}
        sizes |= dict.fromkeys(("PhysicalSizeXUnit", "PhysicalSizeYUnit", "PhysicalSizeZUnit"), "mm")
        metadata = {"axes": "TZYX", **sizes}
        tifffile.imwrite(data / "scan.ome.tif", scan, ome=True, metadata=metadata, compression="zlib")
    for name, encoding in (("scan.nrrd", "gzip"), ("scan_bzip2.nrrd", "bzip2")):
        lines = ["NRRD0004", "type: int16", "dimension: 4", f"sizes: {SIDE} {SIDE} {SLICES} {COUNT}", "endian: little"]
        lines += [f"encoding: {encoding}", "space: left-posterior-superior", "kinds: domain domain domain time"]
        lines += ["space directions: (2,0,0) (0,2,0) (0,0,3) none", "space origin: (-110,-120,-40)"]
        pack = gzip.compress(scan.tobytes(), 6) if encoding == "gzip" else bz2.compress(scan.tobytes())
        (data / name).write_bytes(("\n".join(lines) + "\n\n").encode() + pack)
    write_minc(h5py, data / "scan.mnc", scan)
    (data / "nii.gz").mkdir(exist_ok=True)
    for name in SMALL:
        nib.save(nib.Nifti1Image(*small(name)), data / f"{name}.nii.gz")
    (data / "formats_complete").touch()


def write_minc(h5py: Any, path: Path, scan: Any) -> None:
    """Writes MINC 2 with time first; its world is that of RAS+."""
    with h5py.File(path, "w") as file:
        root = file.create_group("minc-2.0")
        dimensions = root.create_group("dimensions")
        steps = {"time": (0, STEP), "zspace": (-40, 3), "yspace": (120, -2), "xspace": (110, -2)}
        for (name, (start, step)), length in zip(steps.items(), scan.shape, strict=True):
            one = dimensions.create_dataset(name, (), "i4")
            one.attrs.update({"start": float(start), "step": float(step), "length": length, "spacing": b"regular__"})
            if name != "time":
                one.attrs["direction_cosines"] = np.eye(3)["xyz".index(name[0])]
        image = root.create_group("image/0")
        voxels = image.create_dataset("image", data=scan, chunks=(1, 1, SIDE, SIDE), compression=4)
        voxels.attrs.update({"dimorder": b"time,zspace,yspace,xspace", "valid_range": np.array([0.0, 4095.0])})
        for name, value in (("image-min", 0.0), ("image-max", 4095.0)):
            image.create_dataset(name, data=np.float64(value)).attrs["dimorder"] = b""


def write_enhanced(path: Path, scan: Any) -> None:
    """Writes one enhanced MR file of all moments, slices of one moment after the other."""
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import EnhancedMRImageStorage, ExplicitVRLittleEndian, generate_uid

    def item(**elements: Any) -> Any:
        made = Dataset()
        for name, value in elements.items():
            setattr(made, name, value)
        return made

    one = Dataset()
    one.file_meta = FileMetaDataset()
    one.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    one.SOPClassUID = one.file_meta.MediaStorageSOPClassUID = EnhancedMRImageStorage
    one.SOPInstanceUID = one.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    one.SeriesInstanceUID, one.StudyInstanceUID, one.FrameOfReferenceUID = generate_uid(), generate_uid(), "1.2.3.5"
    one.Modality, one.PatientName, one.PatientID, one.Manufacturer = "MR", "Phantom", "1", "Philips"
    one.ImageType = ["ORIGINAL", "PRIMARY", "M", "NONE"]
    one.StudyDate, one.SeriesNumber, one.InstanceNumber, one.NumberOfFrames = "20240101", 1, 1, COUNT * SLICES
    one.Rows, one.Columns, one.SamplesPerPixel = SIDE, SIDE, 1
    one.PhotometricInterpretation, one.PixelRepresentation = "MONOCHROME2", 0
    one.BitsAllocated, one.BitsStored, one.HighBit = 16, 12, 11
    uid = generate_uid()
    one.DimensionOrganizationSequence = [item(DimensionOrganizationUID=uid)]
    one.DimensionIndexSequence = [
        item(DimensionOrganizationUID=uid, DimensionIndexPointer=tag, FunctionalGroupPointer=0x00209111)
        for tag in (0x00209056, 0x00209057, 0x00209128)
    ]
    shared = item(
        PixelMeasuresSequence=[item(PixelSpacing=["2", "2"], SliceThickness="3", SpacingBetweenSlices="3")],
        PlaneOrientationSequence=[item(ImageOrientationPatient=["1", "0", "0", "0", "1", "0"])],
        PixelValueTransformationSequence=[item(RescaleSlope="1", RescaleIntercept="0", RescaleType="US")],
        MRTimingAndRelatedParametersSequence=[item(RepetitionTime=STEP * 1000)],
    )
    one.SharedFunctionalGroupsSequence = [shared]
    one.PerFrameFunctionalGroupsSequence = [
        item(
            FrameContentSequence=[
                item(
                    StackID="1", InStackPositionNumber=at + 1, TemporalPositionIndex=moment + 1,
                    DimensionIndexValues=[1, at + 1, moment + 1],
                    FrameAcquisitionDateTime=f"2024010110{int(moment * STEP) // 60:02d}{moment * STEP % 60:05.2f}",
                )
            ],
            PlanePositionSequence=[item(ImagePositionPatient=["-110", "-120", str(-40 + 3 * at)])],
        )
        for moment in range(COUNT)
        for at in range(SLICES)
    ]  # fmt: skip
    one.PixelData = scan.astype(np.uint16).tobytes()
    one["PixelData"].VR = "OW"
    one.save_as(path, enforce_file_format=True)


def write_tiles(path: Path, plane: Any) -> None:
    """Writes a binary segmentation of two segments in tiles of a slide."""
    import highdicom as hd
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import VLWholeSlideMicroscopyImageStorage, generate_uid

    slide = Dataset()
    slide.file_meta = FileMetaDataset()
    slide.SOPClassUID, slide.SOPInstanceUID = VLWholeSlideMicroscopyImageStorage, generate_uid()
    slide.StudyInstanceUID, slide.SeriesInstanceUID, slide.FrameOfReferenceUID = "1.2.3", "1.2.3.4", "1.2.3.5"
    for name in ("PatientID", "PatientName", "PatientBirthDate", "PatientSex", "AccessionNumber", "StudyID"):
        setattr(slide, name, "")
    slide.StudyDate = slide.StudyTime = slide.ReferringPhysicianName = ""
    slide.Modality, slide.Manufacturer, slide.ContainerIdentifier = "SM", "synthetic", "c"
    slide.SpecimenDescriptionSequence, slide.ImageType = [], ["ORIGINAL", "PRIMARY", "VOLUME", "NONE"]
    slide.Rows = slide.Columns = TILE
    slide.TotalPixelMatrixRows, slide.TotalPixelMatrixColumns = plane.shape
    slide.NumberOfFrames, slide.SamplesPerPixel = (PLANE // TILE) ** 2, 3
    slide.PhotometricInterpretation, slide.PlanarConfiguration, slide.PixelRepresentation = "RGB", 0, 0
    slide.BitsAllocated, slide.BitsStored, slide.HighBit = 8, 8, 7
    slide.ImageOrientationSlide, slide.DimensionOrganizationType = [0, 1, 0, 1, 0, 0], "TILED_FULL"
    origin, measures, shared = Dataset(), Dataset(), Dataset()
    origin.XOffsetInSlideCoordinateSystem, origin.YOffsetInSlideCoordinateSystem = 1, 2
    measures.PixelSpacing, measures.SliceThickness = [0.0005, 0.0005], 0.001
    shared.PixelMeasuresSequence = [measures]
    slide.TotalPixelMatrixOriginSequence, slide.SharedFunctionalGroupsSequence = [origin], [shared]
    slide.TotalPixelMatrixFocalPlanes, slide.NumberOfOpticalPaths = 1, 1
    slide.OpticalPathSequence = [Dataset()]
    described = [
        hd.seg.SegmentDescription(
            number, name, hd.sr.CodedConcept("1", "99T", name), hd.sr.CodedConcept("2", "99T", name),
            hd.seg.SegmentAlgorithmTypeValues.MANUAL)
        for number, name in ((1, "tumour"), (2, "stroma"))
    ]  # fmt: skip
    made = hd.seg.Segmentation(
        [slide], np.stack([plane == 1, plane == 2], -1)[None].astype(np.uint8), "BINARY", described, "1.2.9", 1,
        "1.2.9.1", 1, "synthetic", "M", "1", "2", tile_pixel_array=True, tile_size=(TILE, TILE),
        dimension_organization_type="TILED_FULL", omit_empty_frames=False)  # fmt: skip
    made.save_as(path)


def path_of(data: Path, name: str) -> Path:
    """Where what is called so lies."""
    return data / (f"{name}.nii.gz" if name in SMALL else name)


def reader_of(name: str, reader: str) -> Callable[[Path], tuple[Any, ...]]:
    """A function from path to ((channel, i, j, k) or (row, column), affine or None)."""
    if reader == OURS:
        from medimg_eval.imaging import read, read_mask

        if name == "tiles.dcm":
            return lambda path: (read_mask(path).labels, None)
        if name == "scan.ome.tif":  # its axes are slice, row and column, from a corner
            return lambda path: (read(path).array.transpose(0, 3, 2, 1), None)
        return lambda path: ((image := read(path)).array, image.affine)
    if reader in CONVERTERS:
        return lambda path: dynamic_dicom.converted(path, reader)[:2]
    if reader.startswith("MONAI"):
        from monai.transforms import LoadImage

        from medimg_eval.data.monai_reader import MedimgReader

        load = LoadImage(MedimgReader() if reader == IN_MONAI else None, image_only=True)
        return lambda path: ((image := load(path)).array[None], image.affine.numpy())
    return {
        "pydicom + sort": by_pydicom, "highdicom": by_highdicom, "pydicom + gzip": by_gzip, "tifffile": by_tifffile,
        "pynrrd": by_pynrrd, "nibabel": by_nibabel, "SimpleITK": by_simpleitk,
    }[reader]  # fmt: skip


def by_pydicom(path: Path) -> tuple[Any, Any]:
    from pydicom import dcmread

    one = dcmread(path)
    places = [frame.FrameContentSequence[0].DimensionIndexValues for frame in one.PerFrameFunctionalGroupsSequence]
    order = sorted(range(len(places)), key=lambda at: (places[at][2], places[at][1]))
    array = one.pixel_array[order].reshape(COUNT, SLICES, SIDE, SIDE)
    return array.transpose(0, 3, 2, 1), truth_affine()


def truth_affine() -> Any:
    """Of the scan, for peers that leave geometry to the user."""
    affine = np.diag([-2.0, -2.0, 3.0, 1.0])
    affine[:3, 3] = (110, 120, -40)
    return affine


def by_highdicom(path: Path) -> tuple[Any, None]:
    import highdicom as hd

    opened = hd.seg.segread(path)
    return opened.get_total_pixel_matrix(combine_segments=True), None


def by_gzip(path: Path) -> tuple[Any, Any]:
    from io import BytesIO

    from pydicom import dcmread

    slices = []
    for name in path.iterdir():
        with gzip.open(name) as stream:
            slices.append(dcmread(BytesIO(stream.read())))
    slices.sort(key=lambda one: (one.AcquisitionNumber, float(one.ImagePositionPatient[2])))
    array = np.stack([one.pixel_array for one in slices])
    return array.reshape(-1, dynamic_dicom.SLICES, *array.shape[1:]).transpose(0, 3, 2, 1), dynamic_dicom.truth()[1]


def by_tifffile(path: Path) -> tuple[Any, None]:
    import tifffile

    return tifffile.imread(path).transpose(0, 3, 2, 1), None


def by_pynrrd(path: Path) -> tuple[Any, Any]:
    import nrrd

    array, header = nrrd.read(str(path))
    affine = np.eye(4)
    affine[:3, :3], affine[:3, 3] = np.asarray(header["space directions"])[:3].T, header["space origin"]
    return np.moveaxis(array, 3, 0), np.diag([-1.0, -1.0, 1.0, 1.0]) @ affine


def by_nibabel(path: Path) -> tuple[Any, Any]:
    import nibabel as nib

    image: Any = nib.load(path)
    array = np.asanyarray(image.dataobj)
    # of MINC, time and space come as the file has them
    return (array.transpose(0, 3, 2, 1), truth_affine()) if path.suffix == ".mnc" else (array[None], image.affine)


def by_simpleitk(path: Path) -> tuple[Any, Any, Any]:
    import SimpleITK as sitk  # noqa: N813

    image = sitk.ReadImage(str(path))
    count = image.GetDimension()
    affine = np.eye(4)
    affine[:3, :3] = (np.array(image.GetDirection()).reshape(count, count) * image.GetSpacing())[:3, :3]
    affine[:3, 3] = image.GetOrigin()[:3]
    array = sitk.GetArrayViewFromImage(image).T
    array = np.moveaxis(array, 3, 0) if count == 4 else array[None]
    return array, np.diag([-1.0, -1.0, 1.0, 1.0]) @ affine, image  # the view lives as long as the image


def is_right(name: str, found: tuple[Any, ...]) -> bool:
    """Whether all voxels are the truth's, and lie where it has them."""
    if name == "tiles.dcm":
        return bool(np.array_equal(np.asarray(found[0]).squeeze(), labels()))
    if name in SMALL:
        voxels, affine = small(name)
        voxels = voxels[None]
    else:
        voxels, affine = truth() if not name.startswith(("dynamic", "packed")) else dynamic_dicom.truth()
        voxels = voxels[:40].transpose(0, 3, 2, 1) if name == "packed_series" else voxels.transpose(0, 3, 2, 1)
    array = found[0]
    if found[1] is None:
        return array.shape == voxels.shape and bool(np.array_equal(array, voxels))
    if array.shape[0] != voxels.shape[0]:
        return False
    rng = np.random.default_rng(5)
    samples = np.stack([rng.integers(0, n, 20_000) for n in voxels.shape])
    world = affine @ np.vstack([samples[1:], np.ones_like(samples[:1])])
    index = np.linalg.solve(found[1], world)[:3]
    nearest = np.rint(index).astype(int)
    if np.abs(index - nearest).max() > 0.02 or (nearest < 0).any() or (array.shape[1:] <= nearest.T).any():
        return False
    return bool(np.allclose(np.asarray(array[(samples[0], *nearest)]), voxels[tuple(samples)], rtol=1e-6))
