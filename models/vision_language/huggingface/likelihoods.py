"""How likely a model finds each of several options, after one prompt."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from medimg_eval.case import Prompt

LogProbabilities = Callable[[Sequence[str], Sequence[int], int], Tensor]
"""Reads texts, each with the images of the prompt of that number, and returns the log-probabilities of the next token
after each of the last so many, float32, (text, kept, vocabulary)."""


@dataclass(frozen=True)
class Ending:
    """A prompt that ends in an option.

    Attributes:
        text: all of it.
        tokens: those of the option, at its end.
        apart: whether the rest has the very tokens of the prompt alone, so that one reading serves all options.
    """

    text: str
    tokens: tuple[int, ...]
    apart: bool


def weigh(
    texts: Sequence[str], options: Sequence[Mapping[str, str]], tokenizer: Any, read: LogProbabilities
) -> list[dict[str, float]]:
    """Returns the mean log-probability of each option's tokens, for each prompt.

    Args:
        texts: rendered prompts.
        options: for each, letter -> what is weighed.
        tokenizer: of the model.
        read: asks the model. Options that are one token are all read off the end of the prompt; longer ones are
            read one after the other, so that never more sequences than prompts are in memory.
    """
    endings = [
        {letter: _ending(text, option, tokenizer) for letter, option in asked.items()}
        for text, asked in zip(texts, options, strict=True)
    ]
    if all(len(one.tokens) == 1 and one.apart for asked in endings for one in asked.values()):
        after = read(texts, range(len(texts)), 1)[:, -1]
        return [
            {letter: float(row[one.tokens[0]]) for letter, one in asked.items()}
            for asked, row in zip(endings, after, strict=True)
        ]
    weights: list[dict[str, float]] = [{} for _ in texts]
    for place in range(max(len(asked) for asked in endings)):
        rows = [row for row, asked in enumerate(endings) if place < len(asked)]
        turn = [list(endings[row].items())[place] for row in rows]
        read_on = read([one.text for _, one in turn], rows, 1 + max(len(one.tokens) for _, one in turn))
        for row, (letter, one), scores in zip(rows, turn, read_on, strict=True):
            steps = scores[-1 - len(one.tokens) : -1]
            weights[row][letter] = float(steps[range(len(one.tokens)), list(one.tokens)].mean())
    return weights


def candidates(prompt: Prompt, likelihood: str) -> Mapping[str, str]:
    """What is weighed for each option letter: the letter itself, or the option's text."""
    return {letter: letter if likelihood == "letter" else text for letter, text in prompt.options.items()}


def log_probabilities(model: Any, inputs: Mapping[str, Any], keep: int) -> Tensor:
    """Log-probabilities of the next token after each of the last `keep`, float32, (row, keep, vocabulary)."""
    # Of all tokens they would fill the memory: a thousand tokens of eight prompts are gigabytes.
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    kept = {"logits_to_keep": keep} if "logits_to_keep" in inspect.signature(inner.forward).parameters else {}
    logits: Tensor = model(**inputs, use_cache=False, **kept).logits[:, -keep:]
    return logits.float().log_softmax(-1)


def _ending(text: str, option: str, tokenizer: Any) -> Ending:
    """The option as the answer: a space parts it from a colon, as in `ASSISTANT:`."""
    whole = f"{text} {option}" if text.endswith(":") else text + option
    before: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    after: list[int] = tokenizer(whole, add_special_tokens=False)["input_ids"]
    same = next((at for at, (one, other) in enumerate(zip(before, after, strict=False)) if one != other), len(before))
    return Ending(whole, tuple(after[same:]), same == len(before))
