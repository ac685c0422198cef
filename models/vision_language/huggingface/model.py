"""Vision-language models of the Hugging Face hub."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from medimg_eval.case import Prompts
from medimg_eval.errors import UsageError, import_optional
from medimg_eval.models.base import Chooser, Example, VisionLanguageModel
from medimg_eval.models.vision_language.huggingface.chat import ChatTemplate, Reader
from medimg_eval.models.vision_language.huggingface.decoding import (
    build_generation_options,
    compute_log_probabilities,
    count_completion_tokens,
    decode_replies,
    score_options,
)
from medimg_eval.models.vision_language.huggingface.loading import (
    CheckpointSource,
    find_checkpoint,
    load_checkpoint,
    make_quantisation_options,
)
from medimg_eval.question import Decoding, Turn


class HuggingFaceVLM(nn.Module, VisionLanguageModel, Chooser):
    """Checkpoint of `AutoModelForImageTextToText`, or a text-only language model.

    Prompts are put into the checkpoint's chat template and padded on the left. Decoding is greedy, without the sampling
    and penalties that the checkpoint may suggest; with a temperature, each prompt's draws depend on the seed and on
    that prompt alone. With `task.view=video` a processor of videos, such as Qwen2.5-VL's, is given the frames that the
    task chose with their times. It is loaded when it is first needed.

    Args:
        checkpoint: id on the Hugging Face hub, or a folder that `save_pretrained` wrote.
        revision: branch, tag or commit on the hub; a commit pins the weights.
        dtype: of the weights: `auto` as they are stored, or `float32`, `bfloat16`, `float16`.
        attention: implementation, such as `sdpa`, `eager` or `flash_attention_2`; None for the library's choice.
        quantisation: `4bit` or `8bit`, by bitsandbytes.
        adapter: a PEFT adapter, such as LoRA: folder or id on the hub.
        device_map: spreads the weights over devices, such as `auto`; Lightning then leaves them where they are.
        trust_remote_code: runs code that comes with the checkpoint.
        batch: how many prompts are answered at once, unless the command line says otherwise.
        chat_template: file with a Jinja template, instead of the checkpoint's own.
        chat_template_kwargs: arguments of the template, such as `enable_thinking`; refused where it knows none such.
        processor: settings of its image processor, such as `max_pixels`.
        likelihood: what `choose` weighs: the option's `letter` or its `text`.

    Raises:
        UsageError: an argument that does not exist. Loading raises UserError where the checkpoint is not found, may not
            be downloaded, lacks weights, or needs a library that is not installed.
    """

    file_arguments: ClassVar[tuple[str, ...]] = ("checkpoint", "adapter", "chat_template")
    pace_arguments: ClassVar[tuple[str, ...]] = ("batch", "device_map")
    log_likelihoods: ClassVar[bool] = True
    takes_views: ClassVar[tuple[str, ...]] = ("pictures", "video")

    def __init__(
        self,
        checkpoint: str,
        revision: str | None = None,
        dtype: str = "auto",
        attention: str | None = None,
        *,
        quantisation: str | None = None,
        adapter: str | None = None,
        device_map: Any = None,
        trust_remote_code: bool = False,
        batch: int = 8,
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        processor: Mapping[str, Any] | None = None,
        likelihood: Literal["letter", "text"] = "letter",
    ) -> None:
        super().__init__()
        if dtype != "auto" and not isinstance(getattr(torch, str(dtype), None), torch.dtype):
            raise UsageError(f"model.dtype is {dtype!r}; expected auto, float32, bfloat16 or float16")
        if likelihood not in ("letter", "text"):
            raise UsageError(f"model.likelihood is {likelihood!r}; expected letter or text")
        if batch < 1:
            raise UsageError(f"model.batch is {batch}; expected at least 1")
        self.checkpoint, self.revision, self.adapter = checkpoint, revision, adapter
        self.trust_remote_code, self.chat_template = trust_remote_code, chat_template
        self.chat_template_kwargs = dict(chat_template_kwargs or {})
        self.processor, self.preferred_batch, self.likelihood = dict(processor or {}), batch, likelihood
        self.device_map = device_map or ("auto" if quantisation else None)
        if self.device_map:
            import_optional("accelerate")
        self.options = {"dtype": dtype, "attn_implementation": attention, "device_map": self.device_map}
        self.options |= make_quantisation_options(quantisation)
        self.spending: dict[str, float] = {"prompts": 0, "prompt_tokens": 0, "completion_tokens": 0, "seconds": 0.0}
        self.source: CheckpointSource | None = None
        self.model: Any = None

    def check_ready(self) -> None:
        """Raises UserError where checkpoint or library is missing; loads nothing."""
        import_optional("transformers")
        if self.source is None:
            self.source = find_checkpoint(self.checkpoint, self.revision)

    def prepare(self, labels: Mapping[int, str], example: Example) -> None:
        """Loads the checkpoint, once."""
        self._load()

    def usage(self) -> Mapping[str, Any]:
        """Prompts, tokens, seconds, and the hub commit of the checkpoint."""
        commit = self.source.commit if self.source else ""
        return self.spending | ({"commit": commit} if commit else {})

    @torch.inference_mode()
    def generate(self, prompts: Prompts, decoding: Decoding) -> list[Turn]:
        """Answers a batch of prompts, as `VisionLanguageModel.generate` says.

        Raises:
            CaseError: a prompt is longer than the model's context, or its template has no place for a part of it.
        """
        answers: dict[int, Turn] = {}
        with self._count_usage(prompts):
            for indices, texts in self.reader.group_prompts(prompts):
                began = time.perf_counter()
                group = [prompts[index] for index in indices]
                inputs = self._encode(texts, group)
                steps = build_generation_options(decoding, group, inputs["attention_mask"], self.reader)
                width = inputs["input_ids"].shape[1]
                ids = self.model.generate(**inputs, **steps)[:, width:]
                lengths = count_completion_tokens(ids, self.model.generation_config)
                self.spending["completion_tokens"] += sum(lengths)
                ends = torch.as_tensor(self.model.generation_config.eos_token_id).reshape(-1).tolist()
                written = decode_replies(ids, texts, lengths, decoding, self.reader.tokenizer, ends)
                read, seconds = inputs["attention_mask"].sum(1).tolist(), (time.perf_counter() - began) / len(indices)
                for index, turn, tokens in zip(indices, written, read, strict=True):
                    turn.usage = turn.usage._replace(input=tokens, seconds=round(seconds, 4))
                    answers[index] = turn
        return [answers[index] for index in range(len(prompts))]

    @torch.inference_mode()
    def choose(self, prompts: Prompts) -> list[dict[str, float]]:
        """Mean token log-probability of each option as the answer; CaseError as in `generate`."""
        weights: dict[int, dict[str, float]] = {}
        with self._count_usage(prompts):
            for indices, texts in self.reader.group_prompts(prompts):
                group = [prompts[index] for index in indices]

                def read(whole: Sequence[str], rows: Sequence[int], keep: int, group: Prompts = group) -> Tensor:
                    inputs = self._encode(whole, [group[row] for row in rows])
                    return compute_log_probabilities(self.model, inputs, keep)

                letters = self.likelihood == "letter"
                options = [{key: key if letters else text for key, text in prompt.options.items()} for prompt in group]
                weights |= zip(indices, score_options(texts, options, self.reader.tokenizer, read), strict=True)
        return [weights[index] for index in range(len(prompts))]

    def _apply(self, fn: Any, recurse: bool = True) -> HuggingFaceVLM:
        """Moves weights loaded before; those of a device map stay."""
        self._load()
        return self if self.device_map else super()._apply(fn, recurse)

    def _load(self) -> None:
        if self.model is not None:
            return
        source = self.source = self.source or find_checkpoint(self.checkpoint, self.revision)
        adapter = None if self.adapter is None else find_checkpoint(self.adapter, None, "adapter_config.json")
        loaded = load_checkpoint(source, adapter, self.processor, self.trust_remote_code, self.options)
        template = ChatTemplate(self.checkpoint, loaded.processor, self.chat_template, self.chat_template_kwargs)
        self.reader = Reader(self.checkpoint, loaded.processor, template, loaded.reads_images, loaded.context_length)
        self.model = loaded.model

    def _encode(self, texts: Sequence[str], prompts: Prompts) -> dict[str, Any]:
        inputs = self.reader.encode(texts, prompts, self.model)
        self.spending["prompt_tokens"] += int(inputs["attention_mask"].sum())
        return inputs

    @contextmanager
    def _count_usage(self, prompts: Prompts) -> Iterator[None]:
        self._load()
        start = time.perf_counter()
        yield
        self.spending["prompts"] += len(prompts)
        self.spending["seconds"] += time.perf_counter() - start
