"""Statistics of signals and of texts as features: no network, no weights; floors for encoders that learned."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from medimg_eval.case import Array, Image, Prompts
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.image import FORM, SEQUENCE, SIGNAL
from medimg_eval.models.base import Embedder, shown_images

PERCENTILES = (5, 25, 50, 75, 95)


class SignalStatistics(Embedder):
    """Statistics of signals such as ECGs: 8 per channel, and band powers.

    Mean, deviation, percentiles of what is left without the mean, and mean step between samples; then the logarithm of
    the share of power in bands of equal width on a logarithmic axis of frequency.

    Args:
        bands: of frequency.
    """

    uses_torch: bool = False
    file_arguments: ClassVar[tuple[str, ...]] = ()
    revision: ClassVar[str] = "statistics of signals, 1"

    def __init__(self, bands: int = 8) -> None:
        if bands < 1:
            raise UsageError(f"expected bands of signals from 1, got {bands}")
        self.bands = bands

    def embed(self, prompts: Prompts) -> Sequence[Array]:
        """Embeds signals (channel, 1, time): float32, (channel x (8 + bands),) each."""
        return [self._vector(_only_image(prompt.case_id, shown_images(prompt), SIGNAL)) for prompt in prompts]

    def _vector(self, image: Image) -> Array:
        samples = np.asarray(image.array, np.float64).reshape(image.array.shape[0], -1)
        centred = samples - samples.mean(1, keepdims=True)
        steps = np.abs(np.diff(samples)).mean(1) if samples.shape[1] > 1 else np.zeros(len(samples))
        shape = [samples.mean(1), samples.std(1), *np.percentile(centred, PERCENTILES, axis=1), steps]
        power = np.abs(np.fft.rfft(centred)[:, 1:]) ** 2
        edges = np.unique(np.geomspace(1, max(power.shape[1], 1) + 1, self.bands + 1).astype(int)) - 1
        bands = np.zeros((self.bands, len(samples)))
        for band, (low, high) in enumerate(itertools.pairwise(edges)):
            bands[band] = power[:, low:high].sum(1)
        shares = np.log10(bands / np.maximum(power.sum(1), 1e-12) + 1e-6)
        return np.concatenate([np.stack(shape), shares]).T.ravel().astype(np.float32)


class SequenceCounts(Embedder):
    """Hashed counts of short runs in a text, DNA or protein.

    Args:
        letters: of a piece.
        width: of the vector; pieces that share a place of it are counted together.
    """

    uses_torch: bool = False
    file_arguments: ClassVar[tuple[str, ...]] = ()
    revision: ClassVar[str] = "counts of pieces, 1"

    def __init__(self, letters: int = 3, width: int = 256) -> None:
        if letters < 1 or width < 1:
            raise UsageError(f"expected letters and width from 1, got {letters} and {width}")
        self.letters, self.width = letters, width

    def embed(self, prompts: Prompts) -> Sequence[Array]:
        """Embeds text codes (1, 1, code): float32, (width + 1,)."""
        return [self._vector(_only_image(prompt.case_id, shown_images(prompt), SEQUENCE)) for prompt in prompts]

    def _vector(self, image: Image) -> Array:
        text = image.array.tobytes().decode().upper()
        pieces = [text[at : at + self.letters] for at in range(max(1, len(text) - self.letters + 1))]
        indices = [zlib.crc32(piece.encode()) % self.width for piece in pieces]
        counts = np.bincount(indices, minlength=self.width) / len(pieces)
        return np.append(counts, np.log1p(len(text))).astype(np.float32)


def _only_image(case: str, images: Sequence[Image], form: str) -> Image:
    if len(images) != 1 or images[0].attributes.get(FORM) != form:
        raise CaseError(f"case {case!r}: expected one {form}, got {len(images)} images")
    return images[0]
