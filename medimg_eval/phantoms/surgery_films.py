"""Films of a made-up resection: phases, instruments and the onset of a bleeding, in the endoscopy phantom's tube."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array, Case
from medimg_eval.data.layouts import FrameRows, Frames
from medimg_eval.data.splits import SplitTable
from medimg_eval.errors import UserError
from medimg_eval.imaging.video import write_video
from medimg_eval.phantoms.cohort import SPLITS, Member, cohort, cohort_folder, write_rows
from medimg_eval.phantoms.endoscopy import SHAPE, draw_frame, draw_lens, draw_polyp, draw_wall

KIND = "surgery_films"

PHASES = ("insertion", "inspection", "resection", "haemostasis", "withdrawal")

PRESENCE = ("snare", "clip applier", "bleeding")

LENGTHS = {
    "insertion": (14, 26),
    "inspection": (8, 20),
    "resection": (16, 30),
    "haemostasis": (8, 18),
    "withdrawal": (10, 22),
}
"""Seconds of each phase; in every fifth patient nothing bleeds, and there is no haemostasis."""

README = """These are phantoms: drawn by a program, of no patient. Films of a made-up resection, a frame a second.
Numbers measured on them show that a tool works, not how well it does on patients.

videos/FILM.mp4; labels/FILM.csv: frame, phase, and whether snare, clip applier and bleeding are seen (1) or not (0).
cases.csv: film, patient, split.
"""


@dataclass(frozen=True, eq=False)
class Course:
    """Phases of a film, and bool (frame,) by `PRESENCE`."""

    phases: Array
    shown: dict[str, Array]


@dataclass
class SurgeryFilms:
    """Films of a made-up resection as `WorkflowTask` takes them.

    `root` holds `surgery_films` (None keeps it in the cache), written on first use; `count` is that of films over all
    splits: of 8, 4 to fit on, 1 to validate on and 3 to test on. With `features`, a row of them stands in the place of
    each frame: arrays FILM.npy in that folder.
    """

    root: str | None = None
    count: int = 24
    seed: int = 0
    features: str = ""

    def cases(self, split: str) -> list[Case]:
        """Films of `fit`, `validate` or `test`, disjoint by patient.

        Raises UserError where there is no such split, or the films cannot be written.
        """
        UserError.refuse_unknown("phantoms have no split", SPLITS, split)
        folder = cohort_folder(KIND, self.root, self.count, self.seed, _fill_folder)
        features = str(Path(self.features).absolute() / "{video}.npy") if self.features else ""
        layout = Frames(
            root=str(folder),
            video="videos/{video}.mp4",
            features=features,
            labels=FrameRows("labels/{video}.csv", "frame"),
            splits=SplitTable("cases.csv", "film"),
        )
        return layout.cases(split)


def draw_course(member: Member) -> Course:
    """Events of a film of a member of a cohort."""
    rng = member.own
    bleeds = not member.healthy
    phases = [name for name in PHASES if bleeds or name != "haemostasis"]
    named = np.concatenate([np.full(rng.integers(*LENGTHS[name]), name, object) for name in phases])
    frames = np.arange(len(named))
    resected = np.flatnonzero(named == "resection")
    onset = int(rng.integers(resected[len(resected) // 3], resected[-1] - 2))
    stopped = np.flatnonzero(named == "haemostasis")
    snare = (
        (named == "resection")
        & (frames < resected[-1] - rng.integers(1, 5))
        & (frames >= resected[0] + rng.integers(0, 3))
    )
    applier = (named == "haemostasis") & (rng.random(len(named)) < 0.85)
    bleeding = (frames >= onset) & (frames <= (stopped[-2] if bleeds else -1))
    return Course(named, dict(zip(PRESENCE, (snare, applier, bleeding), strict=True)))


def draw_frames(member: Member, course: Course) -> Iterator[Array]:
    """Yields the frames of a film, uint8, (row, column, 3)."""
    rng = np.random.default_rng([member.seed, 7_000_000 + member.index])
    wall, polyp, lens = draw_wall(member.body), draw_polyp(rng), draw_lens()
    near = polyp.along - 1.2
    speeds = {"insertion": 0.16, "withdrawal": -0.16}
    inserted = int((course.phases == "insertion").sum())
    camera, spin = near - 0.16 * inserted, rng.uniform(0, 2 * np.pi)
    side, light = rng.uniform(-0.8, 0.8), rng.uniform(0.85, 1.15)
    removed = np.flatnonzero(course.phases == "resection")[-1]
    bled = 0
    for number, phase in enumerate(course.phases.tolist()):
        camera += speeds.get(phase, 0.0) + 0.02 * rng.standard_normal()
        spin += 0.03 * rng.standard_normal()
        there = polyp if number <= removed else None
        pixels, _ = draw_frame(wall, there, float(camera), 4 * rng.standard_normal(2), float(spin))
        visible = {name: bool(values[number]) for name, values in course.shown.items()}
        bled = bled + 1 if visible["bleeding"] else 0
        _draw_blood(pixels, bled, side)
        if visible["snare"]:
            _draw_rod(pixels, side, (205, 205, 215), 4)
        if visible["clip applier"]:
            _draw_rod(pixels, side - 0.9, (70, 110, 190), 7)
        grain = 4 * rng.standard_normal((*SHAPE, 1), dtype=np.float32)
        yield np.clip((pixels * light + grain) * lens[..., None] + 6, 0, 255).astype(np.uint8)


def _draw_rod(pixels: Array, angle: float, colour: tuple[int, int, int], width: int) -> None:
    """An instrument from the lower edge towards the middle, in place."""
    rows, columns = np.mgrid[: SHAPE[0], : SHAPE[1]].astype(np.float32)
    down, right = np.cos(angle), np.sin(angle)
    along = (rows - SHAPE[0] / 2) * down + (columns - SHAPE[1] / 2) * right
    across = (columns - SHAPE[1] / 2) * down - (rows - SHAPE[0] / 2) * right
    inside = (along > 12) & (np.abs(across) < width)
    pixels[inside] = np.array(colour) * (1 - 0.5 * (np.abs(across[inside]) / width) ** 2)[:, None]


def _draw_blood(pixels: Array, seconds: int, angle: float) -> None:
    """Blood that spreads, in place."""
    if seconds:
        rows, columns = np.mgrid[: SHAPE[0], : SHAPE[1]].astype(np.float32)
        centre = SHAPE[0] / 2 + 26, SHAPE[1] / 2 + 30 * np.sin(angle)
        radius = min(10 + 3.5 * seconds, 46)
        share = np.clip((radius - np.hypot(rows - centre[0], columns - centre[1])) / 8, 0, 0.85)[..., None]
        pixels *= 1 - share
        pixels += share * np.array([150, 12, 14])


def _fill_folder(folder: Path, stamp: Mapping[str, Any]) -> None:
    members = cohort("film", stamp["cases"], stamp["seed"])
    for name in ("videos", "labels"):
        (folder / name).mkdir()
    for member in members:
        course = draw_course(member)
        write_video(
            folder / f"videos/{member.case}.mp4", (frame for frame in draw_frames(member, course)), 1, lossless=False
        )
        columns = [course.phases, *(values.astype(int) for values in course.shown.values())]
        rows = ([number, *values] for number, values in enumerate(zip(*columns, strict=True)))
        write_rows(folder / f"labels/{member.case}.csv", ["frame", "phase", *PRESENCE], rows)
    write_rows(folder / "cases.csv", ["film", "patient", "split"], ([m.case, m.patient, m.split] for m in members))
    (folder / "README.txt").write_text(README, encoding="utf-8")
