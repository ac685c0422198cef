"""Words that reports are written in: learned from training reports, or those of a pretrained decoder."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from medimg_eval.errors import UserError

PAD, BEGIN, END, UNKNOWN = range(4)
"""Numbers of what stands for no word."""

CJK = r"\u3040-\u30ff\u3400-\u9fff"

TOKEN = re.compile(rf" ?(?:\d+(?:[.,]\d+)*|[{CJK}]|[^\W\d{CJK}][^\W{CJK}]*(?:[-'/][^\W{CJK}]+)*|[^\w\s]|[^\s])")
"""A number, a word with its hyphens, a character of Chinese or Japanese, or a mark; with the blank before it."""


class Words:
    """Words of training reports.

    A word keeps the blank before it, so that texts come back as they were, but for other white space.

    Args:
        known: the words, the first of which has the number 4.
    """

    pad, begin, end = PAD, BEGIN, END
    unwritten = (PAD, BEGIN, UNKNOWN)

    def __init__(self, known: Sequence[str]) -> None:
        self.known = tuple(known)
        self._numbers = {word: number for number, word in enumerate(self.known, UNKNOWN + 1)}

    def __len__(self) -> int:
        """How many numbers there are, those that stand for no word among them."""
        return len(self.known) + UNKNOWN + 1

    @classmethod
    def learned(cls, texts: Iterable[str], threshold: int) -> Words:
        """The words that occur at least `threshold` times, the most frequent first.

        Raises:
            UserError: there are none.
        """
        counts = Counter(word for text in texts for word in split(text))
        vocabulary = sorted(
            (word for word, count in counts.items() if count >= threshold), key=lambda w: (-counts[w], w)
        )
        if not vocabulary:
            raise UserError(
                f"no word occurs {threshold} times in the reports to fit on; lower model.threshold, or look at the data"
            )
        return cls(vocabulary)

    def encode(self, text: str, length: int) -> list[int]:
        """Token numbers from begin to end; `length` of them at most."""
        numbers = (self._numbers.get(word, UNKNOWN) for word in split(text))
        return [BEGIN, *numbers, END][:length]

    def decode(self, numbers: Iterable[int]) -> str:
        """The text of numbers, up to their end."""
        words = []
        for number in numbers:
            if number == END:
                break
            if number > UNKNOWN:
                words.append(self.known[number - UNKNOWN - 1])
        return "".join(words).strip()


class Pieces:
    """Tokens that a pretrained decoder writes in.

    Args:
        tokenizer: of transformers.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        begin = _first_number(tokenizer.bos_token_id, tokenizer.cls_token_id, tokenizer.eos_token_id)
        end = _first_number(tokenizer.eos_token_id, tokenizer.sep_token_id)
        if begin is None or end is None:
            raise UserError("model.decoder: its tokenizer has no tokens for the begin and the end of a text")
        self.begin, self.end = int(begin), int(end)
        self.pad = self.end if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)
        self.unwritten = tuple({self.begin, self.pad} - {self.end})

    def encode(self, text: str, length: int) -> list[int]:
        """Token numbers from begin to end; `length` of them at most."""
        numbers = self._tokenizer(" ".join(text.split()), add_special_tokens=False)["input_ids"]
        return [self.begin, *numbers, self.end][:length]

    def decode(self, numbers: Iterable[int]) -> str:
        """The text of numbers, up to their end."""
        written = list(numbers)
        if self.end in written:
            written = written[: written.index(self.end)]
        return str(self._tokenizer.decode(written, skip_special_tokens=True)).strip()


class Phrases:
    """Phrases of one to three words that distinguish reports, spelled by `phrases_of`."""

    def __init__(self, known: Sequence[str]) -> None:
        self.known = tuple(known)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.known)

    @classmethod
    def learned(cls, texts: Sequence[str], number: int) -> Phrases:
        """Most frequent phrases found in 1 % to 50 % of reports."""
        counts = Counter(phrase for text in texts for phrase in phrases_of(text))
        telling = [phrase for phrase, count in counts.items() if max(2, len(texts) / 100) <= count <= len(texts) / 2]
        return cls(sorted(telling, key=lambda one: (-counts[one], one))[:number])

    def told(self, text: str) -> Tensor:
        """Which phrases a text has, float32, (phrase,)."""
        there = phrases_of(text)
        return torch.tensor([float(phrase in there) for phrase in self.known])


def phrases_of(text: str) -> set[str]:
    """Lower-case phrases of one to three words within sentences."""
    words = [word.strip().casefold() for word in split(text)]
    phrases = set()
    for start in range(len(words)):
        for end in range(start + 1, min(start + 4, len(words) + 1)):
            if not words[end - 1][0].isalnum():
                break
            phrases.add(" ".join(words[start:end]))
    return phrases


def packed(words: Sequence[str], phrases: Sequence[str]) -> Tensor:
    """Words and phrases as a tensor, uint8, which checkpoints keep beside the weights."""
    content = json.dumps({"words": list(words), "phrases": list(phrases)})
    return torch.frombuffer(bytearray(content.encode()), dtype=torch.uint8)


def unpacked(kept: Tensor) -> tuple[list[str], list[str]]:
    """Words and phrases of such a tensor."""
    content = json.loads(bytes(kept.tolist()))
    return content["words"], content["phrases"]


def split(text: str) -> list[str]:
    """Words of a text, each with its preceding blank."""
    return TOKEN.findall(" ".join(text.split()))


def _first_number(*numbers: int | None) -> int | None:
    return next((number for number in numbers if number is not None), None)
