"""How answers are taken from a model: when a row of a batch ends, how its tokens are drawn, how likely options are.

Each row is by itself, whatever else is in the batch.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from medimg_eval.case import Prompts
from medimg_eval.metrics.answers import split_thought
from medimg_eval.models.vision_language.huggingface.chat import Reader
from medimg_eval.question import Decoding, Turn, Usage

KEPT_SETTINGS = ("bos_token_id", "eos_token_id", "suppress_tokens", "bad_words_ids")
"""What of a checkpoint's generation settings is no choice of how to decode."""

LogProbabilities = Callable[[Sequence[str], Sequence[int], int], Tensor]
"""Reads texts, each with the images of the prompt of that number, and returns the log-probabilities of the next token
after each of the last so many, float32, (text, kept, vocabulary)."""


def make_greedy_config(suggested: Any, tokenizer: Any) -> Any:
    """Generation settings for greedy decoding, without a checkpoint's temperature, penalties, lengths."""
    from transformers import GenerationConfig

    settings = {key: getattr(suggested, key, None) for key in KEPT_SETTINGS}
    if settings["eos_token_id"] is None:
        settings["eos_token_id"] = tokenizer.eos_token_id
    return GenerationConfig(pad_token_id=tokenizer.pad_token_id, do_sample=False, **settings)


def build_generation_options(decoding: Decoding, prompts: Prompts, mask: Tensor, reader: Reader) -> dict[str, Any]:
    """Arguments of `generate` for a batch beside its inputs; `mask` is (row, token)."""
    from transformers import LogitsProcessorList, StoppingCriteriaList

    lengths, options = mask.sum(1), dict[str, Any](max_new_tokens=decoding.max_new_tokens)
    full = reader.context_length is not None and int(lengths.max()) + decoding.max_new_tokens > reader.context_length
    if decoding.stop or full:
        options["stopping_criteria"] = StoppingCriteriaList(
            [RowStoppingCriteria(reader, decoding.stop, lengths, mask.shape[1])]
        )
    if decoding.temperature > 0:
        options["logits_processor"] = LogitsProcessorList([GumbelSampler(decoding, prompts)])
    return options


class RowStoppingCriteria:
    """Stops rows at stop texts or a full context.

    `lengths`, (row,), are the prompts' in tokens, `width` that of the padded prompts.
    """

    def __init__(self, reader: Reader, stop: Sequence[str], lengths: Tensor, width: int) -> None:
        self.reader, self.stop, self.lengths, self.width = reader, stop, lengths, width
        self.tail = 8 + max((len(text.encode()) for text in stop), default=0)  # a token is at least a byte

    def __call__(self, ids: Tensor, scores: Any, **more: Any) -> Tensor:
        """Which rows end here: bool, (row,)."""
        written = ids.shape[1] - self.width
        ended = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
        if self.reader.context_length is not None:
            ended |= self.lengths + written >= self.reader.context_length
        if self.stop:
            tails = self.reader.tokenizer.batch_decode(ids[:, self.width :][:, -self.tail :], skip_special_tokens=True)
            is_stopped = [any(text in tail for text in self.stop) for tail in tails]
            ended |= torch.tensor(is_stopped, device=ids.device)
        return ended


class GumbelSampler:
    """Gumbel-max sampling with one generator per row.

    A row's draws depend on the seed and on its own prompt alone, so that neither the order of the cases nor the size of
    the batch changes an answer.
    """

    def __init__(self, decoding: Decoding, prompts: Prompts) -> None:
        self.temperature, self.top_p = decoding.temperature, decoding.top_p
        seeds = [f"{decoding.seed}\0{prompt.case_id}\0{prompt.text}" for prompt in prompts]
        hashes = [hashlib.sha256(text.encode()).digest() for text in seeds]
        self.generators = [torch.Generator().manual_seed(int.from_bytes(hash_[:8], "big") >> 1) for hash_ in hashes]

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Scores of the next token, (row, vocabulary), whose maxima are the draws."""
        likely = (scores.float() / self.temperature).log_softmax(-1)
        if self.top_p < 1:
            ordered, order = likely.sort(dim=-1, descending=True)
            before = ordered.exp().cumsum(-1) - ordered.exp()
            beyond = (before >= self.top_p).scatter(-1, order, before >= self.top_p)
            likely = likely.masked_fill(beyond, -torch.inf)
        noise = torch.stack(
            [torch.empty(likely.shape[1]).exponential_(generator=generator) for generator in self.generators]
        )
        return likely - noise.log().to(likely.device)


def count_completion_tokens(ids: Tensor, settings: Any) -> list[int]:
    """Answer tokens per row, with end and without padding."""
    ends = torch.as_tensor(settings.eos_token_id, device=ids.device).reshape(-1)
    stopped = torch.isin(ids, ends)
    before = stopped.cumsum(1) - stopped.long() == 0
    counts: list[int] = (before & (stopped | (ids != settings.pad_token_id))).sum(1).tolist()
    return counts


def decode_replies(
    ids: Tensor,
    rendered: Sequence[str],
    lengths: Sequence[int],
    decoding: Decoding,
    tokenizer: Any,
    ends: Sequence[int],
) -> list[Turn]:
    """Texts (row, token) with end reason and tokens of answer and thought.

    Marks of thinking stay, also those that are special tokens of the checkpoint; so does the opening mark that a
    template has put before the answer, where nothing closes it.
    """
    special = [token for token in tokenizer.all_special_tokens if isinstance(token, str)]
    marks = [token for token in special if split_thought(f"a{token}b").rule != "T6"]
    hidden_tokens = [token for token in special if token not in marks]
    plain = tokenizer.batch_decode(ids, skip_special_tokens=True)
    raw = tokenizer.batch_decode(ids, skip_special_tokens=False) if marks else plain
    turns = []
    for row, length in enumerate(lengths):
        text = plain[row]
        if any(mark in raw[row] for mark in marks):
            text = raw[row]
            for token in hidden_tokens:
                text = text.replace(token, "")
        opening = rendered[row][-40:].strip()
        opened = split_thought(opening)
        if opened.rule == "T5" and not opened.thought and split_thought(text).rule == "T6":
            text = opening[len(opened.answer) :] + text
        cut = truncate_at_stop(text, decoding.stop)
        full = length >= decoding.max_new_tokens and len(cut) >= len(text.strip())
        thought = split_thought(cut).thought
        tokens = len(tokenizer(thought, add_special_tokens=False)["input_ids"]) if thought else 0
        ended = full and int(ids[row, -1]) not in ends
        turns.append(Turn(cut, finish="length" if ended else "stop", usage=Usage(output=length, thought=tokens)))
    return turns


def truncate_at_stop(text: str, stop: Sequence[str]) -> str:
    """Text before the first stop text, stripped."""
    positions = [position for position in map(text.find, stop) if position >= 0]
    return text[: min(positions, default=len(text))].strip()


@dataclass(frozen=True)
class OptionEnding:
    """A prompt that ends in an option.

    Attributes:
        text: all of it.
        tokens: those of the option, at its end.
        keeps_prompt_tokens: whether the rest has the very tokens of the prompt alone, so that one reading serves all
            options.
    """

    text: str
    tokens: tuple[int, ...]
    keeps_prompt_tokens: bool


def score_options(
    texts: Sequence[str], options: Sequence[Mapping[str, str]], tokenizer: Any, read: LogProbabilities
) -> list[dict[str, float]]:
    """Returns the mean log-probability of each option's tokens, for each rendered prompt.

    Options that are one token are all read off the end of the prompt; longer ones are read one after the other, so that
    never more sequences than prompts are in memory.
    """
    endings = [
        {letter: _encode_option(text, option, tokenizer) for letter, option in asked_options.items()}
        for text, asked_options in zip(texts, options, strict=True)
    ]
    if all(
        len(ending.tokens) == 1 and ending.keeps_prompt_tokens
        for row_endings in endings
        for ending in row_endings.values()
    ):
        after = read(texts, range(len(texts)), 1)[:, -1]
        return [
            {letter: float(row[ending.tokens[0]]) for letter, ending in row_endings.items()}
            for row_endings, row in zip(endings, after, strict=True)
        ]
    weights: list[dict[str, float]] = [{} for _ in texts]
    for step in range(max(len(row_endings) for row_endings in endings)):
        rows = [row for row, row_endings in enumerate(endings) if step < len(row_endings)]
        turn = [list(endings[row].items())[step] for row in rows]
        read_on = read([ending.text for _, ending in turn], rows, 1 + max(len(ending.tokens) for _, ending in turn))
        for row, (letter, ending), scores in zip(rows, turn, read_on, strict=True):
            steps = scores[-1 - len(ending.tokens) : -1]
            weights[row][letter] = float(steps[range(len(ending.tokens)), list(ending.tokens)].mean())
    return weights


def compute_log_probabilities(model: Any, inputs: Mapping[str, Any], keep: int) -> Tensor:
    """Next-token log-probabilities of the last `keep`, float32, (row, keep, vocabulary)."""
    return compute_logits(model, inputs, keep).log_softmax(-1)


def compute_logits(model: Any, inputs: Mapping[str, Any], keep: int) -> Tensor:
    """Next-token logits of the last `keep`, float32, (row, keep, vocabulary)."""
    # Of all tokens they would fill the memory: a thousand tokens of eight prompts are gigabytes.
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    arguments = {"logits_to_keep": keep} if "logits_to_keep" in inspect.signature(inner.forward).parameters else {}
    logits: Tensor = model(**inputs, use_cache=False, **arguments).logits[:, -keep:]
    return logits.float()


def _encode_option(text: str, option: str, tokenizer: Any) -> OptionEnding:
    """Option as answer tokens, with a space after a colon."""
    full_text = f"{text} {option}" if text.endswith(":") else text + option
    return OptionEnding(full_text, *split_answer(text, full_text, tokenizer))


def split_answer(rendered: str, whole: str, tokenizer: Any) -> tuple[tuple[int, ...], bool]:
    """Tokens after a prompt; whether the prompt's tokens stay equal."""
    before: list[int] = tokenizer(rendered, add_special_tokens=False)["input_ids"]
    after: list[int] = tokenizer(whole, add_special_tokens=False)["input_ids"]
    shared = next(
        (
            at
            for at, (before_token, after_token) in enumerate(zip(before, after, strict=False))
            if before_token != after_token
        ),
        len(before),
    )
    return tuple(after[shared:]), shared == len(before)
