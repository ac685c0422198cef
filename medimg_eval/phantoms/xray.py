"""Chest X-ray phantoms: DICOM pictures seen from the front, with findings, masks, boxes and a report."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from scipy.ndimage import gaussian_filter

from medimg_eval.case import Array, Image
from medimg_eval.imaging.dicom import write_picture
from medimg_eval.phantoms.cohort import Member, Question, Record, yes_or_no
from medimg_eval.phantoms.report import report
from medimg_eval.phantoms.shapes import ball, box, step, texture

LABELS = {1: "lung", 2: "heart"}
"""What the mask holds."""

FINDINGS = ("cardiomegaly", "nodule", "pleural effusion", "pneumothorax")

SHAPE = (288, 304)
PIXEL = 1.2
"""Edge of a pixel in mm."""

MAGNIFIED = 1.06
"""How much larger the shadow on the detector is; the pixel spacing is corrected for it."""

ENLARGED = 0.5
"""A heart that is wider than this part of the chest is enlarged."""

TEXT = (
    "images/CASE.dcm: chest X-rays from the front, MONOCHROME2 and MONOCHROME1 in turn; masks/CASE.png: 1 lung (the "
    "whole field within the ribs, also where fluid or air hides the lung), 2 heart. The cardiothoracic ratio is the "
    "width of the heart over the widest distance across both lungs, of the mask, in columns. Left and right are the "
    "patient's: the patient's left is on the right of the picture"
)


@dataclass
class Chest:
    """One X-ray and what is true of it.

    `image` is uint16, (1, row, column), bright where dense; `labels` uint8, (row, column); `ratio` is the width of the
    heart over that of the chest; `marks` says of each finding where it is, bool, (row, column), `sides` whether `left`
    or `right`; `diameter` is the nodule's in mm, 0 without.
    """

    image: Image
    labels: Array
    ratio: float
    marks: dict[str, Array] = field(default_factory=dict)
    sides: dict[str, str] = field(default_factory=dict)
    diameter: float = 0

    @property
    def findings(self) -> dict[str, bool]:
        """Which findings are present."""
        return {name: name in self.marks or (name == "cardiomegaly" and self.ratio > ENLARGED) for name in FINDINGS}


@dataclass(frozen=True)
class Frame:
    """Positions in mm about the chest's middle, and patient measures.

    x to the patient's left, y down.

    The edge of a pixel is in mm; x, y and `outline`, the distance of the ribs from the midline, are float32, (row,
    column); `half` is that of the width of the chest, `top` that of the lungs, and `base` has the heights of the two
    halves of the diaphragm, right and left.
    """

    pixel: float
    x: Array
    y: Array
    half: float
    top: float
    base: tuple[float, float]
    outline: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        return self.x.shape

    def blurred(self, array: Array, width: float) -> Array:
        """Blurs by a Gaussian whose width is in pixels of `PIXEL`."""
        blurred_array: Array = gaussian_filter(array, width * (PIXEL / self.pixel))
        return blurred_array

    def texture(self, rng: np.random.Generator, cell: float) -> Array:
        """Smooth noise of cells whose width is in pixels of `PIXEL`."""
        return texture(rng, self.shape, cell * (PIXEL / self.pixel))

    def side(self, left: bool) -> tuple[Array, float]:
        """Distance from the midline, and diaphragm height, of one half."""
        return (self.x if left else -self.x), self.base[int(left)]


def picture(member: Member) -> Chest:
    """Makes one X-ray in memory."""
    body, own = member.body, member.own
    frame = frame_of(body, own)
    fields = [lung_field(frame, left) for left in (False, True)]
    enlarged = bool(own.random() < 0.4)
    heart = heart_shadow(frame, body, own.uniform(0.54, 0.62) if enlarged else own.uniform(0.38, 0.46))
    labels = np.zeros(SHAPE, np.uint8)
    labels[fields[0] | fields[1]] = 1
    labels[heart] = 2
    chest = Chest(Image(np.zeros((1, *SHAPE), np.uint16), np.eye(4)), labels, ratio(labels))
    lung = np.where(labels == 1, np.float32(1), np.float32(0))
    aerated, extra = _draw_findings(chest, frame, lung, own)
    density = bones(frame, body) + soft_tissue(frame, heart, body) + extra
    chest.image = exposed(frame, density, aerated, ~_chest_mark(chest, "pneumothorax"), own)
    return chest


def exposed(frame: Frame, density: Array, aerated: Array, branching: Array, rng: np.random.Generator) -> Image:
    """The X-ray of a chest, bright where dense; all arrays are (row, column).

    The density, float, is that of all but the lungs; `aerated` says how much of a pixel is aerated lung, 0 to 1,
    float32; `branching`, bool, where the lungs show vessels. Numbers are those of unevenness, vessels, noise and
    exposure.
    """
    density -= (0.95 + 0.1 * frame.texture(rng, 60)) * frame.blurred(aerated, 1.2)
    density += vessels(frame, rng) * frame.blurred(aerated * branching, 1.5)
    density += 0.12 * frame.texture(rng, 110) + 0.03 * frame.texture(rng, 5)
    density = frame.blurred(density, 0.8) + rng.normal(0, 0.035, frame.shape)
    gain, level = rng.uniform(600, 850), rng.uniform(1500, 1900)
    pixels = np.clip(np.rint(level + gain * density), 0, 4095).astype(np.uint16)
    return Image(pixels[None], np.diag([frame.pixel, frame.pixel, 1, 1]), "DX")


def ratio(labels: Array) -> float:
    """Cardiothoracic ratio: widest heart over widest lungs, in columns."""
    heart = np.flatnonzero((labels == 2).any(axis=0))
    rows = [np.flatnonzero(row) for row in labels == 1]
    widest = max(int(row[-1] - row[0]) + 1 for row in rows if row.size)
    return (int(heart[-1] - heart[0]) + 1) / widest


def write_case(folder: Path, member: Member) -> Record:
    """Writes one case's X-ray and mask."""
    chest = picture(member)
    record = Record(files=write_x_ray(folder, chest.image, chest.labels, member), findings=chest.findings)
    record.boxes = [(name, None, box(mark)) for name, mark in chest.marks.items()]
    if chest.findings["cardiomegaly"]:
        record.boxes.append(("cardiomegaly", None, box(chest.labels == 2)))
    record.measurements = [("cardiothoracic ratio", chest.ratio, "")]
    if chest.diameter:
        record.measurements.append(("nodule diameter", chest.diameter, "mm"))
    record.report = report(chest.findings, chest.sides, chest.ratio, chest.diameter, member.words)
    for name, there in chest.findings.items():
        article = "" if name == "cardiomegaly" else "a "
        record.questions.append(yes_or_no(f"Is there {article}{name}?", there))
    for name, side in chest.sides.items():
        record.questions.append(Question(f"On which side is the {name}?", side, ("left", "right")))
    return record


def write_x_ray(folder: Path, image: Image, labels: Array, member: Member) -> dict[str, str]:
    """Writes a DICOM X-ray and its mask; returns both paths."""
    from PIL import Image as Picture

    files = {"image": f"images/{member.case}.dcm", "mask": f"masks/{member.case}.png"}
    photometric: Literal["MONOCHROME1", "MONOCHROME2"] = "MONOCHROME1" if member.index % 2 else "MONOCHROME2"
    write_picture(
        folder / files["image"],
        image,
        photometric=photometric,
        seed=member.seed,
        patient=member.patient,
        ImagerPixelSpacing=[edge * MAGNIFIED for edge in image.geometry.spacing],
        PixelSpacingCalibrationType="GEOMETRY",
        PixelSpacingCalibrationDescription="magnification of 1.06",
    )
    (folder / "masks").mkdir(exist_ok=True)
    Picture.fromarray(labels).save(folder / files["mask"])
    return files


def frame_of(
    body: np.random.Generator, own: np.random.Generator, shape: tuple[int, int] = SHAPE, pixel: float = PIXEL
) -> Frame:
    """Lays out a patient's chest on a grid of mm pixels."""
    rows, columns = (np.arange(n, dtype=np.float32) * np.float32(pixel) for n in shape)
    # Left and right are the patient's: in the picture the left is on the right.
    x = columns[None] - shape[1] * pixel / 2 - own.uniform(-9, 9)
    y = rows[:, None] - shape[0] * pixel / 2 - own.uniform(-9, 9)
    turn = np.deg2rad(own.uniform(-4, 4))
    x, y = np.cos(turn) * x + np.sin(turn) * y, np.cos(turn) * y - np.sin(turn) * x
    wander = [texture(body, shape, 45 * (PIXEL / pixel)) * np.float32(2.2) for _ in range(2)]
    x, y = x.astype(np.float32) + wander[0], y.astype(np.float32) + wander[1]
    half = body.uniform(112, 136)
    right = body.uniform(62, 88)
    top = body.uniform(-132, -112)
    narrow = 1 - 0.55 * np.clip((20 - y) / (20 - top), 0, 1) ** 2.6  # towards the top
    return Frame(pixel, x, y, half, top, (right, right + body.uniform(4, 14)), half * narrow * (1 + 0.0004 * y))


def lung_field(frame: Frame, left: bool) -> Array:
    """Lung field between midline, ribs and diaphragm."""
    side, base = frame.side(left)
    inner = 17 + 12 * np.clip((frame.y + 20) / 60, 0, 1)
    dome = base + 0.0042 * (side - 0.5 * frame.half) ** 2 - 4
    return (side > inner) & (side < frame.outline) & (frame.y > frame.top) & (frame.y < dome)


def heart_shadow(frame: Frame, body: np.random.Generator, wanted: float) -> Array:
    """Heart as rotated ellipse, near the wanted cardiothoracic width."""
    across = 2 * frame.half * wanted
    low = min(frame.base) - across * 0.30
    centre = (across * body.uniform(0.12, 0.2), low)
    turn = body.uniform(24, 36)
    long, short = 0.56 * across, 0.42 * across
    reach = np.hypot(long * np.cos(np.deg2rad(turn)), short * np.sin(np.deg2rad(turn)))
    scale = across / 2 / reach
    heart: Array = ball((frame.x, frame.y), centre, (long * scale, short * scale), turn=turn) < 1
    return heart & (frame.y < max(frame.base) + 6)


def _draw_findings(chest: Chest, frame: Frame, lung: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draws findings; returns remaining aeration and added density."""
    aerated, extra = lung.copy(), np.zeros(SHAPE, np.float32)
    effusion, pneumothorax, nodule = rng.random(3) < (0.35, 0.3, 0.4)
    wet = bool(rng.random() < 0.5)
    if effusion:
        fluid = fluid_of(frame, lung, wet, rng.uniform(16, 52))
        chest.marks["pleural effusion"] = (fluid > 0.5) & (chest.labels == 1)
        chest.sides["pleural effusion"] = "left" if wet else "right"
        aerated *= 1 - 0.9 * fluid
        extra += 0.25 * fluid
    if pneumothorax:
        left = not wet if effusion else wet
        free, pleura = free_air(frame, chest.labels == 1, left, rng.uniform(14, 30))
        chest.marks["pneumothorax"], chest.sides["pneumothorax"] = free, "left" if left else "right"
        extra += 0.3 * pleura
        extra -= 0.12 * free
    if nodule:
        _add_nodule(chest, frame, extra, rng)
    return aerated, extra


def fluid_of(frame: Frame, lung: Array, left: bool, height: float) -> Array:
    """Fluid share of pixels up to mm above a hemidiaphragm, (row, column).

    0 to 1.
    """
    side, base = frame.side(left)
    meniscus = base - height - 26 * np.clip((side / frame.half - 0.35) / 0.6, 0, 1) ** 3
    return step(frame.y - meniscus, 4) * lung * (side > 0)


def free_air(frame: Frame, inside: Array, left: bool, depth: float) -> tuple[Array, Array]:
    """Free air of one side, bool, and pleural line, (row, column).

    The line is from 0 to 1.

    `inside` holds the fields of the lungs, bool, (row, column); the depth of the air is in mm.
    """
    side, _ = frame.side(left)
    edge = np.minimum(frame.outline - side, (frame.y - frame.top) * 0.8) - depth * step(35 - frame.y, 45)
    free: Array = (edge < 0) & inside & (side > 0)
    pleura: Array = np.where(inside, np.exp(-((edge / 1.3) ** 2)), 0) * (side > 0)
    return free, pleura


def _add_nodule(chest: Chest, frame: Frame, extra: Array, rng: np.random.Generator) -> None:
    """Puts a ball where the lung is aerated."""
    radius = round(rng.uniform(6, 13), 2)
    free = chest.labels == 1
    for name in ("pleural effusion", "pneumothorax"):
        free &= ~_chest_mark(chest, name)
    free &= gaussian_filter(free.astype(np.float32), radius / PIXEL) > 0.9
    at = np.flatnonzero(free)
    if not at.size:
        return
    middle = np.unravel_index(at[rng.integers(at.size)], SHAPE)
    rows, columns = (np.arange(n, dtype=np.float32) for n in SHAPE)
    distance = np.hypot(rows[:, None] - middle[0], columns[None] - middle[1]) * PIXEL
    chest.marks["nodule"] = distance <= radius
    chest.sides["nodule"] = "left" if frame.x[middle] > 0 else "right"
    chest.diameter = 2 * radius
    extra += shadow_of_ball(distance, radius)


def shadow_of_ball(distance: Array, radius: float) -> Array:
    """Thickness of a ball with blurred edge, mm, (row, column)."""
    return (0.2 + 0.5 * np.sqrt(np.maximum(1 - (distance / radius) ** 2, 0))) * step(radius - distance, 1)


def _chest_mark(chest: Chest, name: str) -> Array:
    return chest.marks.get(name, np.zeros(SHAPE, bool))


def bones(frame: Frame, body: np.random.Generator) -> Array:
    """Ribs, collar bones and spine."""
    x, y = frame.x, frame.y
    across = np.abs(x) / frame.half
    inside = step(frame.outline + 5 - np.abs(x), 2)
    gap = body.uniform(23, 28)
    back = np.sin(2 * np.pi * (y + 46 * across**2 - 22 * across) / gap)
    front = np.sin(2 * np.pi * (y - 34 * across - 9) / (gap * 1.15))
    bone = 0.26 * step(back - 0.45, 0.25) * step(across - 0.1, 0.03)
    bone += 0.15 * step(front - 0.62, 0.22) * step(across - 0.3, 0.1) * step(y + 95, 12)
    bone *= inside * step(120 - y, 20)
    collar = np.abs(y - (frame.top + 26 - 26 * across + 12 * np.sin(3.4 * across)))
    bone += 0.36 * step(5 - collar, 1.5) * step(across - 0.1, 0.02) * step(1.25 - across, 0.05)
    vertebra = 0.8 + 0.2 * np.sign(np.sin(2 * np.pi * y / 27) + 0.7)
    return bone + 0.5 * step(17 - np.abs(x), 3) * vertebra


def soft_tissue(frame: Frame, heart: Array, body: np.random.Generator) -> Array:
    """Skin, muscle and fat, midline, heart, and the belly below the diaphragm."""
    x, y = frame.x, frame.y
    wall = body.uniform(22, 36)
    outline = frame.half * 1.02 + wall + 22 * np.clip((-60 - y) / 60, 0, 1)
    density = 0.9 * step(outline - np.abs(x), 3) + 0.2 * step(y + 150, 60)
    density += 0.22 * step(24 - np.abs(x), 6) + 0.3 * frame.blurred(heart.astype(np.float32), 2)
    for left in (False, True):
        side, base = frame.side(left)
        dome = base + 0.0042 * (side - 0.5 * frame.half) ** 2 - 4
        density += (0.34 if left else 0.42) * step(y - dome, 3) * step(side, 5) * step(frame.outline + 8 - side, 6)
    return density - 0.15


def vessels(frame: Frame, rng: np.random.Generator) -> Array:
    """Branches that thin out from the middle to the rim."""
    first = np.abs(frame.texture(rng, 16))
    second = np.abs(frame.texture(rng, 9))
    near = np.exp(-np.abs(np.abs(frame.x) - 25) / 45)
    total: Array = 0.42 * near * np.exp(-((first / 0.22) ** 2)) + 0.16 * np.exp(-((second / 0.2) ** 2))
    return total
