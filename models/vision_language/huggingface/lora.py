"""Vision-language models that `fit` tunes by LoRA: small matrices beside weights that stay as they are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from medimg_eval.case import Prompt
from medimg_eval.errors import CaseError, UsageError, UserError, import_optional
from medimg_eval.models.fitted import CHECKPOINTS, fitted_folder
from medimg_eval.models.text_encoders import quiet
from medimg_eval.models.vision_language.huggingface.decoding import compute_logits, split_answer
from medimg_eval.models.vision_language.huggingface.model import HuggingFaceVLM
from medimg_eval.question import Key, Message
from medimg_eval.system import file_digest

ADAPTER = "adapter"
"""Folder below the checkpoints of a `fit` run, in PEFT's form."""

RECORD = "fit.json"
"""File in it that says what the adapter was fitted on."""

MARK = "lora_"
"""Part of the name of each tensor that learns."""


@dataclass(frozen=True)
class Taught:
    """One prompt, as the model is asked, with the answer that is learned."""

    prompt: Prompt
    answer: str


class LoraVLM(HuggingFaceVLM):
    """Hugging Face VLM that `fit` tunes by LoRA on questions.

    Beside each linear layer that is adapted two small matrices learn, W + (alpha / rank) B A; B begins at zero, so that
    an adapter that learned nothing answers as the base does. The loss is the cross entropy of the tokens of the answer
    and of the one that ends it; prompt and images are shown, and count for nothing. Choices are learned by their
    letters, `yes_no` by `yes` and `no`, open questions and reports by their text, of several right ones each visit
    takes one. Models of text alone learn tasks that show no images, as with `task.blind=remove`.

    The run folder holds the adapter twice: in Lightning's checkpoints, and as `checkpoints/adapter`, which PEFT,
    vLLM and `model=huggingface_vlm model.adapter=...` read.

    Args:
        base: id on the Hugging Face hub, or a folder that `save_pretrained` wrote.
        checkpoint: folder of a `fit` run; its adapter is loaded, with the settings that it was fitted with.
        rank: of the matrices.
        alpha: weight of the adapter times rank.
        dropout: of what the matrices read, in training.
        targets: names of linear layers, or their ends, such as `q_proj`; None for all of the language model but its
            output layer, and none of what sees.
        gradient_checkpointing: computes activations anew in the backward pass, which takes less memory and more time.
        revision: of the base; so are all other settings, see `HuggingFaceVLM`.

    Raises:
        UsageError: invalid settings. Loading raises UserError where PEFT is missing, a target is no linear layer, or
            the adapter was fitted on another base.
    Source: Hu et al., LoRA (ICLR 2022); rank, alpha, dropout and targets by default those of LLaVA-1.5's
        `finetune_task_lora.sh`.
    """

    file_arguments: ClassVar[tuple[str, ...]] = ("base", "checkpoint", "chat_template")

    def __init__(
        self,
        base: str,
        checkpoint: str | None = None,
        *,
        rank: int = 128,
        alpha: float = 256,
        dropout: float = 0.05,
        targets: Sequence[str] | None = None,
        gradient_checkpointing: bool = False,
        revision: str | None = None,
        dtype: str = "auto",
        attention: str | None = None,
        quantisation: str | None = None,
        device_map: Any = None,
        trust_remote_code: bool = False,
        batch: int = 8,
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        processor: Mapping[str, Any] | None = None,
        likelihood: Literal["letter", "text"] = "letter",
    ) -> None:
        if rank < 1 or alpha <= 0 or not 0 <= dropout < 1:
            raise UsageError(
                f"model.rank={rank}, alpha={alpha}, dropout={dropout}: expected a rank from 1, alpha above 0, and "
                "dropout from 0 to below 1"
            )
        super().__init__(
            base,
            revision,
            dtype,
            attention,
            quantisation=quantisation,
            device_map=device_map,
            trust_remote_code=trust_remote_code,
            batch=batch,
            chat_template=chat_template,
            chat_template_kwargs=chat_template_kwargs,
            processor=processor,
            likelihood=likelihood,
        )
        self.fitted = checkpoint
        self.rank, self.alpha, self.dropout = rank, float(alpha), dropout
        self.targets = None if targets is None else list(targets)
        self.gradient_checkpointing = gradient_checkpointing
        if checkpoint is not None:
            self.adapter = str(fitted_folder(checkpoint) / ADAPTER)
        self.register_load_state_dict_post_hook(_forgive_base)

    def check_ready(self) -> None:
        """Raises UserError where base, library or adapter is missing."""
        super().check_ready()
        if self.fitted is None:
            raise UserError("model.checkpoint is not set: fit the adapter first, and name the run's folder")
        if self.adapter is None or not Path(self.adapter, "adapter_config.json").is_file():
            raise UserError(f"{self.fitted}: holds no adapter of a finished fit; name the folder of one")

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """The adapter's tensors alone: the base is no part of a checkpoint."""
        state = super().state_dict(prefix=prefix, keep_vars=keep_vars)
        kept_state = {} if destination is None else destination
        kept_state.update((name, tensor) for name, tensor in state.items() if MARK in name)
        return kept_state

    def training_samples(self, prompt: Prompt, target: Key, labels: Mapping[int, str], *, seed: int) -> list[Taught]:
        """One prompt with its right answer.

        Raises:
            CaseError: there is no answer that can be written.
        """
        answers = answers_to(prompt, target)
        return [Taught(prompt, answers[int(np.random.default_rng(seed).integers(len(answers)))])]

    def training_loss(self, batch: Sequence[Taught]) -> Tensor:
        """Mean cross entropy of answer tokens, including the end.

        Raises:
            CaseError: a prompt with its answer is longer than the model's context, or its template has no place for
                a part of it.
        """
        total, tokens = torch.zeros(()), 0
        prompts = [lesson.prompt for lesson in batch]
        for indices, texts in self.reader.group_prompts(prompts):
            endings = [self._ending(text, batch[index]) for index, text in zip(indices, texts, strict=True)]
            inputs = self._encode([text for text, _ in endings], [prompts[index] for index in indices])
            wanted = torch.full_like(inputs["input_ids"], -100)
            for row, (_, answer) in enumerate(endings):
                if inputs["input_ids"][row, -len(answer) :].tolist() != list(answer):
                    raise UserError(f"{self.checkpoint}: its processor changes answers; it cannot be tuned here")
                wanted[row, -len(answer) :] = inputs["input_ids"][row, -len(answer) :]
            keep = 1 + max(len(answer) for _, answer in endings)
            logits = compute_logits(self.model, inputs, keep)[:, :-1]
            targets = wanted[:, 1 - keep :]
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
            total, tokens = total.to(loss.device) + loss, tokens + sum(len(answer) for _, answer in endings)
        return total / tokens

    def keep_fitted(self, weights: Path, folder: Path) -> dict[str, Any]:
        """Writes the adapter as PEFT reads it.

        Args:
            weights: Lightning's checkpoint that is kept.
            folder: of the run.

        Returns:
            Where it came from: `base`, `base_digest` (the commit of the hub, or a hash of the folder's weights),
            `rank`, `alpha`, `layers` that are adapted, `parameters` that learned, and `adapter`, the SHA-256 of its
            weights.
        """
        stored = torch.load(weights, map_location="cpu", weights_only=True)["state_dict"]
        self.load_state_dict({name.removeprefix("model."): tensor for name, tensor in stored.items()})
        adapter = folder / CHECKPOINTS / ADAPTER
        with quiet():
            self.model.save_pretrained(adapter, save_embedding_layers=False)
        learned = [(name, parameter) for name, parameter in self.model.named_parameters() if MARK in name]
        facts = {
            "base": self.checkpoint,
            "base_digest": self._base_digest(),
            "rank": self.rank,
            "alpha": self.alpha,
            "layers": len(learned) // 2,
            "parameters": sum(parameter.numel() for _, parameter in learned),
            "adapter": hashlib.sha256((adapter / "adapter_model.safetensors").read_bytes()).hexdigest(),
        }
        (adapter / RECORD).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        return facts

    def _load(self) -> None:
        if self.model is not None:
            return
        super()._load()
        if self.adapter is None:
            self.model = self._adapted()
        else:
            self._refuse_another_base()
        model: Any = self.model
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(MARK in name)
        if self.gradient_checkpointing:
            with quiet():  # newer versions have another name for it
                model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            model.enable_input_require_grads()

    def _adapted(self) -> Any:
        peft = import_optional("peft")
        names = _linear_layers(self.model) if self.targets is None else self.targets
        settings = peft.LoraConfig(
            r=self.rank, lora_alpha=self.alpha, lora_dropout=self.dropout, target_modules=names, task_type="CAUSAL_LM"
        )
        with UserError.about("model.targets", f"{names[:3]} cannot be adapted", ValueError), quiet():
            return peft.get_peft_model(self.model, settings)

    def _ending(self, rendered: str, taught: Taught) -> tuple[str, tuple[int, ...]]:
        """Prompt and answer as text, and the answer's tokens."""
        answered = Message("assistant", (taught.answer,))
        full_text = self.reader.template.render(
            replace(taught.prompt, messages=(*taught.prompt.messages, answered)),
        )
        tokenizer = self.reader.tokenizer
        ends = torch.as_tensor(self.model.generation_config.eos_token_id).reshape(-1).tolist()
        marks = tokenizer.convert_ids_to_tokens(ends)
        after = full_text[len(rendered) :] if full_text.startswith(rendered) else ""
        ending = min((after.find(mark) + len(mark) for mark in marks if mark in after), default=0)
        text = after[:ending]
        if taught.answer not in text:  # a template that adds to past turns, such as an empty thought
            text = taught.answer + marks[0]
            text = f" {text}" if rendered.endswith(":") else text
        return rendered + text, split_answer(rendered, rendered + text, tokenizer)[0]

    def _base_digest(self) -> str:
        """Hash of the base's files, or the hub's commit."""
        if self.source is None or self.source.commit:
            return self.source.commit if self.source else ""
        files = (
            path for path in Path(self.source.location).iterdir() if path.name == "config.json" or _is_weights(path)
        )
        digests = [[path.name, file_digest(path)] for path in sorted(files)]
        return hashlib.sha256(json.dumps(digests).encode()).hexdigest()

    def _refuse_another_base(self) -> None:
        record = Path(str(self.adapter), RECORD)
        if not record.is_file():
            return
        noted = json.loads(record.read_text(encoding="utf-8"))
        if noted["base_digest"] != self._base_digest():
            raise UserError(
                f"{self.fitted}: was fitted on {noted['base']} ({noted['base_digest'][:12]}), not on {self.checkpoint} "
                f"({self._base_digest()[:12]}); set model.base and model.revision to it"
            )


def answers_to(prompt: Prompt, key: Key) -> list[str]:
    """Right answers in the words to write, letters of choices; CaseError without any."""
    value = key.value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return [f"{value:g}"]
    several = not isinstance(value, str) and value is not None
    if prompt.options and several and all(letter in prompt.options for letter in value):
        return [", ".join(sorted(value))]
    written = (value,) if isinstance(value, str) else value if isinstance(value, list | tuple) else ()
    texts = [text for text in written if isinstance(text, str) and text.strip()]
    if not texts:
        raise CaseError(
            f"case {prompt.case_id!r}: has no answer in words to learn from, but {value!r:.60}; leave it out of the "
            "split to fit on"
        )
    return texts


def _linear_layers(model: Any) -> list[str]:
    """Names of all linear layers of the language model but its output layer."""
    language = model.get_decoder()
    inside = {id(module) for module in language.modules()} - {id(model.get_output_embeddings())}
    names = [name for name, module in model.named_modules() if isinstance(module, nn.Linear) and id(module) in inside]
    if not names:
        raise UserError("model.targets: no linear layer of a language model was recognised; name some, such as q_proj")
    return names


def _forgive_base(module: nn.Module, keys: Any) -> None:
    """Lets a checkpoint lack what is not the adapter's."""
    keys.missing_keys[:] = [name for name in keys.missing_keys if MARK in name]


def _is_weights(path: Path) -> bool:
    return path.suffix in (".safetensors", ".bin")
