"""What annotators with a BERT share: where it runs, its tokenizer, and what texts become."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from medimg_eval.errors import UserError, import_optional


def device_of(wanted: str) -> str:
    """The device that a setting means: "auto" takes a GPU where there is one.

    Raises:
        UserError: there is no such device here.
    """
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
    """The tokenizer of a folder, from its own files or from BERT's `vocab.txt` alone.

    Raises:
        UserError: it cannot be read.
    """
    transformers = import_optional("transformers")
    own = (folder / "tokenizer_config.json").is_file()
    kind = transformers.AutoTokenizer if own else transformers.BertTokenizer
    try:
        return kind.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # a folder can hold anything
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(f"{folder}: holds no tokenizer that transformers can read ({reason})") from error


def encoded(tokenizer: Any, texts: Sequence[str], longest: int, device: Any) -> tuple[dict[str, Any], list[bool]]:
    """Turns texts into padded tensors, and says which were longer than what is read.

    Args:
        tokenizer: of transformers.
        texts: at least one.
        longest: tokens that are read, those that the tokenizer adds at the ends among them.
        device: where the tensors go.
    """
    whole = tokenizer(list(texts), verbose=False)["input_ids"]
    inputs = tokenizer(list(texts), padding=True, truncation=True, max_length=longest, return_tensors="pt")
    return {name: tensor.to(device) for name, tensor in inputs.items()}, [len(one) > longest for one in whole]


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps the library's progress bars out of log files, and its advice to programmers away from users.

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
