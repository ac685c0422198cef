"""A torso from the kidneys to the top of the lungs, in Hounsfield units, with a label for every organ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from medimg_eval.case import Array
from medimg_eval.phantoms.shapes import ball, step, texture

LABELS = {1: "lung", 2: "heart", 3: "liver", 4: "spleen", 5: "kidney", 6: "bone"}
"""The organs of the mask."""

PLAIN = {2: 42.0, 3: 58.0, 4: 50.0, 5: 34.0, 6: 360.0}
"""HU of the organs without contrast medium; lungs and lesions are treated on their own."""

PORTAL = {2: 105.0, 3: 112.0, 4: 122.0, 5: 165.0, 6: 365.0}
"""HU of the organs in the portal-venous phase."""


@dataclass(frozen=True)
class Build:
    """What one patient's torso looks like; lengths in mm.

    Attributes:
        width: half the width of the chest.
        depth: half its depth.
        fat: thickness under the skin.
        dome: height of the right half of the diaphragm above the middle of the volume.
        scale: size of the organs.
        warp: how far outlines wander from their plain shapes.
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
    """A patient's organs at given places.

    Args:
        places: x (left), y (back) and z (up) of every voxel in mm, float32, each of the full shape.
        build: the patient.
        body: numbers that belong to the patient.

    Attributes:
        labels: uint8, keys of `LABELS`.
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
        """Values without noise and blur, float32.

        Args:
            rng: numbers that belong to the scan.
            contrast: portal-venous phase instead of none.
        """
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
        """Air that is denser at the back, and vessels that branch where two textures are both near zero."""
        shape = hu.shape
        _, y, _ = self._at
        lung = self.labels == 1
        first, second = (texture(rng, shape, [n / 20 for n in shape]) for _ in range(2))
        vessel = np.exp(-(first**2 + second**2) / 0.03)
        air = -862 + 0.25 * (y + 60) + 22 * fine + 760 * vessel
        hu[lung] = np.minimum(air, 20)[lung]
        hu[self.airway] = -985
