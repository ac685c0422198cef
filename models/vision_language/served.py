"""Models that a server of this machine serves, which is found or started, asked, and ended: vLLM, SGLang, any other."""

from __future__ import annotations

import json
import logging
import weakref
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar
from urllib.parse import urlsplit

from medimg_eval.case import Prompts
from medimg_eval.errors import UsageError, UserError
from medimg_eval.models.base import is_here
from medimg_eval.models.command import Patience, ServerProcess, free_port
from medimg_eval.models.vision_language.openai.client import Client, http_library
from medimg_eval.models.vision_language.openai.model import OpenAICompatible
from medimg_eval.question import Decoding, Turn

log = logging.getLogger(__name__)

READY_S = 2.0


class ServedModel(OpenAICompatible):
    """Model behind a server, found at its address or started.

    The server is a program of an environment of its own and a process group of its own, which ends whole with the
    model, and also where this process is killed. Replies are kept by what decides them: model and `arguments`, and not
    the port. Images are PNG files of a folder that both see where `local_media` is set, else data URLs.

    Args:
        model: what is served: a name on the hub, or a folder.
        command: the program and its arguments; `{model}`, `{host}`, `{port}` and `{media}` (the folder of images) are
            filled in. No shell reads them.
        base_url: where a server is looked for, and started if none answers there; None takes a free port.
        local_media: whether images are files: true for a folder of our own, or the folder that a server which was
            found may read (`--allowed-local-media-path`).
        environment: names of variables that the program sees beside the usual ones.
        folder: that it runs in.
        startup_s: until it must serve.
        grace_s: between asking it to end and killing it.
        settings: of `OpenAICompatible`, such as `concurrency` and `extra`.

    Raises:
        UsageError: an argument is none of its values.
    """

    file_arguments: ClassVar[tuple[str, ...]] = ("model",)
    pace_arguments: ClassVar[tuple[str, ...]] = (
        *OpenAICompatible.pace_arguments,
        *("base_url", "local_media", "environment", "folder", "startup_s", "grace_s"),
    )

    def __init__(
        self,
        model: str,
        command: Sequence[str],
        *,
        base_url: str | None = None,
        local_media: bool | str = False,
        environment: Sequence[str] = (),
        folder: str | None = None,
        startup_s: float = 1800.0,
        grace_s: float = 20.0,
        concurrency: int = 64,
        served_name: str | None = None,
        **settings: Any,
    ) -> None:
        if isinstance(command, str) or not command:
            raise UsageError("model.command is a list, such as [vllm_env/bin/vllm]")
        super().__init__(
            served_name or model,
            base_url or f"http://127.0.0.1:{free_port()}/v1",
            api_key_env=settings.pop("api_key_env", None),
            concurrency=concurrency,
            **settings,
        )
        if not is_here(self._host):
            raise UsageError(f"model.base_url is {base_url!r}, another machine; use model=openai_compatible")
        self.served, self.command, self.environment = model, list(command), list(environment)
        self.folder, self._startup = folder, Patience(startup_s, grace_s=grace_s)
        self._server: ServerProcess | None = None
        self._is_found = False
        self._media: TemporaryDirectory[str] | None = None
        # Replies are kept by what serves, not by where: the next start has another port.
        self._writer = self._writer._replace(url=f"served:{json.dumps([self.served, self.command])}")
        self._local_media = local_media

    def check_ready(self) -> None:
        """Finds or starts the server; raises UserError where that fails."""
        self._ensure_server()
        super().check_ready()

    def generate(self, prompts: Prompts, decoding: Decoding) -> list[Turn]:
        """Asks all prompts; images that were written for them are removed again.

        Raises:
            CaseError: a prompt got no reply.
            UserError: the server would refuse any prompt, has ended, or would drop images.
        """
        if self._drops_images and any(prompt.images for prompt in prompts):
            raise UserError(
                "transformers' continuous batching drops images without a word; leave --continuous-batching out"
            )
        self._ensure_server()
        try:
            return super().generate(prompts, decoding)
        except Exception as error:
            if self._server is not None and not self._server.is_alive:
                words = self._server.last_words()
                self.close()  # the same command starts another one
                raise UserError(f"{self.command[0]} has ended{words}") from error
            raise
        finally:
            if self._writer.media is not None:
                for path in self._writer.media.glob("medimg_eval-*.png"):
                    path.unlink(missing_ok=True)

    def usage(self) -> dict[str, Any]:
        """Usage with the server's version and start settings."""
        usage = super().usage()
        served = {"version": self._version, "command": self._words()} if self._server is not None else {}
        return {**usage, **({"server": served} if served else {})}

    def close(self) -> None:
        """Ends the server that was started; one that was found stays."""
        if self._server is not None:
            self._finalizer.detach()
            self._server.end()
            self._server = None
        if self._media is not None:
            self._media.cleanup()
            self._media = None
            self._writer = self._writer._replace(media=None)

    def _words(self) -> list[str]:
        """The command with its fields filled in."""
        parts = urlsplit(self.base_url)
        media = str(self._writer.media or "")
        fields = {"model": self.served, "host": parts.hostname, "port": str(parts.port or 80), "media": media}
        return [_fill_word(word, fields) for word in self.command]

    @property
    def _drops_images(self) -> bool:
        return any(word in ("--continuous-batching", "--continuous_batching") for word in self.command)

    def _ensure_server(self) -> None:
        if (self._server is not None and self._server.is_alive) or self._is_found:
            return
        if self._serves():
            self._is_found = True
            if isinstance(self._local_media, str):
                self._writer = self._writer._replace(media=Path(self._local_media))
            log.info("%s is served at %s", self.model, self.base_url)
            return
        if self._local_media and self._media is None:
            media = self._local_media if isinstance(self._local_media, str) else None
            self._media = TemporaryDirectory(prefix="medimg_eval-media-", dir=media)
            self._writer = self._writer._replace(media=Path(self._media.name))
        words = self._words()
        log.info("starting %s", " ".join(words))
        self._server = ServerProcess(words, self._serves, self._startup, self.environment, self.folder)
        self._finalizer = weakref.finalize(self, self._server.end)

    def _serves(self) -> bool:
        """Whether a server answers; raises UserError for another model."""
        httpx = http_library()
        try:
            with httpx.Client(timeout=READY_S, trust_env=False) as http:
                answer = http.get(f"{self.base_url}/models")
                names = [str(entry["id"]) for entry in answer.json()["data"]]
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            return False
        if names and self.model not in names and self._names_models:
            raise UserError(f"{self.base_url} serves {', '.join(names)}, and not {self.model}; name another address")
        return bool(answer.status_code == 200)

    _names_models: ClassVar[bool] = True
    """Whether the list of models that the server gives holds the one that is served."""

    @cached_property
    def _version(self) -> str:
        httpx = http_library()
        try:
            with httpx.Client(timeout=READY_S, trust_env=False) as http:
                version = http.get(f"{self.base_url.removesuffix('/v1')}/version").json()
        except (httpx.HTTPError, ValueError):
            return ""
        return str(version.get("version", "")) if isinstance(version, dict) else ""

    @cached_property
    def _client(self) -> Client:
        return self._client_at(f"{self.base_url}/chat/completions")


def _fill_word(word: str, fields: Mapping[str, Any]) -> str:
    for name, value in fields.items():
        word = word.replace(f"{{{name}}}", str(value))
    return word


class VllmModel(ServedModel):
    """A model that vLLM serves, from an environment of its own.

    Args:
        model: a name on the hub, or a folder.
        command: the program, such as `[vllm_env/bin/vllm]`.
        tensor_parallel: GPUs that share the weights.
        data_parallel: copies of the model, each on GPUs of its own.
        adapters: LoRA adapters by name -> folder.
        adapter: name of the one that is asked; None for the model itself.
        prefix_cache: whether what prompts begin with in common is kept; None leaves it to vLLM.
        thinking: whether the model thinks first, for chat templates with a switch; None leaves it to the template.
        reasoning_parser: of vLLM, that parts thought and answer.
        tool_parser: of vLLM, that reads calls of tools.
        images: at most in a prompt; None leaves it to vLLM.
        max_model_len: tokens of prompt and reply.
        gpu_memory_utilization: share of a GPU's memory.
        arguments: further ones, as the command line has them.
        local_media: as of `ServedModel`; images as files by default.
        settings: of `ServedModel`.
    """

    def __init__(
        self,
        model: str,
        command: Sequence[str] = ("vllm",),
        *,
        tensor_parallel: int = 1,
        data_parallel: int = 1,
        adapters: Mapping[str, str] | None = None,
        adapter: str | None = None,
        prefix_cache: bool | None = None,
        thinking: bool | None = None,
        reasoning_parser: str | None = None,
        tool_parser: str | None = None,
        images: int | None = None,
        max_model_len: int | None = None,
        gpu_memory_utilization: float | None = None,
        arguments: Sequence[str] = (),
        local_media: bool | str = True,
        **settings: Any,
    ) -> None:
        adapters = dict(adapters or {})
        if adapter is not None:
            UsageError.refuse_unknown("model.adapters has no", tuple(adapters), adapter)
        words = [
            *(*command, "serve", "{model}", "--host", "{host}", "--port", "{port}"),
            *_option_words("--tensor-parallel-size", tensor_parallel if tensor_parallel != 1 else None),
            *_option_words("--data-parallel-size", data_parallel if data_parallel != 1 else None),
            *_lora_words("--lora-modules", adapters),
            *_switch_words("--enable-prefix-caching", "--no-enable-prefix-caching", prefix_cache),
            *_option_words("--reasoning-parser", reasoning_parser),
            *(["--enable-auto-tool-choice", "--tool-call-parser", tool_parser] if tool_parser else []),
            *_option_words("--limit-mm-per-prompt", None if images is None else json.dumps({"image": images})),
            *_option_words("--max-model-len", max_model_len),
            *_option_words("--gpu-memory-utilization", gpu_memory_utilization),
            *(["--allowed-local-media-path", "{media}"] if local_media else []),
            *map(str, arguments),
        ]
        settings["extra"] = _with_thinking(settings.get("extra"), thinking)
        super().__init__(model, words, local_media=local_media, served_name=adapter, **settings)


class SglangModel(ServedModel):
    """A model that SGLang serves, from an environment of its own.

    Args:
        model: a name on the hub, or a folder.
        command: the interpreter of SGLang's environment and what starts its server.
        tensor_parallel: GPUs that share the weights.
        data_parallel: copies of the model, each on GPUs of its own.
        adapters: LoRA adapters by name -> folder.
        adapter: name of the one that is asked; None for the model itself.
        prefix_cache: whether what prompts begin with in common is kept; None leaves it to SGLang.
        thinking: whether the model thinks first, for chat templates with a switch; None leaves it to the template.
        reasoning_parser: of SGLang, that parts thought and answer.
        tool_parser: of SGLang, that reads calls of tools.
        max_model_len: tokens of prompt and reply.
        gpu_memory_utilization: share of a GPU's memory, for weights and cache.
        arguments: further ones, as the command line has them.
        settings: of `ServedModel`.
    """

    def __init__(
        self,
        model: str,
        command: Sequence[str] = ("python", "-m", "sglang.launch_server"),
        *,
        tensor_parallel: int = 1,
        data_parallel: int = 1,
        adapters: Mapping[str, str] | None = None,
        adapter: str | None = None,
        prefix_cache: bool | None = None,
        thinking: bool | None = None,
        reasoning_parser: str | None = None,
        tool_parser: str | None = None,
        max_model_len: int | None = None,
        gpu_memory_utilization: float | None = None,
        arguments: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        adapters = dict(adapters or {})
        if adapter is not None:
            UsageError.refuse_unknown("model.adapters has no", tuple(adapters), adapter)
        words = [
            *(*command, "--model-path", "{model}", "--host", "{host}", "--port", "{port}"),
            *_option_words("--tensor-parallel-size", tensor_parallel if tensor_parallel != 1 else None),
            *_option_words("--data-parallel-size", data_parallel if data_parallel != 1 else None),
            *_lora_words("--lora-paths", adapters),
            *(["--disable-radix-cache"] if prefix_cache is False else []),
            *_option_words("--reasoning-parser", reasoning_parser),
            *_option_words("--tool-call-parser", tool_parser),
            *_option_words("--context-length", max_model_len),
            *_option_words("--mem-fraction-static", gpu_memory_utilization),
            *map(str, arguments),
        ]
        settings["extra"] = _with_thinking(settings.get("extra"), thinking)
        # SGLang lists the model alone; an adapter is asked for by its name all the same.
        self._names_models = adapter is None  # type: ignore[misc]
        super().__init__(model, words, served_name=adapter, **settings)


def _option_words(name: str, value: Any) -> list[str]:
    return [] if value is None else [name, str(value)]


def _switch_words(on: str, off: str, value: bool | None) -> list[str]:
    return [] if value is None else [on if value else off]


def _lora_words(option: str, adapters: Mapping[str, str]) -> list[str]:
    if not adapters:
        return []
    return ["--enable-lora", option, *(f"{name}={Path(path).expanduser()}" for name, path in adapters.items())]


def _with_thinking(extra: Mapping[str, Any] | None, thinking: bool | None) -> dict[str, Any]:
    """Request fields with thinking switched by both common template names."""
    fields = dict(extra or {})
    if thinking is not None:
        switches = {"enable_thinking": thinking, "thinking": thinking}
        fields["chat_template_kwargs"] = {**switches, **fields.get("chat_template_kwargs", {})}
    return fields
