"""Endoscopy phantoms: a clip through a folded tube of mucosa, with a polyp in part of most clips."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from medimg_eval.case import Array
from medimg_eval.imaging.video import write_video
from medimg_eval.phantoms.cohort import Member, Question, Record, write_rows, yes_or_no
from medimg_eval.phantoms.shapes import box, cylinder_noise, step, texture

LABELS = {1: "polyp"}

SHAPE = (160, 192)
FRAMES, FPS = 24, 6

ROUND, LONG = 576, 800
"""The wall, unrolled: texels about the axis, and along it (100 to a unit of length, the tube's radius)."""

VISIBLE = 60
"""Pixels of a polyp that make it visible."""

SIGHT = 2.6
"""How far a polyp is seen, in tube radii: behind the next fold it is hidden."""

PHASES = ("insertion", "inspection", "withdrawal")

LABELLED = 2
"""Frames with a polyp mask, of a clip that shows one; as many, empty, of a clip that shows none."""

TEXT = (
    "clips/CASE.mp4; frames/CASE.csv: for each frame whether a polyp is visible (60 pixels or more) and the phase "
    "(insertion, inspection, withdrawal); masks/CASE_FRAME.png: 1 polyp, of the labelled frames. Every fifth patient "
    "has no polyp"
)


@dataclass(frozen=True)
class Clip:
    """One clip and what is true of it.

    `frames` are uint8, (frame, row, column, 3); `masks` of the polyp bool, (frame, row, column); `phases` has one of
    each frame; `labelled` lists the frames whose mask is written.
    """

    frames: Array
    masks: Array
    phases: tuple[str, ...]
    labelled: tuple[int, ...]

    @property
    def visible(self) -> Array:
        """bool, (frame,): whether the polyp shows."""
        is_visible: Array = self.masks.sum(axis=(1, 2)) >= VISIBLE
        return is_visible


@dataclass(frozen=True)
class _Wall:
    """Texels of the unrolled wall, (along, round)."""

    colour: Array
    bump: Array
    fold: Array


@dataclass(frozen=True)
class _Polyp:
    """Polyp on the wall: position, angle and size in tube radii."""

    along: float
    angle: float
    size: float
    stretch: float
    outline: Array
    tint: Array


def clip(member: Member) -> Clip:
    """Makes one clip in memory."""
    body, own = member.body, member.own
    wall, polyp = draw_wall(body), draw_polyp(own)
    path, phases = _camera_path(own, polyp.along)
    aim = np.stack([texture(own, (FRAMES,), 9) for _ in range(2)], axis=1) * 9
    noise, light = own.uniform(2.5, 5), own.uniform(0.85, 1.15)
    frames = np.empty((FRAMES, *SHAPE, 3), np.uint8)
    masks = np.zeros((FRAMES, *SHAPE), bool)
    lens = draw_lens()
    spin = own.uniform(0, 2 * np.pi) + 0.15 * texture(own, (FRAMES,), 14)
    for n in range(FRAMES):
        pixels, masks[n] = draw_frame(wall, None if member.healthy else polyp, path[n], aim[n], float(spin[n]))
        grain = noise * own.standard_normal((*SHAPE, 1), dtype=np.float32)
        frames[n] = np.clip((pixels * light + grain) * lens[..., None] + 6, 0, 255)
        masks[n] &= lens > 0.5
    indices = np.flatnonzero(masks.sum(axis=(1, 2)) >= 2 * VISIBLE)
    choice = np.arange(FRAMES) if member.healthy else indices
    labelled = tuple(int(choice[k]) for k in np.linspace(0, len(choice) - 1, LABELLED + 2).astype(int)[1:-1])
    return Clip(frames, masks, phases, labelled)


def write_case(folder: Path, member: Member) -> Record:
    """Writes one case's clip, frame labels and masks."""
    from PIL import Image as Picture

    clip_ = clip(member)
    files = {"image": f"clips/{member.case}.mp4", "frames": f"frames/{member.case}.csv"}
    for name in ("clips", "frames", "masks"):
        (folder / name).mkdir(exist_ok=True)
    # Lossless, so that the frames read back are exactly those the masks were drawn on.
    write_video(folder / files["image"], clip_.frames, FPS, lossless=True)
    labels = zip(clip_.visible.astype(int), clip_.phases, strict=True)
    rows = ([n, polyp, phase, int(n in clip_.labelled)] for n, (polyp, phase) in enumerate(labels))
    write_rows(folder / files["frames"], ["frame", "polyp", "phase", "labelled"], rows)
    present = bool(clip_.visible.any())
    record = Record(files=files, findings={"polyp": present})
    record.measurements.append(("frames with a polyp", float(clip_.visible.sum()), "frames"))
    record.questions.append(yes_or_no("Does the clip show a polyp?", present))
    for n in clip_.labelled:
        Picture.fromarray(clip_.masks[n].astype(np.uint8)).save(folder / mask_file(member.case, n))
        record.questions.append(Question("Is a polyp visible?", "yes" if present else "no", ("yes", "no"), n))
        record.questions.append(Question("Which phase does this frame belong to?", clip_.phases[n], PHASES, n))
        if present:
            record.boxes.append(("polyp", n, box(clip_.masks[n])))
    return record


def mask_file(case: str, frame: int) -> str:
    """Where the mask of a labelled frame lies."""
    return f"masks/{case}_{frame:03d}.png"


def draw_wall(rng: np.random.Generator) -> _Wall:
    """Mucosa with vessels, uneven folds and glossy bumps."""
    shape = (LONG, ROUND)
    broad = cylinder_noise(rng, *shape, (120, 120))
    vessel = np.exp(-((cylinder_noise(rng, *shape, (45, 45)) / 0.09) ** 2))
    fine = cylinder_noise(rng, *shape, (7, 7))
    hue = rng.normal(0, 9, 3)
    colour = np.array([196, 118, 96], np.float32) + hue.astype(np.float32)
    shade = (10 * broad + 4 * fine)[..., None] * np.array([0.8, 1.1, 1], np.float32)
    pixels = colour + shade - (16 * vessel)[..., None] * np.array([0.6, 1.5, 1.4], np.float32)
    along = np.arange(LONG, dtype=np.float32)[:, None] + 22 * cylinder_noise(rng, *shape, (250, 250))
    at = along / rng.uniform(85, 120)
    fold = np.abs(np.sin(np.pi * at)) ** 14
    bump = cylinder_noise(rng, *shape, (16, 16))
    return _Wall(pixels.astype(np.float32), bump, fold.astype(np.float32))


def draw_polyp(rng: np.random.Generator) -> _Polyp:
    """A polyp of some size and outline, somewhere along the wall."""
    turn = np.linspace(0, 2 * np.pi, 256, endpoint=False)
    waves = [rng.uniform(0.02, 0.07) * np.cos(k * turn + rng.uniform(0, 2 * np.pi)) for k in (2, 3, 5)]
    return _Polyp(
        along=rng.uniform(5.2, 6.2),
        angle=rng.uniform(0, 2 * np.pi),
        size=rng.uniform(0.22, 0.36),
        stretch=rng.uniform(0.75, 1.2),
        outline=(np.ones(256) + sum(waves)).astype(np.float32),
        tint=(np.array([8, -10, -4]) + rng.normal(0, 5, 3)).astype(np.float32),
    )


def _camera_path(rng: np.random.Generator, polyp: float) -> tuple[Array, tuple[str, ...]]:
    """Camera path: in, a stay before the polyp, and back."""
    near = polyp - rng.uniform(1.0, 1.5)
    third = FRAMES // 3
    inward = np.linspace(near - 3.2, near, third)
    still = near + 0.12 * np.sin(np.linspace(0, 3, FRAMES - 2 * third))
    back = np.linspace(near, near - 2.4, third)
    phases = tuple(np.repeat(PHASES, (third, len(still), third)).tolist())
    return np.concatenate([inward, still, back]), phases


def draw_lens() -> Array:
    """The round cut of an endoscope's picture."""
    rows, columns = (np.arange(n, dtype=np.float32) - (n - 1) / 2 for n in SHAPE)
    across = np.maximum(np.abs(rows[:, None]) / 78, np.abs(columns[None]) / 92)
    corner = (np.abs(rows[:, None]) + np.abs(columns[None])) / 142
    return step(1 - np.maximum(across, corner), 0.01)


def draw_frame(wall: _Wall, polyp: _Polyp | None, camera: float, aim: Array, spin: float) -> tuple[Array, Array]:
    """Camera frame: float32, (row, column, 3), and the polyp's place."""
    rows = np.arange(SHAPE[0], dtype=np.float32)[:, None] - np.float32(SHAPE[0] / 2 + aim[0])
    columns = np.arange(SHAPE[1], dtype=np.float32)[None] - np.float32(SHAPE[1] / 2 + aim[1])
    focus = 78.0
    radius = np.hypot(rows, columns) + np.float32(2)
    turn = np.arctan2(rows, columns) + np.float32(spin)
    depth = focus / radius  # a wall one radius from the axis appears so far from the middle
    # Folds stand out of the wall, so that a look past one falls on the wall behind it.
    along = ((camera + depth) * 100).astype(int) % LONG
    about = (turn / (2 * np.pi) * ROUND).astype(int) % ROUND
    fold = wall.fold[along, about]
    colour = wall.colour[along, about]
    glow = 1.25 / (1 + 0.16 * depth**2) * (1 - 0.42 * fold * np.clip(depth / 2, 0, 1))
    shine = wall.bump[along, about] + 1.6 * fold
    inside = np.zeros(SHAPE, bool)
    if polyp is not None and 0.35 < polyp.along - camera < SIGHT:
        away = polyp.along - camera
        reach = focus / away
        direction = polyp.angle - spin
        # The polyp stands on the wall and towards the axis: its middle is nearer to it by its own size.
        centre = np.array([np.sin(direction), np.cos(direction)]) * reach * (1 - 0.55 * polyp.size)
        offset = rows - np.float32(centre[0]), columns - np.float32(centre[1])
        angle = (np.arctan2(*offset) / (2 * np.pi) * 256).astype(int) % 256
        length = np.hypot(offset[0] * np.float32(polyp.stretch), offset[1])
        within = length / (polyp.outline[angle] * np.float32(polyp.size * reach))
        inside = within < 1
        dome = np.sqrt(np.maximum(1 - within**2, 0))
        rim = np.exp(-(((within - 1.06) / 0.1) ** 2))
        own = wall.colour[(along + 400) % LONG, about] + polyp.tint
        glow = np.where(inside, (0.55 + 0.5 * dome) * 1.25 / (1 + 0.16 * away**2), glow * (1 - 0.35 * rim))
        colour = np.where(inside[..., None], own, colour)
        shine = np.where(inside, 1.4 * wall.bump[(along * 2) % LONG, about] + dome, shine)
    bright = 170 * step(shine - 2.55, 0.35) * np.clip(1.6 - 0.5 * depth, 0, 1)
    return colour * glow[..., None] + bright[..., None], inside
