"""MR phantoms: T1-weighted heads with folded grey matter, ventricles and, in some, a lesion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.ndimage import distance_transform_edt, gaussian_filter

from medimg_eval.case import Array, Image, Mask
from medimg_eval.imaging.volumes import write_image, write_mask
from medimg_eval.phantoms.cohort import Member, Question, Record, yes_or_no
from medimg_eval.phantoms.shapes import ball, box, places, step, texture

LABELS = {1: "cerebrospinal fluid", 2: "grey matter", 3: "white matter", 4: "lesion"}
"""What the mask holds, in the order of brightness but for the lesion."""

SHAPE = (84, 100, 80)
EDGE = 1.9
"""Edge of a voxel in mm."""

BRIGHTNESS = {1: 0.22, 2: 0.58, 3: 0.88, 4: 0.4}
"""T1-weighted signal of each label; a lesion is darker than grey matter."""

TEXT = "images/CASE.nii.gz: T1-weighted heads; masks/CASE.nii.gz: " + ", ".join(f"{k} {v}" for k, v in LABELS.items())


@dataclass(frozen=True)
class Head:
    """One head and what is true of it.

    `image` is int16, (1, i, j, k), `labels` uint8, (i, j, k). Of a lesion there are `side` (`left` or `right`, else
    empty) and `diameter` in mm (0 without one).
    """

    image: Image
    labels: Array
    side: str
    diameter: float


def scan(member: Member) -> Head:
    """Makes one volume in memory."""
    body, own = member.body, member.own
    grid = _volume_affine(own)
    voxels = places(grid, SHAPE)  # x right, y front, z up
    size = body.uniform(0.93, 1.05)
    wander = [texture(body, SHAPE, 18) * np.float32(1.8) for _ in range(3)]
    at = [(p + w) / np.float32(size) for p, w in zip(voxels, wander, strict=True)]
    labels, deep = _brain_labels(at, body)
    side, diameter = _add_lesion(labels, voxels, own)
    signal = _t1_signal(at, labels, deep, own)
    # The scanner's sensitivity differs from place to place; the magnitude of complex noise is Rician.
    bias = np.exp(np.float32(own.uniform(0.08, 0.2)) * texture(own, SHAPE, [n / 1.6 for n in SHAPE]))
    signal = gaussian_filter(signal, 0.5, truncate=2.5) * bias
    noise = own.uniform(0.03, 0.06) * own.standard_normal((2, *SHAPE), dtype=np.float32)
    gain = own.uniform(350, 900)
    pixels = np.rint(np.hypot(signal + noise[0], noise[1]) * gain).astype(np.int16)
    return Head(Image(pixels[None], grid, "MR"), labels, side, diameter)


def write_case(folder: Path, member: Member) -> Record:
    """Writes one case's volume and mask."""
    head = scan(member)
    files = {"image": f"images/{member.case}.nii.gz", "mask": f"masks/{member.case}.nii.gz"}
    for name in files.values():
        (folder / name).parent.mkdir(exist_ok=True)
    write_image(folder / files["image"], head.image)
    write_mask(folder / files["mask"], Mask(head.labels, head.image.affine))
    present = head.diameter > 0
    record = Record(files=files, findings={"lesion": present})
    for label, name in LABELS.items():
        record.measurements.append((f"{name} volume", float((head.labels == label).sum()) * EDGE**3 / 1000, "ml"))
    record.questions = [yes_or_no("Is there a lesion in the white matter?", present)]
    if present:
        record.measurements.append(("lesion diameter", head.diameter, "mm"))
        record.boxes.append(("lesion", None, box(head.labels == 4)))
        record.questions.append(Question("In which hemisphere does the lesion lie?", head.side, ("left", "right")))
    return record


def _volume_affine(rng: np.random.Generator) -> Array:
    """Affine to RAS+ mm; half are flipped, all slightly tilted."""
    a, b, c = np.deg2rad(rng.uniform(-6, 6, 3))
    about_x = np.array([[1, 0, 0], [0, np.cos(a), -np.sin(a)], [0, np.sin(a), np.cos(a)]])
    about_y = np.array([[np.cos(b), 0, np.sin(b)], [0, 1, 0], [-np.sin(b), 0, np.cos(b)]])
    about_z = np.array([[np.cos(c), -np.sin(c), 0], [np.sin(c), np.cos(c), 0], [0, 0, 1]])
    affine = np.eye(4)
    affine[:3, :3] = about_x @ about_y @ about_z * EDGE
    if rng.random() < 0.5:
        affine[:3, 0] *= -1
    affine[:3, 3] = rng.uniform(-4, 4, 3) - affine[:3, :3] @ ((np.array(SHAPE) - 1) / 2)
    return affine.astype(np.float32).astype(np.float64)  # what NIfTI stores


def _brain_labels(at: Sequence[Array], rng: np.random.Generator) -> tuple[Array, Array]:
    """Labels, and the deep grey nuclei among them."""
    x, y, z = at
    outline = np.sqrt(ball(at, (0, -4, 8), (62, 78, 58)))
    inside = outline < 1
    # The temporal lobes reach lower than the frontal ones.
    base = -24 - 15 * step(np.abs(x) - 18, 5) * step(22 - y, 8) + 10 * step(y - 26, 14)
    cerebrum = inside & (z > base)
    cerebellum = (ball(at, (0, -44, -34), (46, 30, 22)) < 1) & ~cerebrum
    stem = (ball((x, y), (0, -16), (12, 12)) < 1) & (z > -62) & (z < 0)
    folds = texture(rng, SHAPE, 6)
    fine = texture(rng, SHAPE, 3)
    # Furrows run where a texture is near zero, down to 22 mm, and between the hemispheres.
    depth = (1 - outline) * 64
    furrow = (np.abs(folds) < 0.2 * (1 - depth / 22)) & (depth < 22)
    midline = (np.abs(x) < 1.6) & ((depth < 24) & (z > -10))
    surface = ~cerebrum | (z < base + 2) | furrow | midline | (depth < 2.2)
    ribbon = distance_transform_edt(~surface) * EDGE < 4.2
    labels = np.zeros(SHAPE, np.uint8)
    labels[inside & (z > base - 5) | cerebellum] = 1
    labels[cerebrum & ~surface] = np.where(ribbon, 2, 3)[cerebrum & ~surface]
    leaves = np.abs(fine) > 0.45
    labels[cerebellum] = np.where(leaves & (ball(at, (0, -44, -34), (40, 24, 17)) < 1), 3, 2)[cerebellum]
    labels[stem] = 3
    wide = rng.uniform(0.8, 1.5)
    deep = np.zeros(SHAPE, bool)
    ventricles = ball(at, (0, -12, 4), (2.2 * wide, 14, 9)) < 1
    for sign in (-1, 1):
        deep |= ball(at, (sign * 12, -16, 6), (9, 14, 9)) < 1
        deep |= ball(at, (sign * 24, 2, 6), (7, 18, 12), turn=sign * 15) < 1
        ventricles |= ball(at, (sign * 12, 4, 18), (6 * wide, 26, 7 * wide), turn=sign * 12) < 1
        ventricles |= ball(at, (sign * 22, -36, 10), (6 * wide, 14, 11 * wide), turn=sign * -20) < 1
    labels[deep] = 2
    labels[ventricles] = 1
    return labels, deep & ~ventricles


def _add_lesion(labels: Array, places: Sequence[Array], rng: np.random.Generator) -> tuple[str, float]:
    """Adds a white-matter ball to 60 % of cases; returns side and size."""
    if rng.random() > 0.6:
        return "", 0.0
    radius = round(rng.uniform(6, 12), 2)
    x, _, z = places
    # The middle lies in white matter, deep enough for the ball to stay within the brain; it may reach into folds.
    depth = distance_transform_edt(labels > 0) * EDGE
    at = np.flatnonzero((labels == 3) & (np.abs(x) > radius + 6) & (z > 5) & (depth > radius + 8))
    middle = np.unravel_index(at[rng.integers(at.size)], SHAPE)
    distance = sum((p - p[middle]) ** 2 for p in places)
    labels[distance <= radius**2] = 4
    return ("right" if x[middle] > 0 else "left"), 2 * radius


def _t1_signal(at: Sequence[Array], labels: Array, deep: Array, rng: np.random.Generator) -> Array:
    """T1-weighted signal of brain, skull, scalp and face; white matter is about 0.9."""
    z = at[2]
    head = np.sqrt(ball(at, (0, -2, 2), (74, 92, 72)))
    head = np.minimum(head, np.sqrt(ball(at, (0, 6, -60), (56, 70, 60))))
    signal = np.zeros(SHAPE, np.float32)
    flesh = 0.45 + 0.12 * texture(rng, SHAPE, 5)
    signal[head < 1] = flesh[head < 1]
    skull = np.sqrt(ball(at, (0, -4, 6), (69, 86, 65))) < 1
    signal[skull & (z > -40)] = 0.1
    signal[(ball(at, (0, 66, -40), (18, 20, 18)) < 1)] = 0.05  # air in the nose
    scalp = (head < 1) & (head > 0.955)
    signal[scalp] = 1.05
    fine = texture(rng, SHAPE, 4)
    for label, mean in BRIGHTNESS.items():
        part = labels == label
        signal[part] = mean + (0.035 if label > 1 else 0.015) * fine[part]
    signal[deep & (labels == 2)] += 0.1
    return signal
