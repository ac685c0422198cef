"""Vectors of medical names, for annotators that compare what reports call things."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import UserError, import_optional
from medimg_eval.models.text_encoders import device_of, encoded, tokenizer_of

TOGETHER = 128
"""Names that are computed at once."""


class NameVectors:
    """An encoder of transformers; each name is computed once, so that equal names have equal vectors.

    Args:
        folder: with its configuration, weights and tokenizer.
        device: "auto" takes a GPU where there is one.
        longest: tokens that are read of a name.

    Raises:
        UserError: the folder holds no such model.
    """

    def __init__(self, folder: Path, device: str, longest: int) -> None:
        self._tokenizer = tokenizer_of(folder)
        self._network = loaded("AutoModel", folder).to(device_of(device)).eval()
        self._longest = longest

    def of(self, names: Sequence[str], pooling: Literal["first", "mean"] = "first") -> Array:
        """Returns the vectors of names, float64, (name, feature), each of length 1.

        Args:
            names: which may be equal.
            pooling: the vector of the first token, or the mean of all.
        """
        import torch

        distinct = sorted(dict.fromkeys(names), key=len)
        found: dict[str, Array] = {}
        for start in range(0, len(distinct), TOGETHER):
            some = distinct[start : start + TOGETHER]
            inputs, _ = encoded(self._tokenizer, some, self._longest, self._network.device)
            with torch.inference_mode():
                hidden = self._network(**inputs).last_hidden_state.double()
            read = inputs["attention_mask"][..., None].double()
            vectors = hidden[:, 0] if pooling == "first" else (hidden * read).sum(1) / read.sum(1).clamp(min=1)
            unit = torch.nn.functional.normalize(vectors, dim=1).cpu().numpy()
            found.update(zip(some, unit, strict=True))
        return np.stack([found[name] for name in names]) if names else np.zeros((0, 0))


def loaded(kind: str, folder: Path) -> Any:
    """A model of transformers from a folder; raises UserError where it holds none, or weights of another network."""
    transformers = import_optional("transformers")
    try:
        made, report = getattr(transformers, kind).from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, output_loading_info=True
        )
    except Exception as error:  # a folder can hold anything
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(f"{folder}: holds no model that transformers can load as {kind} ({reason})") from error
    lost = sorted(key for key in report["missing_keys"] if "pooler" not in key)
    if lost:
        raise UserError(
            f"{folder}: its weights lack {len(lost)} tensors of {type(made).__name__}, such as {lost[0]!r}; "
            "they are another model's"
        )
    return made
