"""What kind of value a key takes, so that another is refused in one sentence before anything is read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medimg_eval.errors import UsageError

if TYPE_CHECKING:
    from omegaconf import DictConfig

SHARES = ("level", "alpha", "power", "prevalence", "discordant")
"""Keys of numbers between 0 and 1, neither of them taken."""

NUMBERS = ("spacing", "margin", "sd", "expected", "target", "lower", "upper", "cache_gib", "gpu_memory")
"""Keys of other numbers."""

COUNTS: Mapping[str, int] = {
    **dict.fromkeys(("sample", "shown", "examples", "seed"), 0),
    **dict.fromkeys(("resamples", "draws", "voxels", "number", "side", "tokens", "min_group_size"), 1),
    **dict.fromkeys(("splits", "scale"), 2),
}
"""Keys of whole numbers -> the least that they may be."""

TEXTS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("out", "plan", "extraction", "surface", "empty", "resample", "language", "to", "dataset"), ()),
    **dict.fromkeys(("publish", "title", "baseline", "correction", "test", "method", "what", "interval"), ()),
    **dict.fromkeys(("stratify_by", "search", "cache", "references", "real", "train", "log"), ()),
    "by": ("fairness",),
    "card": ("table",),
    "cases": ("phantom", "report", "figure"),
    "metric": ("figure",),
}
"""Keys of a name or path -> commands where they take something else, too."""

COUNTED = ("baseline",)
"""Keys of names whose numbers stay numbers: `monitor` counts periods by `baseline=`."""


def check_settings(command: str, config: DictConfig) -> DictConfig:
    """Refuses values of another kind than their keys take, and gives the config back.

    Names that look like numbers, as `out=2026`, become texts.

    Raises:
        UsageError: a value is no number, too small, or no name.
    """
    from omegaconf import OmegaConf

    for key in (str(name) for name in config):
        if OmegaConf.is_missing(config, key) or OmegaConf.is_interpolation(config, key):
            continue
        value = config[key]
        if key == "runs" and value is None and config.get("scores") is None:
            raise UsageError("runs is null; name the folder of runs by runs=DIR")
        if key in SHARES or key in NUMBERS or key in COUNTS:
            _check_number(key, value)
        elif key == "runs" and isinstance(value, Sequence) and not isinstance(value, str):
            texts = [_checked_text(key, path, numbers=False) for path in value]
            if texts != list(value):
                config[key] = texts
        elif (key in TEXTS and command not in TEXTS[key]) or key == "runs":
            text = _checked_text(key, value, numbers=key in COUNTED)
            if text is not value:
                config[key] = text
    return config


def _check_number(key: str, value: Any) -> None:
    if value is None:
        return
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if key in SHARES:
        if not (number and 0 < value < 1):
            raise UsageError(f"expected {key} to be a number between 0 and 1, such as 0.95, got {value!r}")
    elif key in NUMBERS:
        if not number:
            raise UsageError(f"expected {key} to be a number, got {value!r}")
    elif not (number and isinstance(value, int) and value >= COUNTS[key]):
        raise UsageError(f"expected {key} to be a whole number of at least {COUNTS[key]}, got {value!r}")


def _checked_text(key: str, value: Any, *, numbers: bool) -> Any:
    """A name or path as text; numbers stay where they mean something."""
    if value is None or isinstance(value, Path):
        return value
    if isinstance(value, str):
        if not value.strip():
            raise UsageError(f"{key}= is empty; write {key}=NAME, or leave it out")
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value if numbers else str(value)
    raise UsageError(
        f"expected {key} to be one name or path, got {value}; give one, in quotes where it holds such signs"
    )
