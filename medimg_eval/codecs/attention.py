"""Weights of tiles beside an answer, small enough for the file that a run keeps its records in."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from medimg_eval.case import Array


def attention_record(attention: Array | None) -> dict[str, Any]:
    """What JSON holds of weights: `attention` with the largest, and all over it as float16 in base64; {} for None.

    Args:
        attention: (tile,), from 0.
    """
    if attention is None:
        return {}
    largest = float(np.max(attention, initial=0.0))
    shares = np.asarray(attention, np.float64) / (largest or 1.0)
    return {"attention": {"largest": largest, "shares": base64.b64encode(shares.astype("<f2").tobytes()).decode()}}


def attention_of(record: Mapping[str, Any]) -> Array | None:
    """Weights of tiles, float32, (tile,), as `attention_record` wrote them; None where there are none.

    Raises:
        KeyError, TypeError, ValueError: the record is another one.
    """
    kept = record.get("attention")
    if kept is None:
        return None
    shares: Array = np.frombuffer(base64.b64decode(kept["shares"], validate=True), "<f2").astype(np.float32)
    return shares * np.float32(kept["largest"])
