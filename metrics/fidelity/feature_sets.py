"""What every metric of two sets of feature vectors shares: its result, its checks, its flags and how rows are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import UsageError, invalid
from medimg_eval.metrics.arrays import Array, Bools, Ints

SMALL = 50
"""Below so many rows a value of any set metric carries the flag `small_n`."""

CHUNK = 1 << 17
"""Numbers that are converted, hashed or checked at once: 1 MiB, which a processor's cache holds."""

PRODUCT = 1 << 21
"""Numbers of a factor of a matrix product: 16 MiB."""

NAMED = 5
"""Rows that an error names."""

FEATURES = 64
"""Features, about, that are looked at first in order to tell rows apart."""

SAMPLE = 16
"""Rows among which a feature that may be constant is looked for first."""


class SetError(UsageError, ValueError):
    """Feature vectors, or settings, that a metric of sets cannot take."""


@dataclass(frozen=True)
class SetValue:
    """Set metric's value, with uncertainty, sizes, floor and flags.

    Attributes:
        metric: its name, with the settings that change it, as "precision, k=5".
        value: NaN where nothing can be scored; a flag says why.
        n_real: real rows that entered the value; of a screen against training data, the training rows.
        n_generated: generated rows that did.
        d: features of a row; 0 of a metric of scores.
        low: lower end of the 95 % interval; NaN where none is known.
        high: upper end.
        interval: how the interval was found, and what it leaves out; "" where there is none.
        standard_error: NaN where none is known.
        floor: the same metric of real against real; NaN where there are too few real rows.
        floor_n: rows on each side of the floor; 0 without one.
        flags: short sentences, each with a key word first, as "rank_deficient: ...".
        extractor: what the features come from, as the caller calls it.
        depends_on_n: whether values at different n cannot be compared, because the metric drifts with n.
        details: further numbers by name; documented by each metric.
    """

    metric: str
    value: float
    n_real: int
    n_generated: int
    d: int
    low: float = math.nan
    high: float = math.nan
    interval: str = ""
    standard_error: float = math.nan
    floor: float = math.nan
    floor_n: int = 0
    flags: tuple[str, ...] = ()
    extractor: str = ""
    depends_on_n: bool = False
    details: Mapping[str, float] = field(default_factory=dict)

    def flagged(self, key: str) -> bool:
        """Returns whether a flag of that key word is there, as in `flagged("small_n")`."""
        return any(flag.partition(":")[0] == key for flag in self.flags)


class Options(TypedDict, total=False):
    """Keyword arguments that every metric of two sets takes.

    Attributes:
        patients: (n,): whose image each real row is. Patients are what is resampled, and are never split.
        prompts: (m,): which generated rows belong together, such as several seeds of one prompt; by default none do.
        holdout: (h, d): further real rows, of which the floor is taken; by default the real set is halved.
        floor: whether to compute the floor; True.
        interval: whether to compute the interval; True.
        nan: "error", or "drop" to leave out rows with NaN or infinite features and count them in a flag.
        seed: of all that is drawn; 0.
        extractor: what the features come from: name, weights, layer, preprocessing. It is copied into the result.
    """

    patients: npt.ArrayLike | None
    prompts: npt.ArrayLike | None
    holdout: npt.ArrayLike | None
    floor: bool
    interval: bool
    nan: Literal["error", "drop"]
    seed: int
    extractor: str


DEFAULTS = Options(
    patients=None, prompts=None, holdout=None, floor=True, interval=True, nan="error", seed=0, extractor=""
)


@dataclass(frozen=True, eq=False)
class Sets:
    """Two sets that have passed the checks.

    Attributes:
        real: (n, d) float32 or float64, finite.
        generated: (m, d), likewise.
        patients: (n,) int64, or None.
        prompts: (m,) int64, or None.
        flags: what the checks found.
        options: all of them.
    """

    real: Array
    generated: Array
    patients: Array | None
    prompts: Array | None
    flags: tuple[str, ...]
    options: Options

    def value(self, metric: str, value: float, **found: Any) -> SetValue:
        """Returns the result, with n, d, extractor and flags filled in."""
        flags = (*self.flags, *found.pop("flags", ()))
        found = {"n_real": len(self.real), "n_generated": len(self.generated), **found}
        return SetValue(
            metric,
            float(value),
            d=self.real.shape[1],
            extractor=self.options["extractor"],
            flags=flags,
            **found,
        )


def prepare(real: npt.ArrayLike, generated: npt.ArrayLike, given: Options, *, least: int = 2) -> Sets:
    """Returns two comparable sets with their flags.

    What the caller's options lack has its default; each set needs at least `least` rows.

    Raises:
        SetError: A set is no matrix of numbers, d differs, rows are not finite, there are too few of them, or the
            groups do not fit.
        TypeError: There is no such option.
    """
    options = Options(**checked_options(given, DEFAULTS))  # type: ignore[typeddict-item]
    drop = options["nan"] == "drop"
    real_rows, real_kept = one_set(real, "real", drop=drop)
    generated_rows, generated_kept = one_set(generated, "generated", drop=drop)
    same_features(real_rows, generated_rows)
    for name, rows in (("real", real_rows), ("generated", generated_rows)):
        if len(rows) < least:
            raise SetError(f"Expected at least {least} rows in each set, got {len(rows)} in the {name} set")
    flags = []
    dropped = [int((~is_kept).sum()) for is_kept in (real_kept, generated_kept)]
    if any(dropped):
        flags.append(f"dropped_rows: {dropped[0]} real and {dropped[1]} generated rows were not finite")
    patients = numbered(labels_of(options["patients"], "patients", real_kept))
    prompts = numbered(labels_of(options["prompts"], "prompts", generated_kept))
    flags += _set_flags(real_rows, generated_rows)
    return Sets(real_rows, generated_rows, patients, prompts, tuple(flags), options)


def one_set(rows: npt.ArrayLike, name: str, *, drop: bool = False) -> tuple[Array, Bools]:
    """Returns checked finite rows, and a mask of those kept.

    Rows are float32 or float64.

    Raises:
        SetError: `rows` is no matrix of numbers with a feature, or rows are not finite (unless `drop`).
    """
    array = np.asarray(rows)
    if array.ndim != 2 or array.shape[1] == 0 or array.dtype.kind not in "fiub":
        raise SetError(
            f"Expected the {name} set to be numbers of the shape (row, feature), got {array.dtype} of {array.shape}"
        )
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float32 if array.dtype in (np.float16, np.bool_) else np.float64)
    is_kept = np.ones(len(array), dtype=bool)
    with np.errstate(over="ignore", invalid="ignore"):
        for part in strips(array):
            if not np.isfinite(array[part].sum()):
                is_kept[part] = np.isfinite(array[part]).all(axis=1)
    dropped = int(len(is_kept) - is_kept.sum())
    if dropped and not drop:
        first = ", ".join(map(str, np.flatnonzero(~is_kept)[:NAMED])) + (", ..." if dropped > NAMED else "")
        raise SetError(
            f"{dropped} of {len(is_kept)} rows of the {name} set have NaN or infinite features (rows {first}); "
            "mend them, or leave them out with nan='drop'"
        )
    return (array[is_kept] if dropped else array), is_kept


def labels_of(given: npt.ArrayLike | None, name: str, kept: Bools) -> Array | None:
    """Returns the kept rows' labels; None where none were given.

    Raises:
        SetError: There is not one label per row.
    """
    if given is None:
        return None
    labels = np.asarray(given)
    if labels.shape != kept.shape:
        raise SetError(f"Expected one label per row in `{name}`, {len(kept)}, got shape {labels.shape}")
    return labels[kept]


def numbered(labels: Array | None) -> Ints | None:
    """Returns groups as numbers from 0; None without groups."""
    return None if labels is None else np.unique(labels, return_inverse=True)[1].astype(np.int64)


def checked_options(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options with their defaults.

    Raises:
        TypeError: There is no such option.
        SetError: `nan` is neither "error" nor "drop".
    """
    unknown = sorted(set(given) - set(defaults))
    if unknown:
        raise TypeError(invalid("option", unknown[0], defaults))
    options = {**defaults, **given}
    if options["nan"] not in ("error", "drop"):
        raise SetError(f"Expected `nan` to be 'error' or 'drop', got {options['nan']!r}")
    return options


def same_features(one: Array, other: Array, names: tuple[str, str] = ("real", "generated")) -> None:
    """Raises SetError where two sets' feature numbers differ."""
    if one.shape[1] != other.shape[1]:
        raise SetError(
            f"Expected both sets to have the same features, got {one.shape[1]} in the {names[0]} set and "
            f"{other.shape[1]} in the {names[1]} set"
        )


def _set_flags(real: Array, generated: Array) -> list[str]:
    flags = []
    if min(len(real), len(generated)) < SMALL:
        flags.append(f"small_n: {len(real)} real and {len(generated)} generated rows")
    ids = row_numbers(real, generated)
    real_ids, generated_ids = ids[: len(real)], ids[len(real) :]
    shared = int(np.isin(generated_ids, real_ids).sum())
    if shared:
        flags.append(f"shared_rows: {shared} of {len(generated)} generated rows are rows of the real set")
    for name, rows, numbers in (("real", real, real_ids), ("generated", generated, generated_ids)):
        distinct = len(np.unique(numbers))
        if distinct == 1:
            flags.append(f"degenerate: all {len(rows)} {name} rows are the same")
            continue
        if distinct < len(rows):
            flags.append(f"repeated_rows: {len(rows) - distinct} of {len(rows)} {name} rows repeat another")
        suspects = np.flatnonzero((rows[:: max(1, len(rows) // SAMPLE)] == rows[0]).all(axis=0))
        constant = int((rows[:, suspects] == rows[0, suspects]).all(axis=0).sum())
        if constant:
            flags.append(f"degenerate: {constant} of {rows.shape[1]} features are constant in the {name} set")
    return flags


def strips(rows: Array, numbers: int = CHUNK) -> Iterator[slice]:
    """Yields slices of rows that hold about so many numbers each."""
    step = max(1, numbers // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        yield slice(start, min(start + step, len(rows)))


def row_numbers(*sets: Array) -> Ints:
    """Numbers rows of all sets; only equal rows share numbers."""
    few = max(1, sets[0].shape[1] // FEATURES)
    if few > 1:
        hashes = _hash_rows([rows[:, ::few] for rows in sets])
        if len(np.unique(hashes)) == len(hashes):
            return hashes
    return _hash_rows(list(sets))


def _hash_rows(sets: list[Array]) -> Ints:
    """Returns numbers that rows with the same 64-bit sum of mixed features share."""
    weights = np.random.default_rng(7).integers(0, 1 << 63, sets[0].shape[1], dtype=np.uint64)
    weights = weights * np.uint64(2) + np.uint64(1)
    hashes = []
    for rows in sets:
        hashes_ = np.empty(len(rows), dtype=np.uint64)
        for part in strips(rows):
            bits = (rows[part].astype(np.float64) + 0.0).view(np.uint64)
            hashes_[part] = ((bits ^ (bits >> np.uint64(31))) * weights).sum(axis=1, dtype=np.uint64)
        hashes.append(hashes_)
    return np.unique(np.concatenate(hashes), return_inverse=True)[1].astype(np.int64)


def shuffled(rng: np.random.Generator, n: int, groups: Array | None) -> Ints:
    """Returns 0...n-1 shuffled, rows of a group side by side."""
    if groups is None:
        return rng.permutation(n)
    group_order = rng.permutation(int(groups.max()) + 1)[groups]
    return np.lexsort((rng.random(n), group_order))


def halves(rng: np.random.Generator, n: int, groups: Array | None, size: int) -> tuple[Ints, Ints]:
    """Returns random equal parts, at most `size`, without shared groups."""
    order = shuffled(rng, n, groups)
    size = min(size, n // 2)
    first, remaining = order[:size], order[size:]
    if groups is not None and size:
        remaining = remaining[groups[remaining] != groups[first[-1]]]
    second = remaining[:size]
    return first[: len(second)], second


def floor_of(sets: Sets, compute: Callable[[Array, Array], float], *, least: int = 2) -> dict[str, Any]:
    """Returns `floor`, `floor_n` and flags of real against real.

    It is taken at the n of the generated set. Without a hold-out set the real set is halved. Where a half is smaller
    than the generated set, a flag says at which n the floor was taken.
    """
    if not sets.options["floor"]:
        return {}
    rng = np.random.default_rng(sets.options["seed"])
    wanted = min(len(sets.real), len(sets.generated))
    if sets.options["holdout"] is None:
        first, second = halves(rng, len(sets.real), sets.patients, wanted)
        pair = sets.real[first], sets.real[second]
    else:
        spare, _ = one_set(sets.options["holdout"], "hold-out", drop=sets.options["nan"] == "drop")
        same_features(sets.real, spare, ("real", "hold-out"))
        size = min(wanted, len(spare))
        order = shuffled(rng, len(sets.real), sets.patients)[:size]
        pair = sets.real[order], spare[rng.permutation(len(spare))[:size]]
    size = len(pair[0])
    if size < least:
        return {"flags": (f"no_floor: {len(sets.real)} real rows are too few to compare with each other",)}
    flags = () if size >= wanted else (f"floor_n: the floor is of {size} rows a side, the value of {wanted}",)
    return {"floor": compute(*pair), "floor_n": size, "flags": flags}


def same_size(sets: Sets) -> Sets:
    """Returns sets of equal size, flagged if one was cut."""
    n, m = len(sets.real), len(sets.generated)
    size = min(n, m)
    if n == m:
        return sets
    rng = np.random.default_rng(sets.options["seed"])
    real_rows = np.sort(shuffled(rng, n, sets.patients)[:size])
    generated_rows = np.sort(shuffled(rng, m, sets.prompts)[:size])
    return Sets(
        sets.real[real_rows],
        sets.generated[generated_rows],
        None if sets.patients is None else sets.patients[real_rows],
        None if sets.prompts is None else sets.prompts[generated_rows],
        (*sets.flags, f"subsampled: {size} of {n} real and {size} of {m} generated rows were compared"),
        sets.options,
    )
