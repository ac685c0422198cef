"""The library's own `generate`, as a model of lmms-eval."""

from typing import Any

from clock import Clock
from lmms_eval.api.model import lmms
from plain import Plain


class Plainly(lmms):
    """Answers in batches, as `plain.py` does one by one; lmms-eval hands over all questions at once.

    Args:
        checkpoint: folder.
        batch_size: questions at once.
    """

    is_simple = False

    def __init__(self, checkpoint: str, batch_size: int | str = 1, **_: Any) -> None:
        super().__init__()
        self.plain, self.clock, self.batch = Plain(checkpoint), Clock(), int(batch_size)

    def generate_until(self, requests: list[Any]) -> list[str]:
        answers: list[str] = []
        for start in range(0, len(requests), self.batch):
            some = [request.args for request in requests[start : start + self.batch]]
            documents = [self.task_dict[task][split][place] for _, _, _, place, task, split in some]
            turns = [one[1](document) for one, document in zip(some, documents, strict=True)]
            images = [turn[0]["content"][0]["url"] for turn in turns]
            texts = [turn[0]["content"][1]["text"] for turn in turns]
            ids = [document["id"] for document in documents]
            answers += self.clock.call(ids, lambda images=images, texts=texts: self.plain.answer(images, texts))
        return answers

    def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
        raise NotImplementedError

    def generate_until_multi_round(self, requests: list[Any]) -> list[str]:
        raise NotImplementedError
