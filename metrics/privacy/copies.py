"""Copies of training pictures that were flipped, moved, cropped, turned or recoloured: found without weights.

Each picture is first looked for among the training pictures in many poses, by a small description that brightness and
contrast leave alone. The training pictures that come nearest are then laid over it, by an affine map that is fitted,
and the correlation of what lies on top of each other decides. What is too much is read off pictures of new patients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import product
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, Unpack

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import import_optional
from medimg_eval.metrics.fidelity import SetError, SetValue, share_interval
from medimg_eval.metrics.privacy.screens import ScreenOptions, prepare_membership_sets

Floats: TypeAlias = npt.NDArray[np.float32]
Map: TypeAlias = npt.NDArray[np.float32]
Transform: TypeAlias = Callable[[Floats, np.random.Generator], Floats]

SMALL, LARGE = 64, 128
"""Edges of the squares that pictures are brought to: to be looked for, and to be laid over each other."""

FEATURES = 160
"""Of the description that candidates are looked for by."""

SAMPLE = 800
"""Training pictures, about, of which the main axes of descriptions are found."""

CANDIDATES = 8
"""Training pictures that are laid over each picture."""

RELATIVE = 0.9
"""How much of what a picture's other candidates reach is taken off: a picture like many is no copy of one."""

STEPS = {SMALL: 15, LARGE: 8}
"""Of the fit of the affine map, by the size of the pictures."""

FINALISTS = 2
"""Of the candidates: those that are also laid over the picture at full size."""

STRIP = 256
"""Pictures that are compared with all poses at once."""

AROUND = 21
"""Edge of the square around a pixel, of a picture of 64, that its brightness is measured against."""

FLIPS = ((1, 1), (1, -1), (-1, 1), (-1, -1))
"""Of rows and columns: what a picture is looked for as."""


class Copies(NamedTuple):
    """Most likely training original of each picture.

    Attributes:
        scores: float64, (picture,): higher is more alike; -inf for pictures without any contrast.
        places: int64, (picture,): rows of the training set.
    """

    scores: npt.NDArray[np.float64]
    places: npt.NDArray[np.int64]


def _list_poses() -> list[Map]:
    """Affine maps, float32 (2, 3), from posed to original positions."""

    def pose(scale: float, turn: float, right: float, down: float) -> Map:
        cosine, sine = scale * math.cos(turn), scale * math.sin(turn)
        return np.array([[cosine, -sine, right], [sine, cosine, down]], np.float32)

    shifts = [pose(1, 0, right, down) for right, down in product((0, -0.05, 0.05, -0.1, 0.1), repeat=2)]
    crops = [
        pose(scale, 0, (1 - scale) * right, (1 - scale) * down)
        for scale in (0.93, 0.86)
        for right, down in product((-1, 0, 1), repeat=2)
    ]
    turns = [pose(1, math.radians(angle), 0, 0) for angle in (-16, -12, -8, -4, 4, 8, 12, 16)]
    return shifts + crops + turns


POSES = _list_poses()


class CopyFinder:
    """Training pictures, ready to be compared with others.

    Args:
        train: (picture, edge, edge): grey, of any range; an edge of 128 is what the fit works at.

    Raises:
        SetError: they are no squares, or fewer than two.
        UserError: OpenCV is not there.
    """

    def __init__(self, train: npt.ArrayLike) -> None:
        pictures = _check_squares(train, "training")
        if len(pictures) < 2:
            raise SetError(f"Expected at least 2 training pictures, got {len(pictures)}")
        self._large = _resize_pictures(pictures, LARGE)
        flat = _local_contrast(_resize_pictures(pictures, SMALL))
        sample = flat[:: max(1, len(flat) // SAMPLE)]
        posed = np.concatenate([_describe_pose(sample, pose) for pose in POSES])
        self._middle = posed.mean(0)
        self._axes = _half_whitened(posed - self._middle)
        self._described = np.stack(
            [_unit_rows((_describe_pose(flat, pose) - self._middle) @ self._axes) for pose in POSES]
        )

    def compare(self, pictures: npt.ArrayLike, *, skip: npt.ArrayLike | None = None) -> Copies:
        """Returns each picture's similarity to its nearest training picture.

        Args:
            pictures: (picture, edge, edge).
            skip: (picture,): the training picture that each is not to be compared with, or -1.
        """
        queries = _check_squares(pictures, "compared")
        left_out = np.full(len(queries), -1) if skip is None else np.asarray(skip)
        small, large = _resize_pictures(queries, SMALL), _resize_pictures(queries, LARGE)
        scores = np.full(len(queries), -math.inf)
        indices = np.zeros(len(queries), np.int64)
        for start in range(0, len(queries), STRIP):
            part = slice(start, start + STRIP)
            candidate_lists = self._candidates(small[part], left_out[part])
            for query, candidates in enumerate(candidate_lists, start):
                scores[query], indices[query] = self._verified(large[query], candidates)
        return Copies(scores, indices)

    def _candidates(self, small: Floats, skip: npt.NDArray[Any]) -> Iterator[list[tuple[int, int, int]]]:
        """Yields nearest training pictures with flip and pose."""
        n = self._described.shape[1]
        turned = [_describe_pose(_local_contrast(small[:, ::rows, ::columns])) for rows, columns in FLIPS]
        mine = np.stack([_unit_rows((turned_picture - self._middle) @ self._axes) for turned_picture in turned])
        best = np.full((len(small), n), -np.inf, np.float32)
        for flipped, theirs in product(mine, self._described):
            np.maximum(best, flipped @ theirs.T, out=best)
        rows_of = np.flatnonzero(skip >= 0)
        best[rows_of, skip[rows_of]] = -np.inf
        count = min(CANDIDATES, n - 1)
        for query, trained in enumerate(np.argpartition(-best, count - 1, axis=1)[:, :count]):
            similarity = np.einsum("fd,pcd->cfp", mine[:, query], self._described[:, trained]).reshape(count, -1)
            ways = similarity.argmax(1)
            yield [
                (int(training_row), *divmod(int(way), len(POSES)))
                for training_row, way in zip(trained, ways, strict=True)
            ]

    def _verified(self, picture: Floats, candidates: list[tuple[int, int, int]]) -> tuple[float, int]:
        """Returns the relative score of the best candidate, and which it is."""
        turned = [np.ascontiguousarray(picture[::rows, ::columns]) for rows, columns in FLIPS]
        first = [
            _laid_over(turned[flip], self._large[training_row], POSES[pose], SMALL)
            for training_row, flip, pose in candidates
        ]
        reached = np.array([agreement for agreement, _ in first])
        best = (-math.inf, 0)
        for index in np.argsort(-reached)[:FINALISTS]:
            training_row, flip, _ = candidates[index]
            fine, _ = _laid_over(turned[flip], self._large[training_row], first[index][1], LARGE)
            # Noise and compression spoil what is fine, and small pictures hold no more than what is coarse.
            best = max(best, (max(float(reached[index]), fine), training_row))
        return best[0] - RELATIVE * float(np.median(reached)), best[1]


def transformed_copies(
    train: npt.ArrayLike, holdout: npt.ArrayLike, generated: npt.ArrayLike, **options: Unpack[ScreenOptions]
) -> SetValue:
    """The share of generated pictures that are, by the screen, training pictures flipped, moved, cropped or recoloured.

    A picture is flagged that is more like a training picture laid over it than 99 % of the hold-out pictures are; the
    floor is the share of those that are flagged. Beside it stands what the screen finds of `PLANTED` copies of each
    kind, made of the user's own training pictures: `details` has "recall", and "recall_KIND" of each kind.

    Args:
        train: (n, edge * edge): grey values of squares of 64 pixels or more, row by row; 128 are best.
        holdout: (h, edge * edge), of other patients.
        generated: (m, edge * edge).
        **options: see `ScreenOptions`.

    Returns:
        In [0, 1].

    Raises:
        SetError: See `prepare_membership_sets`; rows are no squares.
        UserError: OpenCV is not there.
    """
    sets = prepare_membership_sets(train, holdout, generated, options)
    real, holdout_squares, generated_squares = (
        _as_squares(part.rows) for part in (sets.train, sets.holdout, sets.generated)
    )
    finder = CopyFinder(real)
    holdout_scores = finder.compare(holdout_squares).scores
    threshold = float(np.quantile(holdout_scores, 1 - FLAGGED, method="higher"))
    flagged = (finder.compare(generated_squares).scores > threshold).astype(float)
    recalls = _copy_recalls(finder, real, threshold, np.random.default_rng(sets.options["seed"]))
    worst = min(recalls, key=recalls.__getitem__)
    recall = float(np.mean(list(recalls.values())))
    planted = f"planted: {100 * recall:.0f} % of copies of training pictures are found, "
    how = "Wilson, over generated pictures; the hold-out's percentile is held fixed"
    extra = share_interval(flagged, sets.prompts, how) if sets.options["interval"] else {}
    return sets.value(
        "transformed_copies",
        float(flagged.mean()),
        floor=float((holdout_scores > threshold).mean()),
        floor_n=len(holdout_scores),
        flags=(planted + f"{100 * recalls[worst]:.0f} % of those that were {worst}",),
        details={"recall": recall, **{f"recall_{kind}": share for kind, share in recalls.items()}},
        **extra,
    )


def _as_squares(rows: npt.NDArray[Any]) -> Floats:
    edge = math.isqrt(rows.shape[1])
    if edge * edge != rows.shape[1] or edge < SMALL:
        raise SetError(
            f"Expected grey values of squares of {SMALL} pixels or more, got {rows.shape[1]} numbers a row; use the "
            f"extractor pixels_{LARGE}"
        )
    return rows.reshape(-1, edge, edge).astype(np.float32, copy=False)


def _copy_recalls(finder: CopyFinder, pictures: Floats, threshold: float, rng: np.random.Generator) -> dict[str, float]:
    """Returns the share of drawn pictures' copies found, by kind."""
    recalls = {}
    for kind, transform in TRANSFORMS.items():
        chosen = rng.choice(len(pictures), min(PLANTED, len(pictures)), replace=False)
        copies = np.stack([transform(pictures[index], rng) for index in chosen])
        recalls[kind] = float((finder.compare(copies).scores > threshold).mean())
    return recalls


def _flip_picture(picture: Floats, rng: np.random.Generator) -> Floats:
    return picture[:, ::-1] if rng.random() < 0.5 else picture[::-1]


def _move_picture(
    picture: Floats, *, scale: float = 1, degrees: float = 0, shift: tuple[float, float] = (0, 0)
) -> Floats:
    """Returns a picture rotated and shifted, with mirrored borders."""
    cv2 = _import_opencv()
    edge = len(picture)
    turn = cv2.getRotationMatrix2D(((edge - 1) / 2, (edge - 1) / 2), degrees, scale)
    turn[:, 2] += np.multiply(shift, edge)
    moved: Floats = cv2.warpAffine(picture, turn, (edge, edge), borderMode=cv2.BORDER_REFLECT_101)
    return moved


def _turn_by(degrees: float) -> Transform:
    return lambda picture, rng: _move_picture(picture, degrees=degrees * rng.choice((-1, 1)))


def _crop_to(share: float) -> Transform:
    def crop(picture: Floats, rng: np.random.Generator) -> Floats:
        off = (1 / share - 1) / 2
        return _move_picture(picture, scale=1 / share, shift=tuple(rng.uniform(-off, off, 2)))

    return crop


def _recolour_by(change: Callable[[Floats], Floats]) -> Transform:
    """Recolours values from 0, the darkest, to 1, the brightest."""

    def recolour(picture: Floats, _: np.random.Generator) -> Floats:
        low, high = float(picture.min()), float(picture.max())
        spread = max(high - low, 1e-6)
        return (low + spread * np.clip(change((picture - low) / spread), 0, 1)).astype(np.float32)

    return recolour


def _add_noise(picture: Floats, rng: np.random.Generator) -> Floats:
    spread = float(picture.max() - picture.min())
    return (picture + rng.normal(0, 0.03 * spread, picture.shape)).astype(np.float32)


def _blur_picture(picture: Floats, _: np.random.Generator) -> Floats:
    blurred: Floats = _import_opencv().GaussianBlur(picture, (0, 0), len(picture) / 128)
    return blurred


def _combine_changes(picture: Floats, rng: np.random.Generator) -> Floats:
    return TRANSFORMS["darkened by gamma 1.4"](TRANSFORMS["cropped to 85 %"](_flip_picture(picture, rng), rng), rng)


TRANSFORMS: Mapping[str, Transform] = MappingProxyType(
    {
        "kept as they are": lambda picture, _: picture,
        "flipped": _flip_picture,
        "brightened": _recolour_by(lambda values: values + 0.12),
        "flattened": _recolour_by(lambda values: 0.8 * values + 0.1),
        "brightened by gamma 0.7": _recolour_by(lambda values: values**0.7),
        "darkened by gamma 1.4": _recolour_by(lambda values: values**1.4),
        "shifted": lambda picture, rng: _move_picture(picture, shift=tuple(0.02 * rng.choice((-1, 1), 2))),
        "turned by 5 degrees": _turn_by(5),
        "turned by 15 degrees": _turn_by(15),
        "cropped to 95 %": _crop_to(0.95),
        "cropped to 85 %": _crop_to(0.85),
        "made noisy": _add_noise,
        "blurred": _blur_picture,
        "changed in three ways": _combine_changes,
    }
)
"""Kinds of copies that are planted, on grey squares. A copy is combined that is flipped, cropped and darkened."""

PLANTED = 20
"""Copies of each kind."""

FLAGGED = 0.01
"""The share of pictures of new patients that are flagged."""


def _check_squares(pictures: npt.ArrayLike, what: str) -> Floats:
    squares = np.asarray(pictures, np.float32)
    if squares.ndim != 3 or squares.shape[1] != squares.shape[2] or squares.shape[1] < SMALL:
        raise SetError(
            f"Expected {what} pictures as squares of {SMALL} pixels or more, got an array of {squares.shape}"
        )
    return squares


def _resize_pictures(pictures: Floats, edge: int) -> Floats:
    cv2 = _import_opencv()
    if pictures.shape[1] == edge:
        return pictures
    small = [cv2.resize(picture, (edge, edge), interpolation=cv2.INTER_AREA) for picture in pictures]
    return np.stack(small) if small else np.zeros((0, edge, edge), np.float32)


def _in_pixels(pose: Map, edge: int) -> Map:
    """Returns a map on [-1, 1] in pixels of a square."""
    middle = (edge - 1) / 2
    linear = pose[:, :2]
    return np.column_stack([linear, middle * (pose[:, 2] + 1) - linear @ [middle, middle]]).astype(np.float32)


def _local_contrast(small: Floats) -> Floats:
    """Returns pixels normalised by surroundings, free of brightness and contrast."""
    cv2 = _import_opencv()
    rows = []
    for picture in np.ascontiguousarray(small):
        around = cv2.blur(picture, (AROUND, AROUND))
        spread = np.sqrt(np.maximum(cv2.blur(picture * picture, (AROUND, AROUND)) - around * around, 0))
        plain = (picture - around) / (spread + 0.02 * max(float(picture.max() - picture.min()), 1e-6))
        rows.append(cv2.blur(plain, (2, 2), anchor=(0, 0)))
    return np.stack(rows)


def _describe_pose(plain: Floats, pose: Map = POSES[0]) -> Floats:
    """Returns unit descriptors of posed pictures in a window, (picture, 1024)."""
    cv2 = _import_opencv()
    half = SMALL // 2
    # From pixels of the smaller square to those of the larger, of which each has the mean of four.
    larger = np.array([[2, 0, 0], [0, 2, 0], [0, 0, 1]], np.float32)
    pixels = (_in_pixels(pose, SMALL) @ larger).astype(np.float32)
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    posed = [
        cv2.warpAffine(picture, pixels, (half, half), flags=flags, borderMode=cv2.BORDER_REPLICATE) for picture in plain
    ]
    return _unit_rows((np.stack(posed) * _WINDOW).reshape(len(posed), -1))


def _make_window(edge: int) -> Floats:
    """Window that fades to the corners, where moved pictures differ."""
    at = (np.arange(edge) - (edge - 1) / 2) / (edge / 2)
    radius = np.hypot(at[:, None], at[None])
    window: Floats = np.cos(np.clip((radius - 0.5) / 0.6, 0, 1) * math.pi / 2).astype(np.float32)
    return window


_WINDOW = _make_window(SMALL // 2)


def _half_whitened(rows: Floats) -> Floats:
    """Returns principal axes divided by root spread, (feature, axis)."""
    values, vectors = np.linalg.eigh((rows.T @ rows / len(rows)).astype(np.float64))
    keep = slice(None, -FEATURES - 1, -1)
    spread = np.maximum(values[keep], 1e-9)
    axes: Floats = (vectors[:, keep] * spread**-0.25).astype(np.float32)
    return axes


def _unit_rows(rows: Floats) -> Floats:
    length = np.linalg.norm(rows, axis=-1, keepdims=True)
    result: Floats = rows / np.maximum(length, 1e-12)
    return result


def _laid_over(picture: Floats, trained: Floats, pose: Map, edge: int) -> tuple[float, Map]:
    """Aligns a training picture; returns atanh of the correlation (-3 apart) and map."""
    cv2 = _import_opencv()
    if edge != LARGE:
        picture, trained = (
            cv2.resize(picture, (edge, edge), interpolation=cv2.INTER_AREA) for picture in (picture, trained)
        )
    stop = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, STEPS[edge], 1e-4)
    pixels = _in_pixels(pose, edge)
    with suppress(cv2.error):  # which it raises where it finds no better map
        pixels = cv2.findTransformECC(picture, trained, pixels, cv2.MOTION_AFFINE, stop, None, 5)[1]
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    laid = cv2.warpAffine(trained, pixels, (edge, edge), flags=flags)
    inside = cv2.warpAffine(np.ones_like(trained), pixels, (edge, edge), flags=flags) > 0.99
    if inside.mean() < OVERLAP:
        return APART, _in_places(pixels, edge)
    return _block_correlation(picture, laid, inside & ~_clipped_pixels(picture)), _in_places(pixels, edge)


def _in_places(pixels: Map, edge: int) -> Map:
    """The inverse of `_in_pixels`."""
    middle = (edge - 1) / 2
    linear = pixels[:, :2]
    return np.column_stack([linear, (pixels[:, 2] + linear @ [middle, middle]) / middle - 1]).astype(np.float32)


BLOCKS = 4
"""In each direction: correlations within blocks see detail where that of the whole sees bright and dark."""

OVERLAP = 0.4
"""Share of a picture that a training picture must cover where it is laid over it."""

APART = -3.0
"""How alike two pictures are that hardly overlap."""


def _clipped_pixels(picture: Floats) -> npt.NDArray[np.bool_]:
    """Pixels at maximum brightness, where more than a few."""
    top = picture >= picture.max() - 1e-3 * (picture.max() - picture.min())
    return top if 0.01 < top.mean() < 0.9 else np.zeros_like(top)


def _block_correlation(one: Floats, other: Floats, inside: npt.NDArray[np.bool_]) -> float:
    """Returns atanh of mean pixel and block correlation.

    Blocks weigh by their contrast: where there is hardly any, compression and noise leave nothing to correlate.
    """
    total, _ = _normalised_correlation(one[inside], other[inside])
    edge = len(one) // BLOCKS
    parts, weights = [], []
    for row, column in product(range(BLOCKS), repeat=2):
        block = np.s_[row * edge : (row + 1) * edge, column * edge : (column + 1) * edge]
        if inside[block].mean() > 0.25:
            block_correlation, contrast = _normalised_correlation(
                one[block][inside[block]], other[block][inside[block]]
            )
            parts.append(block_correlation)
            weights.append(math.sqrt(contrast))
    blocks = np.average(parts, weights=weights) if sum(weights) > 0 else total
    return float(np.arctanh(np.clip((total + blocks) / 2, -0.9995, 0.9995)))


def _normalised_correlation(one: Floats, other: Floats) -> tuple[float, float]:
    """Returns correlation and product of contrasts; 0 without contrast."""
    a, b = one - one.mean(), other - other.mean()
    length = math.sqrt(float((a * a).sum()) * float((b * b).sum()))
    return (float((a * b).sum()) / length, length) if length > 1e-12 else (0.0, 0.0)


def _import_opencv() -> Any:
    return import_optional("cv2")
