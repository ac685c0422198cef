"""What annotators with a BERT share: where it runs, how it is loaded, and what texts become."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import UserError, import_optional

TOGETHER = 128
"""Names that are computed at once."""


def device_of(wanted: str) -> str:
    """Device of a setting; "auto" takes a GPU if any; UserError if there is none such."""
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=wanted)
    except (AssertionError, RuntimeError) as error:  # by what torch was built with
        reason = str(error).partition("\n")[0]
        raise UserError(f"device={wanted} is not to be had here ({reason}); set it to cpu, or to auto") from error
    return wanted


def tokenizer_of(folder: Path) -> Any:
    """Tokenizer of a folder, by its files or BERT's `vocab.txt`; UserError if unreadable."""
    own = (folder / "tokenizer_config.json").is_file()
    return pretrained("AutoTokenizer" if own else "BertTokenizer", folder, "tokenizer")


def pretrained(kind: str, folder: Path, what: str, **options: Any) -> Any:
    """Loads from a folder by transformers, without network or foreign code.

    `kind` is the class that loads it, such as `AutoModel`; `options` go to `from_pretrained`.

    Raises:
        UserError: it cannot be loaded.
    """
    transformers = import_optional("transformers")
    try:
        return getattr(transformers, kind).from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, **options
        )
    except Exception as error:  # a folder can hold anything
        raise UserError(
            f"{folder}: holds no {what} that transformers can load as {kind} ({in_one_line(error)})"
        ) from error


def loaded(kind: str, folder: Path, **options: Any) -> Any:
    """Model from a folder; raises UserError for none or mismatched weights."""
    model, report = pretrained(kind, folder, "model", output_loading_info=True, **options)
    missing = sorted(key for key in report["missing_keys"] if "pooler" not in key)
    if missing:
        raise UserError(
            f"{folder}: its weights lack {len(missing)} tensors of {type(model).__name__}, such as {missing[0]!r}; "
            "they are another model's"
        )
    return model


def in_one_line(error: BaseException) -> str:
    """Error of a library in one line, short enough for a message."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def encoded(tokenizer: Any, texts: Sequence[str], longest: int, device: Any) -> tuple[dict[str, Any], list[bool]]:
    """Pads texts into tensors; says which were cut.

    Args:
        tokenizer: of transformers.
        texts: at least one.
        longest: tokens that are read, those that the tokenizer adds at the ends among them.
        device: where the tensors go.
    """
    token_ids = tokenizer(list(texts), verbose=False)["input_ids"]
    inputs = tokenizer(list(texts), padding=True, truncation=True, max_length=longest, return_tensors="pt")
    return {name: tensor.to(device) for name, tensor in inputs.items()}, [len(ids) > longest for ids in token_ids]


@contextmanager
def quiet() -> Iterator[None]:
    """Silences the library's progress bars and advice within the block.

    What it imports and loads stays, so that looking for garbage meanwhile would double the time it takes.
    """
    from transformers.utils import logging as theirs

    level, bars, collecting = theirs.get_verbosity(), theirs.is_progress_bar_enabled(), gc.isenabled()
    gc.disable()
    theirs.set_verbosity_error()
    if not sys.stderr.isatty():
        theirs.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        theirs.set_verbosity(level)
        if bars:
            theirs.enable_progress_bar()
        if collecting:
            gc.enable()


class NameVectors:
    """Transformers encoder of names, each computed once; UserError without such a model."""

    def __init__(self, folder: Path, device: str, longest: int) -> None:
        self._tokenizer = tokenizer_of(folder)
        self._network = loaded("AutoModel", folder).to(device_of(device)).eval()
        self._longest = longest

    def of(self, names: Sequence[str], pooling: Literal["first", "mean"] = "first") -> Array:
        """Returns unit vectors of names, float64, (name, feature), of first token or mean."""
        import torch

        distinct = sorted(dict.fromkeys(names), key=len)
        vectors_: dict[str, Array] = {}
        for start in range(0, len(distinct), TOGETHER):
            some = distinct[start : start + TOGETHER]
            inputs, _ = encoded(self._tokenizer, some, self._longest, self._network.device)
            with torch.inference_mode():
                hidden = self._network(**inputs).last_hidden_state.double()
            read = inputs["attention_mask"][..., None].double()
            vectors = hidden[:, 0] if pooling == "first" else (hidden * read).sum(1) / read.sum(1).clamp(min=1)
            unit = torch.nn.functional.normalize(vectors, dim=1).cpu().numpy()
            vectors_.update(zip(some, unit, strict=True))
        return np.stack([vectors_[name] for name in names]) if names else np.zeros((0, 0))
