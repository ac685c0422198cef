"""Conditions under which cases of unlike parts, such as an OCT and a fundus photograph, lack one of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from medimg_eval.case import Array, Case, ChangedImage, Condition, Geometry, GridAsRead, Image, Reference
from medimg_eval.degradations.drawing import DrawKey
from medimg_eval.errors import UsageError
from medimg_eval.image import SEQUENCE, SIGNAL, VALUES

KINDS = ("without", "only", "missing", "blank", "noisy", "dropped")
"""`without_oct`, `only_oct`, `missing_oct-30`: without it in 30 % of cases; `blank_values-30`: so often each value;
`noisy_ecg-3` and `dropped_dna-3`: a signal with noise, a text with words left out, of severities 1 to 5."""

OF_FORM = {"blank": VALUES, "noisy": SIGNAL, "dropped": SEQUENCE}
"""Kind -> form of the parts that it is for; the others are for any."""

SIGNAL_TO_NOISE = (30, 20, 10, 5, 0)
"""Decibels of a signal above its noise, of severities 1 to 5."""

DROPPED = (0.05, 0.1, 0.2, 0.35, 0.5)
"""Share of words that are left out, or of letters of a text without blanks."""


@dataclass(frozen=True)
class BlankedValues:
    """Values of a case, some randomly made unknown when read."""

    values: Reference[Image]
    share: float
    key: DrawKey

    @property
    def files(self) -> tuple[Path, ...]:
        """Files of the values."""
        return self.values.files

    def read(self) -> Image:
        """Reads values, (1, 1, value); blanked ones are NaN, nested by share."""
        values = self.values.read()
        drawn = self.key.generator("blank_values").random(values.array.shape)
        return replace(values, array=np.where(100 * drawn < self.share, np.nan, values.array))

    def geometry(self) -> Geometry:
        """Grid of the values."""
        return self.values.geometry()


@dataclass(frozen=True)
class DamagedPart(GridAsRead, ChangedImage):
    """A signal or a text that is damaged as it is read."""

    image: Reference[Image]
    condition: Condition
    key: DrawKey

    @property
    def part(self) -> str:
        """Name of the part."""
        return _part_of(self.image)

    def read(self) -> Image:
        """Reads and damages it; raises UsageError for a severity that there is not."""
        image, severity = self.image.read(), self.condition.severity or 1
        if severity > len(DROPPED):
            raise UsageError(f"condition {self.condition.key!r}: expected a severity from 1 to 5, got {severity}")
        kind = self.condition.name.partition("_")[0]
        damage = add_noise if kind == "noisy" else drop_words
        level = (SIGNAL_TO_NOISE if kind == "noisy" else DROPPED)[severity - 1]
        return replace(image, array=damage(image.array, level, self.key.generator(kind)))


def add_noise(samples: Array, decibels: float, random: np.random.Generator) -> Array:
    """Adds Gaussian noise at a signal-to-noise ratio per channel.

    Args:
        samples: (channel, 1, time).
        decibels: of the signal's power, about its mean, above the noise's.
        random: draws the noise, which differs between severities in its size alone.
    """
    noise = random.standard_normal(samples.shape)
    noisy: Array = samples + noise * samples.std(axis=-1, keepdims=True) * 10 ** (-decibels / 20)
    return noisy.astype(samples.dtype)


def drop_words(codes: Array, share: float, random: np.random.Generator) -> Array:
    """Drops a share of words, or letters, leaving at least one.

    Letters where a text has no blanks.

    Args:
        codes: of its UTF-8, (1, 1, code).
        share: of words; those that a lower share drops a higher does, too.
        random: draws which.
    """
    text = codes.tobytes().decode()
    blank = " " if " " in text.strip() else ""
    pieces = text.split() if blank else list(text)
    order = random.permutation(len(pieces))
    dropped = set(order[: min(round(share * len(pieces)), len(pieces) - 1)].tolist())
    kept_text = blank.join(piece for index, piece in enumerate(pieces) if index not in dropped)
    return np.frombuffer(kept_text.encode(), np.uint8)[None, None]


def part_conditions(parts: Iterable[str], forms: Mapping[str, str] = MappingProxyType({})) -> frozenset[str]:
    """Names of the conditions of cases with these parts.

    Args:
        parts: all of them.
        forms: part -> form, of those that are no pictures.
    """
    return frozenset(
        f"{kind}_{part}" for part in parts for kind in KINDS if OF_FORM.get(kind) in (None, forms.get(part))
    )


def is_part_condition(condition: Condition) -> bool:
    """Whether a condition takes parts away."""
    return condition.name.partition("_")[0] in KINDS


def without_parts(case: Case, condition: Condition, key: DrawKey) -> Case:
    """Returns a case without images removed by `part_conditions`.

    Which cases lack a part under `missing_` the key decides, so that it is the same for every model, and those of a
    lower share are among those of a higher.
    """
    kind, _, part = condition.name.partition("_")
    if kind == "blank":
        share = float(condition.severity or 100)
        return replace(
            case,
            images=tuple(
                BlankedValues(image, share, key) if _part_of(image) == part else image for image in case.images
            ),
        )
    if kind in ("noisy", "dropped"):
        damaged = (DamagedPart(image, condition, key) if _part_of(image) == part else image for image in case.images)
        return replace(case, images=tuple(damaged))
    if kind == "only":
        return replace(case, images=tuple(image for image in case.images if _part_of(image) == part))
    if kind == "missing" and 100 * key.generator(condition.name).random() >= (condition.severity or 100):
        return case
    return replace(case, images=tuple(image for image in case.images if _part_of(image) != part))


def _part_of(image: Any) -> str:
    """Kind of an unread image, as its layout says."""
    return str(getattr(image, "part", ""))
