"""CT phantoms: DICOM series of a torso, with lung nodules and liver lesions of known size and place."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.ndimage import binary_erosion, gaussian_filter

from medimg_eval.case import Array, Image, Mask
from medimg_eval.imaging import write_mask
from medimg_eval.imaging.dicom import save, write_segmentation, write_series
from medimg_eval.imaging.geometry import LPS_TO_RAS
from medimg_eval.phantoms.cohort import Member, Question, Record, yes_or_no
from medimg_eval.phantoms.shapes import ball, box, places, step, texture

LABELS = {1: "lung", 2: "heart", 3: "liver", 4: "spleen", 5: "kidney", 6: "bone"}
"""The organs of the mask."""

PLAIN = {2: 42.0, 3: 58.0, 4: 50.0, 5: 34.0, 6: 360.0}
"""HU of the organs without contrast medium; lungs and lesions are treated on their own."""

PORTAL = {2: 105.0, 3: 112.0, 4: 122.0, 5: 165.0, 6: 365.0}
"""HU of the organs in the portal-venous phase."""


@dataclass(frozen=True)
class Build:
    """One patient's torso; lengths in mm.

    `width` and `depth` are half those of the chest, `fat` is the thickness under the skin, `dome` the height of the
    right half of the diaphragm above the middle of the volume, `scale` the size of the organs, and `warp` how far
    outlines wander from their plain shapes.
    """

    width: float
    depth: float
    fat: float
    dome: float
    scale: float
    warp: float

    @classmethod
    def of(cls, rng: np.random.Generator) -> Build:
        """Draws a patient."""
        width = rng.uniform(140, 172)
        return cls(
            width=width,
            depth=width * rng.uniform(0.64, 0.74),
            fat=rng.uniform(8, 26),
            dome=rng.uniform(-12, 12),
            scale=rng.uniform(0.88, 1.1) * width / 156,
            warp=rng.uniform(3, 6),
        )


class Torso:
    """A patient's organs at given places; `labels` are uint8, keys of `LABELS`.

    Places are x (left), y (back) and z (up) of every voxel in mm, float32, each of the full shape; `body` gives numbers
    that belong to the patient.
    """

    def __init__(self, places: Sequence[Array], build: Build, body: np.random.Generator) -> None:
        shape = places[0].shape
        self.build = build
        # Outlines wander by a field that follows the patient, not the voxels.
        wander = [texture(body, shape, [n / 6 for n in shape]) * np.float32(build.warp) for _ in range(3)]
        self._at = [p + w for p, w in zip(places, wander, strict=True)]
        x, y, z = self._at
        self.labels = np.zeros(shape, np.uint8)
        self.skin = np.sqrt((x / build.width) ** 2 + (y / build.depth) ** 2)
        self.skin *= 1 + 0.1 * step(z - 70, 70)  # narrower towards the shoulders
        self.inner = 1 - (build.fat + 26) / build.width
        self.cavity = self.skin < self.inner
        self.spine = self._y(0.60)
        self._chest()
        self._abdomen()
        self._bones()

    def _y(self, part: float) -> float:
        """A place between the front (-1) and the back (1) of the cavity."""
        return part * self.build.depth * self.inner

    def _chest(self) -> None:
        x, y, z = self._at
        b = self.build
        s = b.scale
        side = self.inner * b.width * 0.5
        domes = [
            top - 55 * ball((x, y), (centre, self._y(-0.1)), (1.5 * side, 1.6 * b.depth * self.inner))
            for centre, top in ((-side, b.dome), (side, b.dome - 14))
        ]
        self.dome = np.where(x < 0, *domes)
        shell = (self.skin / self.inner) ** 2
        apex = shell + (np.maximum(z - 20, 0) / 118) ** 2
        middle = np.minimum(
            ball((x, y), (0, self._y(0.75)), (34 * s, 52)), ball((x, y), (4, self._y(-0.1)), (30 * s, 75))
        )
        lung = (apex < 0.93) & (z > self.dome) & (middle > 1)
        self.heart_place = (20 * s, self._y(-0.22), b.dome + 22)
        self.heart = ball((x, y, z), self.heart_place, (58 * s, 42 * s, 46 * s), turn=35)
        self.labels[lung] = 1
        self.labels[(self.heart < 1) & (z > self.dome) & self.cavity] = 2
        self.aorta = ball((x, y), (16, self.spine - 30), (11 * s, 11 * s)) < 1
        self.airway = (ball((x, y), (0, self._y(0.15)), (9, 8)) < 1) & (z > 50)
        self.labels[self.aorta | self.airway] = 0

    def _abdomen(self) -> None:
        x, y, z = self._at
        b = self.build
        s = b.scale
        below = self.cavity & (z < self.dome - 4) & (self.skin < self.inner - 0.03)
        side = self.inner * b.width
        self.liver = ball((x, y, z), (-0.42 * side, self._y(-0.05), b.dome - 42), (88 * s, 78 * s, 72 * s), turn=-12)
        organs = {
            4: ball((x, y, z), (0.72 * side, self._y(0.4), b.dome - 42), (26 * s, 44 * s, 44 * s), turn=20),
            3: np.where(x < 40 * s, self.liver, np.float32(9)),
        }
        self.stomach = below & (ball((x, y, z), (0.38 * side, self._y(-0.3), b.dome - 48), (46 * s, 36, 52)) < 1)
        self.labels[below & (organs[3] < 1)] = 3
        self.labels[below & (organs[4] < 1)] = 4
        self.sinus = np.zeros(x.shape, bool)
        for sign, lower in ((-1, 12), (1, 0)):
            centre = (sign * 62 * s, self._y(0.52), b.dome - 92 - lower)
            kidney = ball((x, y, z), centre, (29 * s, 25 * s, 50 * s), turn=sign * 25)
            sinus = ball((x, y, z), (centre[0] - sign * 14 * s, centre[1] - 6, centre[2]), (13 * s, 9 * s, 26 * s)) < 1
            self.labels[below & (kidney < 1) & ~sinus] = 5
            self.sinus |= sinus & (kidney < 1.4)
        self.stomach &= self.labels == 0

    def _bones(self) -> None:
        x, y, z = self._at
        level = np.mod(z, 30)
        body = ball((x, y), (0, self.spine), (22, 17)) < 1
        self.disc = body & (level < 6)
        self.canal = ball((x, y), (0, self.spine + 25), (10, 9)) < 1
        process = (np.abs(x) < 4.5) & (y > self.spine + 32) & (y < self.spine + 56) & (level > 8)
        process |= (ball((x, y), (0, self.spine + 22), (38, 7)) < 1) & (level > 10) & (level < 24)
        arch = (ball((x, y), (0, self.spine + 25), (15, 14)) < 1) & (level > 8)
        shell = (self.skin > self.inner) & (self.skin < self.inner + 11 / self.build.width)
        slope = np.sin(2 * np.pi * (z - 0.55 * y) / 34)  # ribs fall towards the front
        ribs = shell & (slope > 0.35) & (z > self.build.dome - 75) & (np.abs(x) > 16)
        sternum = shell & (np.abs(x) < 16) & (y < 0) & (z > 0)
        bone = (body & ~self.disc) | ((process | arch | ribs | sternum) & (self.skin < 0.97))
        self.core = ball((x, y), (0, self.spine), (18, 13)) < 1
        self.labels[bone & ~self.canal] = 6
        for soft in (self.disc, self.canal):
            self.labels[soft] = 0

    def hounsfield(self, rng: np.random.Generator, *, contrast: bool) -> Array:
        """Values without noise and blur, float32; with contrast those of the portal-venous phase."""
        shape: tuple[int, ...] = self.labels.shape
        _, y, z = self._at
        fine = texture(rng, shape, [n / 26 for n in shape])
        bowel = texture(rng, shape, [n / 14 for n in shape])
        means = PORTAL if contrast else PLAIN
        blood = 128.0 if contrast else 44.0
        hu = np.full(shape, -1000, np.float32)
        inside = self.skin < 1
        hu[inside] = -102
        muscle = inside & (self.skin < 1 - self.build.fat / self.build.width)
        hu[muscle] = 52
        # Between muscles and organs of the belly lie fat and loops of bowel, some with gas at the front.
        loops = np.where(bowel > 0.1, 34 + 10 * bowel, np.float32(-96))
        loops = np.where((bowel > 1.4) & (y < 0), np.float32(-750), loops)
        chest = z > self.dome
        hu = np.where(self.cavity, np.where(chest, np.float32(-60) + 60 * (bowel > -0.2), loops), hu)
        hu[self.stomach] = np.where(y < self._y(-0.45), np.float32(-880), np.float32(14))[self.stomach]
        hu[self.sinus] = -70
        hu[self.aorta & self.cavity] = blood
        for label, mean in means.items():
            organ = self.labels == label
            hu[organ] = mean * rng.uniform(0.93, 1.07) + 6 * fine[organ]
        hu[(self.labels == 6) & self.core] = 170
        hu[self.disc], hu[self.canal] = 75, 25
        hu[(self.labels == 2) & (self.heart < 0.45)] = blood
        self._lungs(hu, rng, fine)
        return np.where(inside, hu + 5 * fine, hu)

    def _lungs(self, hu: Array, rng: np.random.Generator, fine: Array) -> None:
        """Lung air, denser posteriorly, with branching vessels."""
        shape = hu.shape
        _, y, _ = self._at
        lung = self.labels == 1
        first, second = (texture(rng, shape, [n / 20 for n in shape]) for _ in range(2))
        vessel = np.exp(-(first**2 + second**2) / 0.03)
        air = -862 + 0.25 * (y + 60) + 22 * fine + 760 * vessel
        hu[lung] = np.minimum(air, 20)[lung]
        hu[self.airway] = -985


SHAPE = (112, 112, 30)
SLICE = 10.0
"""Distance between slices in mm."""

TILT = 16.5
"""Angle of the tilted gantry in degrees."""

TRIES = 20
"""Places tried for a lesion before the case goes without it."""

CLOCK = {"DA": "20000101", "TM": "000000", "DT": "20000101000000"}
"""What a made-up date or time says."""

WRITTEN = {"InstanceCreationDate", "InstanceCreationTime", "ContentDate", "ContentTime", "ContributionDateTime"}
"""Attributes that say when a file was written."""

MISSING = 15
"""Slice that the series with a gap lacks."""

TEXT = (
    f"series/CASE: the DICOM series; masks/CASE.nii.gz: {', '.join(f'{k} {name}' for k, name in LABELS.items())}, "
    "lesions counting as the organ they lie in; segmentations/CASE.dcm (where highdicom is installed): the same mask "
    "as DICOM-SEG; lesions/CASE.nii.gz: 1, 2, ... each a nodule or lesion of boxes.csv, in its order. variants: tilt "
    "(gantry tilted by 16.5 degrees), gap (one slice missing) and several (a localiser and two phases in one folder), "
    "all of the first patient, with the mask of each grid"
)


@dataclass(frozen=True)
class Lesion:
    """`lung nodule` or `liver lesion`: centre (x, y, z), diameter in mm."""

    name: str
    centre: tuple[float, float, float]
    diameter: float


@dataclass(frozen=True)
class Scan:
    """One series and what is true of it.

    `image` is int16 HU, (1, i, j, k); `labels` and `lesions` are uint8, (i, j, k); in `lesions` stands the number of
    the ball in `found`, from 1 on.
    """

    image: Image
    labels: Array
    lesions: Array
    found: tuple[Lesion, ...]


def scan(member: Member, *, contrast: bool | None = None, tilt: float = 0) -> Scan:
    """Makes one series in memory; the tilt of the gantry is in degrees.

    Contrast is the portal-venous phase or none; None leaves it to the case.
    """
    body, own = member.body, member.own
    build = Build.of(body)
    pixel = float(np.round(own.uniform(2.9, 3.3) * build.width / 160, 4))
    affine = _series_affine(own, pixel, tilt)
    if contrast is None:
        contrast = bool(own.random() < 0.5)
    voxels = places(LPS_TO_RAS @ affine, SHAPE)  # x left, y back, z up
    torso = Torso(_pose_patient(voxels, own), build, body)
    ct_values, lesions = _draw_lesions(torso, voxels, own, pixel)
    hu = torso.hounsfield(own, contrast=contrast)
    for number, lesion in enumerate(ct_values, 1):
        hu[lesions == number] = own.uniform(-60, 60) if lesion.name == "lung nodule" else own.uniform(8, 70)
    x, y, _ = voxels
    bend = y - 150 + (x / 32) ** 2
    hu[(bend > 0) & (bend < 8)] = -150  # the table the patient lies on
    # Voxels at an edge hold some of both sides; noise of a filtered back-projection is not white.
    hu = gaussian_filter(hu, (0.55, 0.55, 0.35), truncate=2.5)
    grain = gaussian_filter(own.standard_normal(SHAPE, dtype=np.float32), (0.6, 0.6, 0), truncate=2)
    hu += grain * np.float32(own.uniform(26, 46)) + 4 * texture(own, SHAPE, [n / 4 for n in SHAPE])
    pixels = np.clip(np.rint(hu), -1024, 3071).astype(np.int16)
    image = Image(pixels[None], affine, "CT", attributes={"contrast": "portal" if contrast else "none"})
    return Scan(image, torso.labels, lesions, ct_values)


def write_case(folder: Path, member: Member) -> Record:
    """Writes one case's series and masks."""
    scan_ = scan(member)
    files = {
        "image": f"series/{member.case}",
        "mask": f"masks/{member.case}.nii.gz",
        "lesions": f"lesions/{member.case}.nii.gz",
    }
    paths = _write_series(folder / files["image"], scan_, member)
    for kind, labels in (("mask", scan_.labels), ("lesions", scan_.lesions)):
        (folder / files[kind]).parent.mkdir(exist_ok=True)
        write_mask(folder / files[kind], Mask(labels, scan_.image.affine))
    if importlib.util.find_spec("highdicom"):
        files["segmentation"] = f"segmentations/{member.case}.dcm"
        target = folder / files["segmentation"]
        write_segmentation(target, Mask(scan_.labels, scan_.image.affine), paths, names=LABELS, seed=member.seed)
        _settle_header(target)
    record = Record(files=files)
    names = [lesion.name for lesion in scan_.found]
    record.findings = {name: name in names for name in ("lung nodule", "liver lesion")}
    record.findings["contrast medium"] = scan_.image.attributes["contrast"] == "portal"
    voxel = abs(float(np.linalg.det(scan_.image.affine[:3, :3]))) / 1000
    for label, name in LABELS.items():
        record.measurements.append((f"{name} volume", float((scan_.labels == label).sum()) * voxel, "ml"))
    for number, lesion in enumerate(scan_.found, 1):
        record.boxes.append((lesion.name, None, box(scan_.lesions == number)))
        record.measurements.append((f"{lesion.name} {number} diameter", lesion.diameter, "mm"))
        position = LPS_TO_RAS[:3, :3] @ lesion.centre  # as affines of this package count
        for axis, value in zip(("right-left", "back-front", "down-up"), position, strict=True):
            record.measurements.append((f"{lesion.name} {number} {axis}", float(value), "mm"))
    record.questions = _make_questions(scan_)
    return record


def write_variants(folder: Path, member: Member) -> None:
    """Writes the series that readers get wrong, of the first patient."""
    variants = folder / "variants"
    tilted, plain, portal = scan(member, tilt=TILT), scan(member, contrast=False), scan(member, contrast=True)
    for name, volume in (("tilt", tilted), ("gap", plain), ("several", plain)):
        (variants / name).mkdir(parents=True)
        write_mask(variants / name / "mask.nii.gz", Mask(volume.labels, volume.image.affine))
    _write_series(variants / "tilt" / "series", tilted, member)
    _write_series(variants / "gap" / "series", plain, member)[MISSING].unlink()
    scout = Scan(_scout_image(plain.image), plain.labels, plain.lesions, ())
    parts = {"localiser": scout, "plain": plain, "portal": portal}
    for number, (name, volume) in enumerate(parts.items(), 1):
        part = variants / "several" / name
        kind = {"ImageType": ["ORIGINAL", "PRIMARY", "LOCALIZER" if name == "localiser" else "AXIAL"]}
        for path in _write_series(part, volume, member, description=name, SeriesNumber=number, **kind):
            path.rename(part.parent / f"{name}-{path.name}")
        shutil.rmtree(part)


def _write_series(folder: Path, made: Scan, member: Member, **attributes: Any) -> list[Path]:
    """Writes one series; `attributes` may hold a description and DICOM attributes."""
    return write_series(folder, made.image, modality="CT", seed=member.seed, patient=member.patient, **attributes)


def _settle_header(path: Path) -> None:
    """Fixes a DICOM-SEG's writing time and random UID."""
    from pydicom import dcmread

    dataset = dcmread(path)
    organization = f"{dataset.SOPInstanceUID}.1"
    for element in dataset.iterall():
        if element.keyword == "DimensionOrganizationUID":
            element.value = organization
        elif element.VR in CLOCK and element.keyword in WRITTEN:
            element.value = CLOCK[element.VR]
    save(path, dataset)


def _series_affine(rng: np.random.Generator, pixel: float, tilt: float) -> Array:
    """Affine to RAS+ mm: columns left, rows back, slices up."""
    lps = np.eye(4)
    lean = np.deg2rad(tilt)
    lps[:3, 0] = (pixel, 0, 0)
    lps[:3, 1] = (0, pixel * np.cos(lean), pixel * np.sin(lean))
    lps[:3, 2] = (0, 0, SLICE)
    middle = (np.array(SHAPE) - 1) / 2
    lps[:3, 3] = np.round(rng.uniform(-8, 8, 3) - lps[:3, :3] @ middle, 3)
    return LPS_TO_RAS @ lps


def _pose_patient(places: list[Array], rng: np.random.Generator) -> list[Array]:
    """How the patient lies: turned a little, off the middle."""
    angle = np.deg2rad(rng.uniform(-7, 7))
    cosine, sine = np.float32(np.cos(angle)), np.float32(np.sin(angle))
    x, y, z = (p - np.float32(shift) for p, shift in zip(places, rng.uniform(-8, 8, 3), strict=True))
    return [cosine * x + sine * y, cosine * y - sine * x, z - 10]


def _draw_lesions(
    torso: Torso, places: list[Array], rng: np.random.Generator, pixel: float
) -> tuple[tuple[Lesion, ...], Array]:
    """Balls that lie whole within their organ and apart from each other."""
    lesions = np.zeros(SHAPE, np.uint8)
    lesions_: list[Lesion] = []
    for name, label, count in (("lung nodule", 1, rng.integers(0, 4)), ("liver lesion", 3, rng.integers(0, 3))):
        free = torso.labels == label
        for _ in range(count):
            radius = round(rng.uniform(9, 15), 2)
            # Taking a disc of this size off the organ's rim leaves few places where the ball would not fit.
            at = np.flatnonzero(binary_erosion(free, _cross_kernel(int(radius / pixel) + 1)))
            for centre_ in rng.permutation(at)[:TRIES]:
                middle = np.unravel_index(centre_, SHAPE)
                centre = (float(places[0][middle]), float(places[1][middle]), float(places[2][middle]))
                distance = sum((p - np.float32(c)) ** 2 for p, c in zip(places, centre, strict=True))
                ball = distance <= radius**2
                if free[ball].all():
                    lesions_.append(Lesion(name, centre, 2 * radius))
                    lesions[ball] = len(lesions_)
                    free &= distance > (radius + 10) ** 2
                    break
    return tuple(lesions_), lesions


def _cross_kernel(reach: int) -> Array:
    cross = np.zeros((2 * reach + 1, 2 * reach + 1, 3), bool)
    cross[:, reach, 1] = cross[reach, :, 1] = cross[reach, reach] = True
    return cross


def _scout_image(image: Image) -> Image:
    """A projection from the front, as one slice that stands upright."""
    pixels = np.rint(image.array[0].mean(axis=1)).astype(np.int16)[:, ::-1]  # (column, row), head first
    affine = image.affine.copy()
    affine[:3, 1] = -image.affine[:3, 2]
    affine[:3, 2] = image.affine[:3, 1]
    affine[:3, 3] = (image.affine @ [0, SHAPE[1] // 2, SHAPE[2] - 1, 1])[:3]
    return Image(pixels[None, :, :, None], affine, "CT")


def _make_questions(made: Scan) -> list[Question]:
    names = [lesion.name for lesion in made.found]
    nodules = names.count("lung nodule")
    questions = [
        yes_or_no("Was contrast medium given?", made.image.attributes["contrast"] == "portal"),
        yes_or_no("Is there a lesion in the liver?", "liver lesion" in names),
        Question("How many nodules are there in the lungs?", str(nodules), ("0", "1", "2", "3")),
    ]
    if nodules == 1:
        side = "left" if made.found[0].centre[0] > 0 else "right"
        questions.append(Question("In which lung does the nodule lie?", side, ("left", "right")))
    return questions
