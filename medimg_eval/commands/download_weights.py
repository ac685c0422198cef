"""`download annotator=` and `extractor=`: the weights that metrics need, into the hub's own cache."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig

from medimg_eval.commands.console import printer, say
from medimg_eval.data.archives import in_words
from medimg_eval.data.download import hub_module
from medimg_eval.errors import UsageError, UserError
from medimg_eval.instantiate import Annotators, Extractors
from medimg_eval.models.annotators import Annotator
from medimg_eval.models.extractors import FeatureExtractor
from medimg_eval.models.hub import HubName, Weights, hub_name

SMALL = (".json", ".txt", ".model")
"""What configs and tokenizers are kept in."""

WHOLE = ("config.json",)
"""The files that are looked for of a model that is needed as a whole."""

PARAMETERS = ("model*.safetensors", "pytorch_model*.bin")
"""Names of files of parameters, the better format first."""


def chosen_annotator(wanted: Mapping[str, Any]) -> tuple[str, Annotator]:
    """Annotator of `annotator=NAME` with overrides, without weights."""
    return _chosen_config(wanted, "annotator", Annotators)


def chosen_extractor(wanted: Mapping[str, Any]) -> tuple[str, FeatureExtractor]:
    """Makes the extractor that `extractor=NAME` names, likewise."""
    return _chosen_config(wanted, "extractor", Extractors)


def _chosen_config(wanted: Mapping[str, Any], group: str, kind: type[Annotators]) -> tuple[str, Any]:
    name = HydraConfig.get().runtime.choices[group]
    changed = wanted[f"{group}s"].get(name) or {}
    config = changed if "_target_" in changed else {**wanted[group], **changed}
    extractor: Any = kind({**wanted[f"{group}s"], name: config})[name].load()
    extractor.name = name
    return name, extractor


def download_weights(group: str, name: str, made: Annotator | FeatureExtractor) -> None:
    """Downloads missing weights of an annotator or extractor; prints next steps.

    What broke off goes on; the hub's library keeps the files, below HF_HOME, and verifies their size.

    Args:
        group: `annotator` or `extractor`.
        name: its own, such as "chexbert".
        made: what lacks weights.

    Raises:
        UsageError: its weights are named as no repository can be.
        UserError: the hub does not give a file, or cannot be reached; or something is to be had elsewhere.
    """
    tell = partial(say, printer())
    if not sys.stderr.isatty():
        hub_module("utils").disable_progress_bars()
    failed, arguments = [], set()
    # What an archive needs beside itself may stand in the archive, and is known once it is there.
    while (weights := next((need for need in made.needs if need.argument not in arguments), None)) is not None:
        arguments.add(weights.argument)
        key = f"{group}s.{name}.{weights.argument}"
        if not _fetch_need(getattr(made, weights.argument), weights, key, tell):
            failed.append(f"{key}: {weights.what}; had from {weights.source} (licence: {weights.licence})")
    if failed:
        raise UserError("\n".join([*failed, "cannot be fetched from the hub for you; set each key to a path"]))
    tell(f"next: python -m medimg_eval check metrics=all, or test with metrics that need {name}")


def _fetch_need(given: Any, weights: Weights, key: str, tell: Callable[[str], None]) -> bool:
    """Downloads one need unless present; returns whether it is there."""
    name = key.split(".")[1]
    try:
        there = weights.find(given, name)
    except UserError:
        named = hub_name(str(given or ""))
        if named.repository.count("/") != 1 or named.repository.startswith((".", "~", "/")):
            return False
        tell(f"{named.repository}: {weights.what}; licence: {weights.licence}")
        with _explain_errors(named, named.file, key):
            files = _select_files(named, weights)
        for file in files:
            with _explain_errors(named, file, key):
                got = Path(hub_module().hf_hub_download(named.repository, file, revision=named.revision or None))
            tell(f"{file}: {in_words(got.stat().st_size)}")
        there = weights.find(given, name)
    tell(f"{key}: {there}")
    return True


def _select_files(named: HubName, weights: Weights) -> list[str]:
    """Wanted repository files: required ones, then small ones.

    Where only `config.json` is looked for, the parameters belong to it, too, in one of their formats.
    """
    if named.file:
        return [named.file]
    there = hub_module().HfApi().list_repo_files(named.repository, revision=named.revision or None)
    top = [file for file in there if "/" not in file]
    needed = [next((file for file in wanted.split("|") if file in there), wanted) for wanted in weights.files]
    small = [file for file in top if Path(file).suffix in SMALL and file not in needed]
    if weights.files == WHOLE:
        of_kind = ([file for file in top if fnmatchcase(file, kind)] for kind in PARAMETERS)
        needed = [*next(filter(None, of_kind), []), *needed]
    return [*sorted(needed, key=lambda file: Path(file).suffix in SMALL), *small]


@contextmanager
def _explain_errors(named: HubName, file: str, key: str) -> Iterator[None]:
    """Turns what the hub and the network say into sentences."""
    errors = hub_module("errors")
    page = f"https://huggingface.co/{named.repository}"
    try:
        yield
    except errors.GatedRepoError as error:
        raise UserError(
            f"{named.repository} is gated; ask for access at {page}, then run `hf auth login` and the command again"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise UserError(
            f"the hub shows no model {named.repository}; look at {page}, run `hf auth login` where it is private, or "
            f"set {key}"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise UserError(f"{named.repository}: has no revision {named.revision!r}; set {key}") from error
    except errors.EntryNotFoundError as error:
        if isinstance(error, errors.LocalEntryNotFoundError):
            raise _broken_off(named, file, error) from error
        raise UserError(
            f"{named.repository}: holds no file {file!r}; look for its present name at {page}/tree/main, and set {key}"
        ) from error
    except errors.HFValidationError as error:
        raise UsageError(f"{key} names {named.repository!r}, expected owner/name") from error
    except (OSError, *errors.HfHubHTTPError.__bases__) as error:
        raise _broken_off(named, file, error) from error


def _broken_off(named: HubName, file: str, error: Exception) -> UserError:
    message = " ".join(str(error).split()) or type(error).__name__
    return UserError(
        f"{named.repository}, file {file}: could not be fetched ({message}); the same command goes on from here"
    )
