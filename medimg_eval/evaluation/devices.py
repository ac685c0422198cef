"""Lends a model to a device and a precision, and gives it as much at once as fits into memory there."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from medimg_eval.case import Failure, Prompt
from medimg_eval.errors import CaseError, UserError, error_in_words
from medimg_eval.evaluation.observe import out_of_memory
from medimg_eval.evidence import one_each
from medimg_eval.lazy_torch import is_network

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)


@contextmanager
def in_use(model: Any, device: torch.device, precision: str) -> Iterator[None]:
    """Evaluation mode without gradients, on a device and precision."""
    import torch

    kinds = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
    with torch.inference_mode(), torch.autocast(device.type, kinds.get(precision), enabled=precision in kinds):
        if not is_network(model):
            yield
            return
        training = model.training
        model.to(device).eval()
        try:
            yield
        finally:
            model.train(training)


def device_of(accelerator: str) -> torch.device:
    """The device that Lightning takes for the name of an accelerator."""
    import torch

    if accelerator in ("gpu", "cuda") or (accelerator == "auto" and torch.cuda.is_available()):
        return torch.device("cuda")
    if accelerator == "mps" or (accelerator == "auto" and torch.backends.mps.is_available()):
        return torch.device("mps")
    return torch.device("cpu")


class Batches:
    """Asks prompts in batches that fit memory; after failures singly."""

    def __init__(self, ask: Callable[[Sequence[Prompt]], Sequence[Any]]) -> None:
        self._ask = ask
        self._most: int | None = None

    def answers(self, prompts: Sequence[Prompt]) -> Sequence[Any]:
        """One answer or Failure per prompt.

        When a batch fails, its cases are asked one by one. When it does not fit into memory, halves of it are tried,
        and no larger batch is from then on.
        """
        if not prompts:
            return []
        most = self._most  # the first part may lower it
        if most is not None and len(prompts) > most:
            return [*self.answers(prompts[:most]), *self.answers(prompts[most:])]
        try:
            return one_each(self._ask(prompts), prompts)
        except Exception as error:
            if isinstance(error, UserError) and not isinstance(error, CaseError):
                raise  # such as a key that is refused: no other prompt would fare better
            if len(prompts) > 1 and not out_of_memory(error):
                return [answer for prompt in prompts for answer in self.answers([prompt])]
            if len(prompts) == 1:
                log.debug("case %s", prompts[0].case_id, exc_info=True)
                return [Failure(prompts[0].case_id, "answer", error_in_words(error))]
        # Only here is the error gone, and with it what it holds of the device's memory.
        self._most = len(prompts) // 2
        log.warning("out of memory with %d prompts at once; goes on with %d", len(prompts), self._most)
        if "torch" in sys.modules:
            import torch

            if torch.cuda.is_available():
                torch.cuda.empty_cache()
        return self.answers(prompts)
