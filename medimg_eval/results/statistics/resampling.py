"""Which clusters each resample of a bootstrap holds: one set of draws for all that was judged on the same clusters."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNK_DRAWS = 1 << 17
"""Draws held in memory at a time: 1 MiB of indices, which stays in the cache, whatever number is asked for."""
_MOST_KEPT = 1 << 26
"""Counts of at most so many draws are kept for the next column or model: 64 MiB, 6,710 clusters at 10,000 resamples."""
_MANY_DRAWS = 1 << 25
"""More draws than this (3,355 clusters at 10,000 resamples) are made by kind of cluster, where there are few kinds."""
_FEW_KINDS = 256


class Resamples:
    """How often each cluster is drawn in each resample of a bootstrap.

    As many clusters as there are get drawn with replacement; with strata, as many of each stratum as it has. The draws
    depend on the number of clusters (of each stratum) and the seed alone, so that all columns and models that were
    judged on the same clusters meet the same resamples.

    Args:
        size: Number of clusters.
        resamples: Number of resamples.
        seed: Seed of the random draws.
        strata: (cluster,), the stratum of each cluster; None where all are drawn together.
        keep: Whether the counts stay in memory for the next model; False where one pass takes all there are.
    """

    def __init__(
        self,
        size: int,
        *,
        resamples: int,
        seed: int,
        strata: npt.NDArray[np.generic] | None = None,
        keep: bool = True,
    ) -> None:
        self.size = size
        self._keep = keep
        self.resamples = resamples
        self.seed = seed
        self._order: npt.NDArray[np.intp] | None = None
        self._members: tuple[int, ...] = (size,)
        if strata is not None:
            _, stratum = np.unique(strata, return_inverse=True)
            self._members = tuple(np.bincount(stratum).tolist())
            # Clusters of one stratum stand together while they are drawn.
            self._order = np.argsort(stratum, kind="stable")

    @property
    def stratified(self) -> bool:
        """Whether there is more than one stratum."""
        return len(self._members) > 1

    def times(self) -> Iterator[npt.NDArray[np.uint8]]:
        """Yields cluster counts by batches: (resample, cluster)."""
        if self._keep and self.size * self.resamples <= _MOST_KEPT:
            chunks: Iterator[npt.NDArray[np.uint8]] = iter(_cached_counts(self._members, self.resamples, self.seed))
        else:
            chunks = _count_draws(self._members, self.resamples, self.seed)
        back = None if self._order is None else np.argsort(self._order, kind="stable")
        for chunk in chunks:
            yield chunk if back is None else chunk[:, back]

    def drawn(self) -> Iterator[npt.NDArray[np.int64]]:
        """Yields which clusters are drawn, some resamples at a time: (resample, cluster), indices."""
        for some in _draw_clusters(self._members, self.resamples, self.seed):
            yield some if self._order is None else self._order[some]

    def sums(self, features: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Returns resampled sums: (cluster, feature) to (resample, feature)."""
        return np.concatenate([times.astype(np.float64) @ features for times in self.times()])

    def sums_by_kind(self, features: npt.NDArray[np.float64]) -> npt.NDArray[np.float64] | None:
        """Returns sums for many clusters of few kinds; else None.

        None where drawing one by one will do.

        Clusters of the same features cannot be told apart, so that only how many of each kind a resample holds matters:
        a draw of the multinomial distribution that drawing them one by one has.
        """
        if self.size * self.resamples < _MANY_DRAWS or self.stratified:
            return None
        ordered = features[np.lexsort(features.T)]
        starts = np.flatnonzero(np.append(True, (ordered[1:] != ordered[:-1]).any(axis=1)))
        if len(starts) > _FEW_KINDS:
            return None
        members = np.diff(np.append(starts, self.size))
        times = np.random.default_rng(self.seed).multinomial(self.size, members / self.size, size=self.resamples)
        return np.asarray(times @ ordered[starts], dtype=np.float64)


def draws(size: int, *, resamples: int, seed: int) -> Iterator[npt.NDArray[np.int64]]:
    """Yields resampled cluster indices by batches: (resample, size)."""
    return _draw_clusters((size,), resamples, seed)


def _draw_clusters(members: tuple[int, ...], resamples: int, seed: int) -> Iterator[npt.NDArray[np.int64]]:
    """Yields drawn cluster indices, (resample, cluster), within strata."""
    rng = np.random.default_rng(seed)
    size = sum(members)
    low: npt.NDArray[np.intp] | int = 0
    high: npt.NDArray[np.intp] | int = size
    if len(members) > 1:
        ends = np.cumsum(members)
        low, high = (np.repeat(bound, members) for bound in (ends - members, ends))
    rows = max(1, _CHUNK_DRAWS // size)
    for start in range(0, resamples, rows):
        yield rng.integers(low, high, size=(min(rows, resamples - start), size))


def _count_draws(members: tuple[int, ...], resamples: int, seed: int) -> Iterator[npt.NDArray[np.uint8]]:
    """Yields cluster counts; above 255 has a chance below 1e-300."""
    size = sum(members)
    for some in _draw_clusters(members, resamples, seed):
        positions = some + size * np.arange(len(some))[:, None]
        yield np.bincount(positions.ravel(), minlength=positions.size).astype(np.uint8).reshape(some.shape)


@lru_cache(maxsize=2)
def _cached_counts(members: tuple[int, ...], resamples: int, seed: int) -> tuple[npt.NDArray[np.uint8], ...]:
    """Returns cached `_count_draws` for equal cluster counts."""
    return tuple(_count_draws(members, resamples, seed))


def quantiles(drawn: npt.NDArray[np.float64], low: float, high: float) -> tuple[float, float]:
    """Returns two quantiles of (resample,); NaN where mostly undefined."""
    defined = drawn[~np.isnan(drawn)]
    if not defined.size or defined.size * 2 < drawn.size:
        return np.nan, np.nan
    first, second = np.quantile(defined, [low, high])
    return float(first), float(second)
