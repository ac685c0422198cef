"""Two classifiers of one architecture merged at test time: their weights, by a fixed share or case by case (T^3)."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import nn

from medimg_eval.case import Prompts
from medimg_eval.errors import UsageError, UserError
from medimg_eval.models.base import Example, refuse_names
from medimg_eval.models.classification.contract import Classifier

log = logging.getLogger(__name__)

RULES = ("fixed", "t3", "t3_batch", "ensemble")

PARTS = ("clip", "network")
"""Where models keep the module whose weights are merged."""


class MergedClassifier(nn.Module, Classifier):
    """Merge of a general and a fine-tuned classifier at test time.

    Weights are share x general + (1 - share) x tuned. `fixed` takes `share` for every case; `t3` takes for each case
    low + (high - low) sigmoid(gamma JS), JS being the Jensen-Shannon divergence of what both say, in nats: the more
    they disagree, the more the general one counts. `t3_batch` takes the mean share of the cases that are asked
    together, so that their company changes an answer. `ensemble` merges no weights but the probabilities, by `share`.

    JS is at most ln 2 = 0.69, so that with gamma 0.5 the share moves from half-way between `low` and `high` by less
    than 0.09 of their distance: compare with `fixed`. Each case takes one pass of each model and, of merged weights,
    one more for each distinct share.

    Source: T^3, test-time model merging for medical vision-language models (the formula of its model card; its code was
    not to be read). Probabilities of classes that do not exclude each other have the mean JS of present and absent.

    Args:
        general: a model such as `open_clip`.
        tuned: of the same architecture.
        rule: `fixed`, `t3`, `t3_batch` or `ensemble`.
        share: of the general model, 0 to 1.
        low: least share of T^3.
        high: largest share of T^3.
        gamma: how steeply disagreement raises it.

    Attributes:
        shares: case -> the share that was used for it last.

    Raises:
        UsageError: there is no such rule, or numbers are invalid.
    """

    preferred_batch: ClassVar[int] = 32

    def __init__(
        self,
        general: Any,
        tuned: Any,
        rule: str = "t3",
        share: float = 0.5,
        low: float = 0.0,
        high: float = 1.0,
        gamma: float = 0.5,
    ) -> None:
        super().__init__()
        UsageError.refuse_invalid("model.rule", RULES, rule)
        if not (0 <= share <= 1 and 0 <= low <= high <= 1 and gamma >= 0):
            raise UsageError(f"expected shares from 0 to 1 with low <= high, got share={share}, low={low}, high={high}")
        refuse_names({"general": general, "tuned": tuned})
        self.general, self.tuned, self.rule = general, tuned, rule
        self.share, self.low, self.high, self.gamma = share, low, high, gamma
        self.shares: dict[str, float] = {}
        self._mixed: tuple[Any, float] | None = None

    def check_ready(self) -> None:
        """Raises UserError where one of both lacks its weights."""
        self.general.check_ready()
        self.tuned.check_ready()

    def prepare(self, labels: Mapping[int, str], example: Example) -> None:
        """Prepares both; raises UserError where their weights cannot be merged."""
        for model in (self.general, self.tuned):
            model.prepare(labels, example)
        if self.rule == "ensemble":
            return
        general_state, tuned_state = (_find_module(model).state_dict() for model in (self.general, self.tuned))
        wrong = sorted(
            {
                name
                for name in general_state.keys() | tuned_state.keys()
                if _parameter_shape(general_state, name) != _parameter_shape(tuned_state, name)
            }
        )
        if wrong:
            raise UserError(
                f"model.general and model.tuned differ in {len(wrong)} weights, the first being {wrong[0]}; merge "
                "models of one architecture, or take model.rule=ensemble"
            )

    def classify(self, prompts: Prompts) -> Sequence[Mapping[str, float]]:
        """Returns class -> probability for each prompt."""
        if self.rule == "fixed":
            shares = [self.share] * len(prompts)
        else:
            general_answers, tuned_answers = self.general.classify(prompts), self.tuned.classify(prompts)
            if self.rule == "ensemble":
                return [_average_classes(a, b, self.share) for a, b in zip(general_answers, tuned_answers, strict=True)]
            shares = [
                self.low
                + (self.high - self.low) / (1 + math.exp(-self.gamma * _class_divergence(a, b, bool(p.options))))
                for p, a, b in zip(prompts, general_answers, tuned_answers, strict=True)
            ]
            if self.rule == "t3_batch":
                shares = [math.fsum(shares) / len(shares)] * len(shares)
        self.shares |= {prompt.case_id: share for prompt, share in zip(prompts, shares, strict=True)}
        log.debug("shares of the general model from %.4f to %.4f", min(shares, default=0), max(shares, default=0))
        answers: list[Mapping[str, float]] = [{}] * len(prompts)
        for share in dict.fromkeys(shares):
            indices = [index for index, other_share in enumerate(shares) if other_share == share]
            answers_ = self._with_share(share).classify([prompts[index] for index in indices])
            for index, answer in zip(indices, answers_, strict=True):
                answers[index] = answer
        return answers

    @torch.no_grad()
    def _with_share(self, share: float) -> Any:
        """Copy of the general model, refilled with weights merged by share."""
        if self._mixed is not None and self._mixed[1] == share:
            return self._mixed[0]
        general_module, tuned_module = _find_module(self.general), _find_module(self.tuned)
        mixed = copy.deepcopy(self.general) if self._mixed is None else self._mixed[0]
        state, theirs = general_module.state_dict(), tuned_module.state_dict()
        _find_module(mixed).load_state_dict(
            {
                # Counters and positions are no weights, and those of the general model.
                name: share * value + (1 - share) * theirs[name] if value.is_floating_point() else value
                for name, value in state.items()
            }
        )
        getattr(mixed, "forget", lambda: None)()
        self._mixed = (mixed, share)
        return mixed


def _model_key(model: Any) -> str:
    name = next((name for name in PARTS if isinstance(getattr(model, name, None), nn.Module)), None)
    if name is None:
        raise UserError(f"{type(model).__name__} has no weights that could be merged; take model.rule=ensemble")
    return name


def _find_module(model: Any) -> nn.Module:
    module: nn.Module = getattr(model, _model_key(model))
    return module


def _parameter_shape(state: Mapping[str, torch.Tensor], name: str) -> Any:
    return state[name].shape if name in state else None


def _average_classes(one: Mapping[str, float], other: Mapping[str, float], share: float) -> dict[str, float]:
    return {name: share * value + (1 - share) * other[name] for name, value in one.items()}


def _class_divergence(one: Mapping[str, float], other: Mapping[str, float], exclusive: bool) -> float:
    """Jensen-Shannon divergence in nats, 0 to ln 2."""
    pairs = [(value, other[name]) for name, value in one.items()]
    if exclusive:
        return _jensen_shannon(pairs)
    return math.fsum(_jensen_shannon([(p, q), (1 - p, 1 - q)]) for p, q in pairs) / len(pairs)


def _jensen_shannon(pairs: Sequence[tuple[float, float]]) -> float:
    total = 0.0
    for p, q in pairs:
        middle = (p + q) / 2
        total += sum(part * math.log(part / middle) / 2 for part in (p, q) if part > 0)
    return max(0.0, total)
