"""Where the checkpoint of a Hugging Face model lies, and how it becomes a model."""

from __future__ import annotations

import logging
import os
import re
import socket
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from medimg_eval.errors import UsageError, UserError, import_optional, nearest
from medimg_eval.models.text_encoders import quiet
from medimg_eval.models.vision_language.huggingface.decoding import make_greedy_config

log = logging.getLogger(__name__)

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
QUANTISATIONS = {"4bit": "load_in_4bit", "8bit": "load_in_8bit"}
PIXEL_SETTINGS = {"min_pixels": "shortest_edge", "max_pixels": "longest_edge"}
"""What the image processors of Qwen-VL, whose own pages speak of pixels, call the two in their `size`."""

CONNECT_TIMEOUT = 0.7
"""Seconds in which the hub must take a connection; its own client tries for 23 before it gives up."""


@dataclass(frozen=True)
class CheckpointSource:
    """Where a checkpoint is read from.

    Attributes:
        name: a folder, or an id on the hub.
        location: what `from_pretrained` is given: the id only if the hub is to be asked.
        options: for every `from_pretrained` of it.
        commit: of the hub's repository; "" for a folder.
    """

    name: str
    location: str
    options: Mapping[str, Any] = field(default_factory=dict)
    commit: str = ""


@dataclass(frozen=True)
class LoadedCheckpoint:
    """A model in evaluation mode, and what turns prompts into its inputs.

    Attributes:
        model: a `PreTrainedModel` that can `generate`, or a `PeftModel` around one.
        processor: of texts and images; of a model of text alone its tokenizer.
        reads_images: whether it takes images.
        context_length: the longest sequence that it can read, in tokens; None where it does not say.
    """

    model: Any
    processor: Any
    reads_images: bool
    context_length: int | None


def find_checkpoint(checkpoint: str, revision: str | None, file: str = "config.json") -> CheckpointSource:
    """Finds a checkpoint on disk, in the cache, or on the hub.

    It is a folder, or an id such as `Qwen/Qwen2.5-VL-7B-Instruct` with a branch, tag or commit; `file` is one that
    every such checkpoint has.

    Raises:
        UserError: it is in none of these places, or may not be downloaded.
    """
    folder = Path(checkpoint).expanduser()
    if folder.is_dir():
        if not (folder / file).is_file():
            raise UserError(f"{folder}: is no checkpoint of transformers, there is no {file} in it")
        return CheckpointSource(str(folder), str(folder))
    if folder.exists() or checkpoint.startswith((".", "~")) or not HUB_ID.fullmatch(checkpoint):
        raise UserError(
            f"{checkpoint}: no such folder; set model.checkpoint to a folder that save_pretrained wrote, or to an id "
            "on the Hugging Face hub such as Qwen/Qwen2.5-VL-7B-Instruct"
        )
    import huggingface_hub as hub
    from huggingface_hub.constants import HF_HUB_CACHE

    offline = not _is_hub_reachable()
    try:
        path = Path(hub.hf_hub_download(checkpoint, file, revision=revision, local_files_only=offline))
    except hub.errors.GatedRepoError as error:
        raise UserError(
            f"{checkpoint}: access to it must be asked for at https://huggingface.co/{checkpoint}; then log in with "
            "`hf auth login` (huggingface-cli login), or set HF_TOKEN"
        ) from error
    except hub.errors.LocalEntryNotFoundError as error:
        raise UserError(
            f"{checkpoint}: is no folder, is not in the cache {HF_HUB_CACHE} (set HF_HOME to use another), and the "
            f"Hugging Face hub cannot be reached; download it where it can with `hf download {checkpoint}`, or set "
            "model.checkpoint to a folder"
        ) from error
    except (hub.errors.HfHubHTTPError, OSError, ValueError) as error:
        raise UserError(
            f"{checkpoint}: is no folder, and the Hugging Face hub does not give it at revision {revision or 'main'} "
            f"({_first_line(error)}); look at the id, and if it is private log in with `hf auth login`"
        ) from error
    commit = path.parent.name
    if offline:
        return CheckpointSource(checkpoint, str(path.parent), commit=commit)
    return CheckpointSource(checkpoint, checkpoint, {"revision": commit}, commit)


def load_checkpoint(
    source: CheckpointSource,
    adapter: CheckpointSource | None,
    settings: Mapping[str, Any],
    trust_remote_code: bool,
    options: Mapping[str, Any],
) -> LoadedCheckpoint:
    """Loads a checkpoint, with the PEFT adapter that is put on it.

    `settings` take the place of its processor's own; `options` go to the model's `from_pretrained`.

    Raises:
        UserError: a library is missing, weights are missing, or it is no model that reads and writes.
    """
    transformers = import_optional("transformers")
    general = dict(source.options) | {"trust_remote_code": trust_remote_code}
    with quiet(), _explain_load_errors(source.name):
        config = transformers.AutoConfig.from_pretrained(source.location, **general)
        reads_images = _check_modalities(source.name, config)
        if reads_images:
            own = general | {key: value for key, value in settings.items() if key not in PIXEL_SETTINGS}
            processor: Any = transformers.AutoProcessor.from_pretrained(source.location, **own)
            _apply_processor_settings(processor, settings)
        else:
            processor = transformers.AutoTokenizer.from_pretrained(source.location, **general)
        tokenizer = getattr(processor, "tokenizer", processor)
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        model = _load_model(source, reads_images, {**general, **options})
        model.generation_config = make_greedy_config(model.generation_config, tokenizer)
        if adapter is not None:
            peft = import_optional("peft")
            with _explain_load_errors(adapter.name):
                model = peft.PeftModel.from_pretrained(model, adapter.location, **adapter.options)
    context_length = getattr(config.get_text_config(), "max_position_embeddings", None)
    return LoadedCheckpoint(model.eval(), processor, reads_images, context_length)


def make_quantisation_options(quantisation: str | None) -> dict[str, Any]:
    """Loading options for 4 or 8 bits; UserError without bitsandbytes."""
    if quantisation is None:
        return {}
    UsageError.refuse_invalid("model.quantisation", QUANTISATIONS, quantisation)
    import_optional("bitsandbytes")
    transformers = import_optional("transformers")
    return {"quantization_config": transformers.BitsAndBytesConfig(**{QUANTISATIONS[quantisation]: True})}


def _is_hub_reachable() -> bool:
    from huggingface_hub.constants import ENDPOINT, HF_HUB_OFFLINE

    address = urlsplit(ENDPOINT)
    if HF_HUB_OFFLINE or os.environ.get("TRANSFORMERS_OFFLINE", "0").lower() in ("1", "true", "yes", "on"):
        return False
    if address.scheme in urllib.request.getproxies():  # which resolves names that this machine cannot
        return True
    try:
        socket.create_connection((address.hostname or "", address.port or 443), CONNECT_TIMEOUT).close()
    except OSError:
        return False
    return True


def _check_modalities(name: str, config: Any) -> bool:
    from transformers.models.auto import modeling_auto as auto

    own = getattr(config, "auto_map", None) or {}
    if type(config) in auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING or "AutoModelForImageTextToText" in own:
        return True
    if type(config) in auto.MODEL_FOR_CAUSAL_LM_MAPPING or "AutoModelForCausalLM" in own:
        return False
    raise UserError(
        f"{name}: is a model of type {config.model_type!r}, which transformers cannot load as one that reads images "
        "and text and writes text; use a checkpoint in transformers' own format (often named -hf)"
    )


def _load_model(source: CheckpointSource, reads_images: bool, options: Mapping[str, Any]) -> Any:
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    kind: Any = AutoModelForImageTextToText if reads_images else AutoModelForCausalLM
    model, report = kind.from_pretrained(source.location, output_loading_info=True, **options)
    lacking = sorted(report["missing_keys"]) + sorted(str(entry) for entry in report.get("mismatched_keys") or ())
    if lacking:
        raise UserError(
            f"{source.name}: {len(lacking)} weights that the architecture needs are missing, such as {lacking[0]}; "
            "answers would come from random numbers"
        )
    return model


def _apply_processor_settings(processor: Any, options: Mapping[str, Any]) -> None:
    """Sets the pixel range; refuses names that the library ignores."""
    image: Any = getattr(processor, "image_processor", None)
    settings = set(getattr(getattr(image, "valid_kwargs", None), "__annotations__", ())) | {"use_fast", "backend"}
    for key, value in options.items():
        if not (key in settings or hasattr(image, key) or hasattr(processor, key)):
            raise UsageError(
                f"{type(processor).__name__} has no setting {key!r} (model.processor){nearest(key, settings)}"
            )
        if key in PIXEL_SETTINGS:
            image.size = {**dict(image.size), PIXEL_SETTINGS[key]: value}


@contextmanager
def _explain_load_errors(name: str) -> Iterator[None]:
    """Turns the library's loading errors into one sentence."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        hint = "; set model.trust_remote_code=true if you trust it" if "trust_remote_code" in str(error) else ""
        raise UserError(f"{name}: cannot be loaded ({type(error).__name__}: {_first_line(error)}){hint}") from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
