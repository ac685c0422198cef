"""Multi-coil phantoms: slices of the MNI152 brain as a scanner with several coils would have measured them.

The brain is the template that ships inside nilearn, a real average brain; coils, phase, noise and sampling are made up.
Files are those of fastMRI: HDF5 with `kspace` (slice, coil, ky, kx), `mask` (kx,) and `reconstruction_rss`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from medimg_eval.case import Array, Case, Image, Mask, Reference
from medimg_eval.data.layouts.kspace import Reconstruction, Samples
from medimg_eval.data.mni152 import template_file, tissue_labels
from medimg_eval.data.records import OnImage
from medimg_eval.errors import UsageError, UserError
from medimg_eval.imaging import ImageFile
from medimg_eval.imaging.kspace import PRESETS, inverse_fft
from medimg_eval.phantoms.cohort import write_once
from medimg_eval.phantoms.shapes import texture
from medimg_eval.system import user_cache
from medimg_eval.tasks.reconstruction import Lines, Sampling

VERSION = 1
"""Raised whenever the same seed comes to give other files."""

SHAPE = (224, 192)
"""Rows (front to back) and columns (side to side) of a slice, 1 mm each."""

LEVELS = {"fit": (94, 134), "validate": (84, 92), "test": (50, 82)}
"""First and last axial voxel of the template by split: no slice is in two."""

SEEN_COILS, UNSEEN_COILS = (6, 10), (4, 16)
"""Numbers of coils that scans to fit on have, and further ones that only tests have."""

SEEN_ACCELERATIONS, UNSEEN_ACCELERATIONS = (4.0,), (8.0,)
"""Accelerations, likewise."""

CENTRE = {4.0: 0.08, 8.0: 0.04}
"""The share of lines in the middle, by acceleration, as fastMRI has them."""

PATTERN = ("test", "fit", "fit", "validate", "fit", "test")
"""The split of one patient after another, over and over."""


@dataclass(frozen=True)
class Scan:
    """Scan to be measured.

    Its `case` is an id such as `multicoil-003-c16-r8`; `number` is that of the patient, from 0 on.
    """

    case: str
    patient: str
    number: int
    split: str
    coils: int
    sampling: Sampling

    @property
    def attributes(self) -> dict[str, str]:
        """Attributes for tables; fit scans are `seen` or `unseen`."""
        words = {True: "seen", False: "unseen"}
        return {
            "coils": str(self.coils),
            "coil_count": words[self.coils in SEEN_COILS],
            "acceleration": f"{self.sampling.acceleration:g}",
            "acceleration_factor": words[self.sampling.acceleration in SEEN_ACCELERATIONS],
            "lines": self.sampling.lines,
        }


@dataclass
class MulticoilPhantom:
    """Scans of made-up patients, written on first use.

    A patient to fit or validate on has one scan, of a seen number of coils and acceleration. One to test on has four:
    seen and unseen numbers of coils, each with the seen and the unseen acceleration. Every other patient's lines are
    equispaced, the others' random.

    Args:
        count: how many patients, over all splits; of six, two are tested on, three fitted on, one validates.
        slices: of each scan.
        seed: of the cohort.
        root: the folder; None keeps the files in the cache (`MEDIMG_EVAL_CACHE`, or ~/.cache/medimg_eval).
    """

    count: int = 18
    slices: int = 2
    seed: int = 0
    root: str | None = None

    def cases(self, split: str) -> list[Case]:
        """Cases of `fit`, `validate` or `test`, disjoint by patient and slice.

        Raises:
            UsageError: no patient or slice is asked for, or the seed is negative.
            UserError: there is no such split, or the files cannot be written.
        """
        UserError.refuse_unknown("phantoms have no split", LEVELS, split)
        if self.count < 1 or not 1 <= self.slices <= 8 or self.seed < 0:
            raise UsageError(
                "multi-coil phantoms: expected at least one patient, 1 to 8 slices and a seed from 0 on, got "
                f"count={self.count}, slices={self.slices}, seed={self.seed}"
            )
        folder = self._written()
        return [_make_case(folder, scan) for scan in scans(self.count, self.seed) if scan.split == split]

    def _written(self) -> Path:
        stamp = {"kind": "multicoil", "version": VERSION, "count": self.count, "slices": self.slices, "seed": self.seed}
        folder = user_cache() / "phantoms" / f"multicoil-v{VERSION}-{self.count}-{self.slices}-{self.seed}"
        if self.root is not None:
            folder = Path(self.root).expanduser()

        def fill(partial: Path) -> None:
            for scan in scans(self.count, self.seed):
                write_scan(partial / f"{scan.case}.h5", scan, slices=self.slices, seed=self.seed)

        write_once(folder, stamp, fill)
        return folder


@dataclass
class MulticoilTissue(MulticoilPhantom):
    """Scans with full-sample images, and grey and white matter.

    The tissue is the template's, bent as the patient is. Arguments and files are those of `MulticoilPhantom`.
    """

    def cases(self, split: str) -> list[Case]:
        """The cases of `fit`, `validate` or `test`, as `MulticoilPhantom` has them."""
        scans_ = {scan.case: scan for scan in scans(self.count, self.seed)}
        return [
            replace(
                case,
                images=(case.target,),
                target=Tissue(case.target, scans_[case.id].split, scans_[case.id].number, self.slices, self.seed),
            )
            for case in super().cases(split)
        ]


@dataclass(frozen=True)
class Tissue(OnImage):
    """Which tissue lies where in a scan: 1 grey matter, 2 white matter.

    It has the grid of `image`; `split` and `number` are the patient's, `slices` and `seed` those of the cohort.
    """

    image: Reference[Image]
    split: str
    number: int
    slices: int
    seed: int

    @property
    def files(self) -> tuple[Path, ...]:
        """The probability maps of the template."""
        return (template_file("gm"), template_file("wm"))

    def read(self) -> Mask:
        """Returns labels as uint8, (slice, row, column)."""
        labels = tissue(self.split, self.slices, np.random.default_rng([self.seed, self.number]))
        return Mask(labels, np.eye(4), units="pixel")


def scans(count: int, seed: int) -> list[Scan]:
    """Scans of the first patients; more patients extend fewer."""
    scans: list[Scan] = []
    for number in range(count):
        split = PATTERN[number % len(PATTERN)]
        patient = f"multicoil-{number:03d}"
        coils_ = SEEN_COILS[number % 2]
        conditions = [(coils_, SEEN_ACCELERATIONS[0])]
        if split == "test":
            unseen = UNSEEN_COILS[number // 3 % 2]
            conditions = [
                (coils, rate) for coils in (coils_, unseen) for rate in (*SEEN_ACCELERATIONS, *UNSEEN_ACCELERATIONS)
            ]
        for coils, rate in conditions:
            lines: Lines = "equispaced" if number // 2 % 2 else "random"
            sampling = Sampling(acceleration=rate, centre=CENTRE[rate], lines=lines, seed=seed)
            scans.append(Scan(f"{patient}-c{coils}-r{rate:g}", patient, number, split, coils, sampling))
    return scans


def write_scan(path: Path, scan: Scan, *, slices: int, seed: int) -> None:
    """Writes a patient's undersampled k-space, mask and image as fastMRI.

    `reconstruction_rss` is the root of the sum of squares of all lines, with their noise, as in fastMRI.
    """
    import h5py

    body = np.random.default_rng([seed, scan.number])
    own = np.random.default_rng([seed, scan.number, scan.coils])
    picture = anatomy(scan.split, slices, body)
    maps = coil_maps(scan.coils, own)
    full = forward(picture[:, None] * maps)
    level = body.uniform(0.002, 0.006) * float(np.abs(picture).max())
    noise = own.standard_normal((2, *full.shape), dtype=np.float32)
    full = (full + level / np.sqrt(2) * (noise[0] + 1j * noise[1])).astype(np.complex64)
    target = np.sqrt(np.square(np.abs(inverse_fft(full, (2, 3)))).sum(axis=1)).astype(np.float32)
    lines = np.random.default_rng([seed, scan.number, int(scan.sampling.acceleration)])
    mask = scan.sampling.mask(SHAPE[1], lines)
    with h5py.File(path, "w", track_order=True) as file:
        options = {"compression": "gzip", "compression_opts": 1}
        file.create_dataset("kspace", data=full * mask.astype(np.float32), chunks=(1, 1, *SHAPE), **options)
        file.create_dataset("mask", data=mask.astype(np.float32))
        file.create_dataset("reconstruction_rss", data=target, chunks=(1, *SHAPE), **options)
        file.attrs.update(acquisition="AXT1", max=float(target.max()), norm=float(np.linalg.norm(target)))


def anatomy(split: str, slices: int, rng: np.random.Generator) -> Array:
    """Warped template slices, new contrast and phase, complex64, (slice, row, column).

    The slices are neighbours 2 mm apart, out of the levels of the split; the numbers are the patient's.
    """
    from scipy.ndimage import map_coordinates

    level, positions = _bend_patient(split, slices, rng)
    brain = _brain_template()[level : level + 2 * slices : 2]
    power, turn = rng.uniform(0.8, 1.25), rng.uniform(-1, 1)
    phase = turn * texture(rng, SHAPE, 90)
    gain = rng.uniform(2e-4, 8e-4)  # of the order of fastMRI's brains
    sampled = [np.clip(map_coordinates(tissue_map, positions, order=1), 0, 1) ** power for tissue_map in brain]
    image: Array = (gain * np.stack(sampled) * np.exp(1j * phase)).astype(np.complex64)
    return image


def tissue(split: str, slices: int, rng: np.random.Generator) -> Array:
    """Grey (1) and white matter (2) of `anatomy`, uint8, (slice, row, column)."""
    from scipy.ndimage import map_coordinates

    level, positions = _bend_patient(split, slices, rng)
    labels = _template_tissue()[level : level + 2 * slices : 2]
    return np.stack([map_coordinates(label, positions, order=0) for label in labels])


def _bend_patient(split: str, slices: int, rng: np.random.Generator) -> tuple[int, Array]:
    """First level of a patient, and source positions, float32, (axis, row, column)."""
    first, last = LEVELS[split]
    level = int(rng.integers(first, last - 2 * (slices - 1) + 1))
    positions = np.mgrid[: SHAPE[0], : SHAPE[1]].astype(np.float32)
    middle = np.array(SHAPE, np.float32)[:, None, None] / 2
    inside = np.array(_brain_template().shape[1:], np.float32)[:, None, None] / 2
    bent = np.stack([texture(rng, SHAPE, 50) * np.float32(2.5) for _ in range(2)])
    return level, ((positions - middle) / np.float32(rng.uniform(0.92, 1.03)) + inside + bent).astype(np.float32)


def coil_maps(coils: int, rng: np.random.Generator) -> Array:
    """Sensitivities of ring coils, complex64, (coil, row, column), squares summing to 1."""
    rows, columns = (np.arange(n, dtype=np.float32) - n / 2 for n in SHAPE)
    angles = 2 * np.pi * (np.arange(coils) + rng.uniform(0, 1)) / coils + rng.normal(0, 0.05, coils)
    maps = np.empty((coils, *SHAPE), np.complex64)
    for index, angle in enumerate(angles):
        radius, reach = rng.uniform(115, 130), rng.uniform(70, 90)
        down, across = rows[:, None] - radius * np.cos(angle), columns[None] - radius * np.sin(angle)
        size = (1 + (down**2 + across**2) / reach**2) ** -1.5  # the field of a loop along its axis
        maps[index] = size * np.exp(1j * (np.arctan2(across, down) + rng.uniform(0, 2 * np.pi)))
    normalised: Array = maps / np.sqrt(np.square(np.abs(maps)).sum(axis=0))
    return normalised


def forward(images: Array) -> Array:
    """Orthonormal FFT along the last two axes, the lowest frequency in the middle."""
    from scipy import fft

    axes = (-2, -1)
    return np.fft.fftshift(fft.fft2(np.fft.ifftshift(images, axes), norm="ortho"), axes)


@lru_cache(maxsize=1)
def _brain_template() -> Array:
    """Brain template in [0, 1], float32, (level, row, column), front first."""
    volume = ImageFile(template_file("t1")).read().array[0].astype(np.float32)
    return np.ascontiguousarray(volume.transpose(2, 1, 0)[:, ::-1] / np.quantile(volume, 0.999))


@lru_cache(maxsize=1)
def _template_tissue() -> Array:
    """Grey and white matter of the template, uint8, as `_brain_template` lies."""
    return np.ascontiguousarray(tissue_labels().transpose(2, 1, 0)[:, ::-1])


def _make_case(folder: Path, scan: Scan) -> Case:
    path = folder / f"{scan.case}.h5"
    keys = PRESETS["fastmri"]
    return Case(scan.case, (Samples(path, keys),), Reconstruction(path, keys), scan.patient, scan.attributes)
