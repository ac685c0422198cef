"""Chest X-ray phantoms with reports: small DICOM pictures of many findings, worded in many ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from medimg_eval.case import Array, Case, Image
from medimg_eval.data.records import Given
from medimg_eval.errors import UsageError, UserError
from medimg_eval.imaging import ImageFile
from medimg_eval.phantoms.cohort import (
    ATTRIBUTES,
    REPORTS,
    SPLITS,
    Member,
    Record,
    folder_of,
    read_rows,
    write_phantoms,
    yes_or_no,
)
from medimg_eval.phantoms.report import DESCRIBED, Finding, sections
from medimg_eval.phantoms.shapes import ball, box, step
from medimg_eval.phantoms.xray import (
    ENLARGED,
    Frame,
    bones,
    exposed,
    fluid_of,
    frame_of,
    free_air,
    heart_shadow,
    lung_field,
    ratio,
    shadow_of_ball,
    soft_tissue,
    write_x_ray,
)
from medimg_eval.question import Key, Question

ABOUT = "chest X-rays with reports: small DICOM pictures, findings of known side and size, varied wording"
"""What `phantom` says of them; the other kinds, `KINDS`, are segmented."""

SHAPE = (144, 152)
PIXEL = 2.4
"""Edge of a pixel in mm."""

CARINA = -42.0
"""Height in mm at which the windpipe divides."""

OFTEN: Mapping[str, float] = {
    "cardiomegaly": 0.35,
    "pleural effusion": 0.35,
    "pneumothorax": 0.35,
    "nodule": 0.35,
    "consolidation": 0.35,
    "edema": 0.25,
    "pacemaker": 0.25,
    "endotracheal tube": 0.25,
}
"""How often a patient who is not healthy has a finding."""

ZONES: Mapping[str, tuple[float, float]] = {"upper": (-85, -40), "mid": (-25, 10), "lower": (25, 55)}
"""Heights in mm at which the middle of something lies that is said to be there."""

README = """These are phantoms: drawn by a program, of no patient. Chest X-rays with reports.
Made by: python -m medimg_eval phantom kinds=[{kind}] cases={cases} seed={seed} (version {version})
Numbers measured on them show that a tool works, not how well it does on patients.

"""

TEXTS = ("report", "findings", "impression", "indication")

TEXT = (
    "images/CASE.dcm: chest X-rays from the front, 2.4 mm a pixel, MONOCHROME2 and MONOCHROME1 in turn; "
    "masks/CASE.png: 1 lung, 2 heart. cases.csv holds each report: the whole of it, and its sections. What is said to "
    "be there is there, with its side and size; what is there is said. Left and right are the patient's: the patient's "
    "left is on the right of the picture"
)


@dataclass
class _Chest:
    """Drawn chest: aeration, added density and report."""

    frame: Frame
    labels: Array
    aerated: Array
    extra: Array
    found: list[Finding]
    marks: list[tuple[str, Array]]


@dataclass(frozen=True)
class Drawn:
    """One X-ray and what is true of it.

    `image` is uint16, (1, row, column), bright where dense; `labels` uint8, (row, column), 1 lung, 2 heart; `marks`
    name findings and hold their places, bool, (row, column); `ratio` is the width of the heart over that of the chest.
    """

    image: Image
    labels: Array
    found: tuple[Finding, ...]
    marks: tuple[tuple[str, Array], ...]
    ratio: float


def picture(member: Member) -> Drawn:
    """Makes one X-ray in memory."""
    body, own = member.body, member.own
    frame = frame_of(body, own, SHAPE, PIXEL)
    has = {name: not member.healthy and bool(own.random() < often) for name, often in OFTEN.items()}
    heart = heart_shadow(frame, body, own.uniform(0.53, 0.66) if has["cardiomegaly"] else own.uniform(0.36, 0.45))
    labels = np.zeros(SHAPE, np.uint8)
    labels[lung_field(frame, False) | lung_field(frame, True)] = 1
    labels[heart] = 2
    lung = np.where(labels == 1, np.float32(1), np.float32(0))
    chest = _Chest(frame, labels, lung, np.zeros(SHAPE, np.float32), [], [])
    wide = ratio(labels)
    if wide > ENLARGED:
        chest.found.append(Finding("cardiomegaly", size=wide))
        chest.marks.append(("cardiomegaly", heart))
    air = np.zeros(SHAPE, bool)
    wet = _add_effusion(chest, own) if has["pleural effusion"] else ""
    if has["pneumothorax"] and wet != "both":
        air = _add_pneumothorax(chest, own, {"left": False, "right": True}.get(wet, bool(own.random() < 0.5)))
    for name, draw in {"edema": _add_edema, "consolidation": _add_consolidation, "nodule": _add_nodule}.items():
        if has[name]:
            draw(chest, own, air)
    for name, draw_device in {"pacemaker": _add_pacemaker, "endotracheal tube": _add_tube}.items():
        if has[name]:
            draw_device(chest, own)
    density = bones(frame, body) + soft_tissue(frame, heart, body) + chest.extra
    image = exposed(frame, density, chest.aerated, ~air, own)
    return Drawn(image, labels, tuple(chest.found), tuple(chest.marks), wide)


def write_case(folder: Path, member: Member) -> Record:
    """Writes one case's X-ray and mask."""
    drawn = picture(member)
    files = write_x_ray(folder, drawn.image, drawn.labels, member)
    there = {finding.name for finding in drawn.found}
    record = Record(files=files, findings={name: name in there for name in DESCRIBED})
    record.boxes = [(name, None, box(mark)) for name, mark in drawn.marks if mark.any()]
    record.measurements = [("cardiothoracic ratio", drawn.ratio, "")]
    record.measurements += [(f"{finding.name} size", finding.size, "mm") for finding in drawn.found if finding.size > 1]
    record.texts = sections(drawn.found, member.words)
    record.report = f"FINDINGS: {record.texts['findings']} IMPRESSION: {record.texts['impression']}"
    record.questions = [yes_or_no(f"Does the X-ray show {name}?", finding) for name, finding in record.findings.items()]
    return record


@dataclass
class ChestReports:
    """Chest X-ray phantoms whose reports are asked for.

    Args:
        root: folder that holds `chest_reports`, as `python -m medimg_eval phantom out=ROOT kinds=[chest_reports]` makes
            it; None keeps it in the cache (`MEDIMG_EVAL_CACHE`, or ~/.cache/medimg_eval). Written on first use.
        count: cases, over all splits.
        text: what is asked for: `report`, `findings` or `impression`.
        question: how it is asked for.
    """

    root: str | None = None
    count: int = 600
    seed: int = 0
    text: str = "report"
    question: str = "Write the report of this chest X-ray."

    def cases(self, split: str) -> list[Case]:
        """Cases of `fit`, `validate` or `test`, disjoint by patient.

        Raises:
            UsageError: there is no such text.
            UserError: there is no such split, or the phantoms cannot be written.
        """
        UsageError.refuse_invalid("task.layout.text", TEXTS, self.text)
        UserError.refuse_unknown("phantoms have no split", SPLITS, split)
        folder = folder_of(REPORTS, self.root, self.count, self.seed)
        write_phantoms(REPORTS, folder, cases=self.count, seed=self.seed)
        table = folder / "cases.csv"
        return [self._case(table, row) for row in read_rows(table) if row["split"] == split]

    def with_findings(self, split: str) -> list[tuple[Case, Path, Mapping[str, str]]]:
        """The cases, each with the table of findings and its row in it."""
        table = folder_of(REPORTS, self.root, self.count, self.seed) / "findings.csv"
        cases = self.cases(split)
        rows = {row["case"]: row for row in read_rows(table)}
        return [(case, table, rows[case.id]) for case in cases]

    def _case(self, table: Path, row: Mapping[str, str]) -> Case:
        image = ImageFile(table.parent / row["image"], modality="DX")
        attributes = {name: row[name] for name in ATTRIBUTES}
        question = Question(self.question, "report", fields={"indication": row["indication"]})
        key = Given(Key(row[self.text]), (table,))
        return Case(row["case"], (image,), key, row["patient"], attributes, question)


def _add_effusion(chest: _Chest, rng: np.random.Generator) -> str:
    """Puts fluid above the diaphragm, on one side or on both; returns which."""
    both, left = bool(rng.random() < 0.25), bool(rng.random() < 0.5)
    heights = {side: rng.uniform(22, 76) for side in ((left, not left) if both else (left,))}
    fluid = np.zeros(SHAPE, np.float32)
    for side_, height in heights.items():
        fluid += fluid_of(chest.frame, chest.aerated, side_, height)
    chest.aerated = chest.aerated * (1 - 0.9 * fluid)
    chest.extra += 0.25 * fluid
    larger = "left" if max(heights, key=lambda one: heights[one]) else "right"
    side = "both" if both else larger
    chest.found.append(Finding("pleural effusion", side, size=max(heights.values()), larger=larger))
    chest.marks.append(("pleural effusion", fluid > 0.5))
    return side


def _add_pneumothorax(chest: _Chest, rng: np.random.Generator, left: bool) -> Array:
    """Puts air between lung and ribs; returns where."""
    depth = rng.uniform(20, 48)
    free, pleura = free_air(chest.frame, chest.labels == 1, left, depth)
    side, _ = chest.frame.side(left)
    collapsed = (chest.labels == 1) & ~free & (side > 0)
    chest.extra += 0.3 * pleura - 0.3 * free + 0.12 * collapsed
    chest.found.append(Finding("pneumothorax", "left" if left else "right", size=depth))
    chest.marks.append(("pneumothorax", free))
    return free


def _add_edema(chest: _Chest, rng: np.random.Generator, air: Array) -> None:
    """Clouds the lungs around both hila."""
    frame = chest.frame
    distance = ball((np.abs(frame.x), frame.y), (34, 8), (52, 66))
    haze = np.exp(-distance) * (0.8 + 0.2 * frame.texture(rng, 14)) * chest.aerated * ~air
    chest.extra += rng.uniform(0.65, 0.85) * haze
    chest.found.append(Finding("edema"))


def _add_consolidation(chest: _Chest, rng: np.random.Generator, air: Array) -> None:
    """Fills a part of one lung."""
    frame = chest.frame
    placed = _find_room(chest, rng, air, 26)
    if placed is None:
        return
    middle, side, zone = placed
    distance = np.sqrt(ball((frame.x, frame.y), middle, (rng.uniform(26, 36), rng.uniform(24, 34))))
    filled = step(1 + 0.12 * frame.texture(rng, 12) - distance, 0.2) * chest.aerated * ~air
    chest.extra += 0.62 * filled
    chest.found.append(Finding("consolidation", side, zone))
    chest.marks.append(("consolidation", filled > 0.5))


def _add_nodule(chest: _Chest, rng: np.random.Generator, air: Array) -> None:
    """Puts a ball where the lung is aerated and nothing else lies."""
    radius = round(rng.uniform(9, 22), 1)
    for name, mark in chest.marks:
        air = air | mark if name == "consolidation" else air
    placed = _find_room(chest, rng, air, radius)
    if placed is None:
        return
    (x, y), side, zone = placed
    distance = np.hypot(chest.frame.x - np.float32(x), chest.frame.y - np.float32(y))
    chest.extra += 1.7 * shadow_of_ball(distance, radius)
    chest.found.append(Finding("nodule", side, zone, 2 * radius))
    chest.marks.append(("nodule", distance <= radius))


def _find_room(
    chest: _Chest, rng: np.random.Generator, taken: Array, radius: float
) -> tuple[tuple[float, float], str, str] | None:
    """Free place in aerated lung, with side and zone; else None."""
    frame = chest.frame
    zone = str(rng.choice(list(ZONES)))
    low, high = ZONES[zone]
    free = ((chest.aerated > 0.6) & ~taken).astype(np.float32)
    room = (frame.blurred(free, radius / 1.2 * 0.6) > 0.85) & (frame.y > low) & (frame.y < high)
    at = np.flatnonzero(room)
    if not at.size:
        return None
    middle = np.unravel_index(at[rng.integers(at.size)], SHAPE)
    x, y = float(frame.x[middle]), float(frame.y[middle])
    return (x, y), "left" if x > 0 else "right", zone


def _add_pacemaker(chest: _Chest, rng: np.random.Generator) -> None:
    """Puts a generator into one chest wall, and its lead into the heart."""
    frame = chest.frame
    left = bool(rng.random() < 0.8)
    side, _ = frame.side(left)
    across, down = rng.uniform(70, 82), frame.top + rng.uniform(28, 44)
    shape = np.maximum(np.abs(side - across) / 21, np.abs(frame.y - down) / 17)
    generator = step(1 - shape, 0.06)
    tip = 40.0
    along = np.clip((frame.y - down) / (tip - down), 0, 1)
    lead_x = across * (1 - along) ** 2.2 - 22 * along**2 * (1 if left else -1)
    lead = step(2.2 - np.abs(side - lead_x), 0.9) * step(frame.y - down, 3) * step(tip - frame.y, 3)
    chest.extra += 1.3 * generator + 0.8 * lead
    chest.found.append(Finding("pacemaker", "left" if left else "right"))
    chest.marks.append(("pacemaker", shape < 1))


def _add_tube(chest: _Chest, rng: np.random.Generator) -> None:
    """Puts a tube into the windpipe."""
    frame = chest.frame
    distance = rng.uniform(18, 60)
    middle = frame.x - rng.uniform(-3, 3)
    inside = (np.abs(middle) < 4.5) & (frame.y < CARINA - distance)
    chest.extra += 0.9 * step(4.5 - np.abs(middle), 1.5) * step(CARINA - distance - frame.y, 2)
    chest.found.append(Finding("endotracheal tube", size=distance))
    chest.marks.append(("endotracheal tube", inside))
