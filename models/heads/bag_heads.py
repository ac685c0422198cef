"""Heads on bags: how their networks learn, and what each is called with."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from medimg_eval.case import Array
from medimg_eval.errors import UsageError, UserError
from medimg_eval.models.classification import class_loss
from medimg_eval.models.heads.bag_networks import (
    AttentionNetwork,
    DualStreamNetwork,
    PoolingNetwork,
    TransformerNetwork,
)
from medimg_eval.models.heads.bags import Batch, PackedBags, sampled
from medimg_eval.models.heads.base import Features, Head, Targets, refuse_absent
from medimg_eval.system import threads

BINS = 4
"""Intervals of time that survival is learned in: quarters of the times of events."""

TOGETHER = 8192
"""Tiles of bags that are computed at once when asked about: more leave the processor's caches."""

WORK = 300_000_000
"""Products of a pass that are worth a thread, some 10 ms of one core: with less, threads mostly wait for each other."""


@dataclass(kw_only=True)
class BagHead(Head):
    """Network on bags, trained by AdamW, cosine schedule, last epoch.

    While it learns, at most `tiles` tiles of a bag are drawn, anew in each epoch; asked, it is always shown all. The
    loss is the cross entropy of exclusive classes, with each class counting alike where `balanced`; the mean binary
    cross entropy of others; the mean squared error of numbers, in standard deviations; and of survival the negative
    log-likelihood of discrete times, in quarters of the times of events.

    Args:
        epochs: passes over the bags.
        rate: the learning rate, which a cosine takes to zero.
        decay: AdamW's weight decay.
        batch: bags in a step.
        tiles: of a bag in a step, at most; None for all.
        dropout: share of features left out while learning.
        balanced: whether each class counts alike.
        members: networks that learn from seeds `seed`, `seed` + 1, ...; their probabilities are averaged.
        seed: of the first.
        precision: `float32`, or `bfloat16` for products in it where the processor has them.
        device: `auto` for a GPU where there is one, or torch's name of a device.

    Raises:
        UsageError: invalid settings.
    """

    takes: ClassVar[Literal["vectors", "bags"]] = "bags"
    uses_torch: ClassVar[bool] = True
    kinds = frozenset({"exclusive", "classes", "numbers", "survival"})

    epochs: int = 20
    rate: float = 1e-4
    decay: float = 1e-5
    batch: int = 1
    tiles: int | None = 2048
    dropout: float = 0.25
    balanced: bool = True
    members: int = 1
    seed: int = 0
    precision: Literal["float32", "bfloat16"] = "float32"
    device: str = "auto"

    def __post_init__(self) -> None:
        """Refuses invalid settings."""
        UsageError.refuse_invalid("head.precision", ("float32", "bfloat16"), self.precision)
        wrong = {name: getattr(self, name) for name in ("epochs", "batch", "members") if getattr(self, name) < 1}
        if wrong or (self.tiles is not None and self.tiles < 1):
            raise UsageError(f"expected epochs, batch, members and tiles of the head from 1, got {self.settings()}")

    @abstractmethod
    def network(self, width: int, outputs: int) -> nn.Module:
        """Makes the network for tiles of so many features, and so many outputs."""

    def fit(self, features: Features, targets: Targets, groups: Sequence[str] | None = None) -> Self:
        """Trains each member."""
        bags = PackedBags.of(features)
        refuse_absent(targets)
        if len(bags) != len(targets):
            raise UserError(f"there are {len(bags)} bags for {len(targets)} cases")
        teacher = Teacher.of(targets, balanced=self.balanced)
        self.facts = {
            "kind": targets.kind,
            "names": list(targets.names),
            "width": bags.width,
            "outputs": teacher.truth.shape[1] if targets.kind != "survival" else len(teacher.edges) - 1,
            "edges": [float(edge) for edge in teacher.edges],
        }
        self.arrays = {"level": teacher.level, "spread": teacher.spread}
        self.facts["losses"] = []
        for member in range(self.members):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.seed + member)
                network = self.network(self.facts["width"], self.facts["outputs"])
                with limited_threads(network, self._step_tiles(bags)):
                    self.facts["losses"].append(self._train(network, bags, teacher, self.seed + member))
            state = network.cpu().state_dict()
            self.arrays |= {f"{member}.{name}": tensor.numpy() for name, tensor in state.items()}
        return self

    def _step_tiles(self, bags: PackedBags) -> int:
        """Returns how many tiles a step of training takes, on average."""
        most = int(bags.lengths.max()) if self.tiles is None else self.tiles
        return int(np.minimum(bags.lengths, most).mean() * self.batch)

    def _train(self, network: nn.Module, bags: PackedBags, teacher: Teacher, seed: int) -> float:
        device = self._device()
        network.to(device).train()
        rng = np.random.default_rng(seed)
        optimiser = torch.optim.AdamW(network.parameters(), lr=self.rate, weight_decay=self.decay)
        steps = self.epochs * math.ceil(len(bags) / self.batch)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
        total = math.nan
        for _ in range(self.epochs):
            total, order = 0.0, rng.permutation(len(bags))
            for begin in range(0, len(order), self.batch):
                indices = order[begin : begin + self.batch]
                batch = Batch([sampled(bags[index], self.tiles, rng) for index in indices], device)
                truth = teacher.truth[indices]
                with torch.autocast(device.type, torch.bfloat16, enabled=self.precision == "bfloat16"):
                    answer = network(batch, torch.from_numpy(np.nan_to_num(truth)))
                loss = teacher.loss(answer.logits.float(), indices)
                if answer.extra is not None:
                    loss = self.whole(loss, answer.extra)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                schedule.step()
                total += float(loss.detach()) * len(indices) / len(order)
        return total

    def whole(self, loss: Tensor, extra: Tensor) -> Tensor:
        """The loss of logits together with the network's own."""
        return loss + extra

    def predict(self, features: Features) -> Array:
        """Returns float64, (case, output): probabilities, numbers, or the risk."""
        return self.explain(features)[0]

    def explain(self, features: Features) -> tuple[Array, list[Array | None]]:
        """Predicts, and says how each tile was weighed.

        Returns:
            What `predict` does, and for each bag float32, (tile,), weights that sum to 1, the mean over members; None
            of a head without.

        Raises:
            UserError: a bag is empty, not finite, or of features of another length.
        """
        bags = PackedBags.of(features)
        if bags.width != self.facts["width"]:
            raise UserError(
                f"features have length {bags.width}, expected {self.facts['width']}; are they of another encoder?"
            )
        device = self._device()
        values: list[Array] = []
        weights: list[list[Array | None]] = []
        for network in self._networks(device):
            answers, weights_seen = [], []
            for some in _group_bags(bags):
                batch = Batch(some, device)
                with (
                    limited_threads(network, len(batch.rows)),
                    torch.inference_mode(),
                    torch.autocast(device.type, torch.bfloat16, enabled=self.precision == "bfloat16"),
                ):
                    answer = network(batch)
                answers.append(answer.logits.double().cpu().numpy())
                parts = [None] * len(batch) if answer.attention is None else batch.parts(answer.attention.float().cpu())
                weights_seen += [None if part is None else part.numpy() for part in parts]
            values.append(self._answers(np.concatenate(answers)))
            weights.append(weights_seen)
        together = [
            None if head_weights[0] is None else np.mean(head_weights, 0) for head_weights in zip(*weights, strict=True)
        ]
        return np.mean(values, 0), together

    def _answers(self, logits: Array) -> Array:
        kind = self.facts["kind"]
        if kind == "numbers":
            return logits * self.arrays["spread"] + self.arrays["level"]
        if kind == "exclusive":
            raised = np.exp(logits - logits.max(1, keepdims=True))
            shares: Array = raised / raised.sum(1, keepdims=True)
            return shares
        if kind == "survival":
            survived = np.cumprod(1 - 1 / (1 + np.exp(-logits)), 1)
            risk: Array = -survived.sum(1, keepdims=True)
            return risk
        return np.exp(-np.logaddexp(0, -logits))

    def _networks(self, device: torch.device) -> Iterator[nn.Module]:
        for member in range(self.members):
            network = self.network(self.facts["width"], self.facts["outputs"])
            start = f"{member}."
            state = {k.removeprefix(start): torch.from_numpy(v) for k, v in self.arrays.items() if k.startswith(start)}
            network.load_state_dict(state)
            yield network.to(device).eval()

    def _device(self) -> torch.device:
        name = self.device
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        return torch.device(name)


@dataclass(frozen=True, eq=False)
class Teacher:
    """Targets of bags, as the loss takes them.

    Attributes:
        kind: of the targets.
        truth: float32, (case, output); of numbers in standard deviations from their mean; of survival the interval of
            time, and 1 for an event.
        weights: float32, (case,).
        level, spread: of numbers, float64, (output,).
        edges: of intervals of time.
    """

    kind: str
    truth: Array
    weights: Array
    level: Array
    spread: Array
    edges: Array

    @classmethod
    def of(cls, targets: Targets, *, balanced: bool) -> Teacher:
        """Teacher of these targets' kind."""
        values, weights = targets.values, np.ones(len(targets))
        level, spread, edges = np.zeros(values.shape[1]), np.ones(values.shape[1]), np.zeros(0)
        if targets.kind == "exclusive" and balanced:
            codes = targets.codes
            counts = np.bincount(codes, minlength=len(targets.names))
            weights = (len(codes) / (len(counts) * counts))[codes]
        elif targets.kind == "numbers":
            level, spread = np.nanmean(values, 0), np.nanstd(values, 0)
            spread = np.where(spread > 0, spread, 1.0)
            values = (values - level) / spread
        elif targets.kind == "survival":
            inner = np.unique(np.quantile(values[values[:, 1] > 0, 0], np.arange(1, BINS) / BINS))
            edges = np.concatenate([[0.0], inner, [np.inf]])
            values = np.stack([np.searchsorted(inner, values[:, 0], side="right"), values[:, 1]], 1)
        return cls(targets.kind, values.astype(np.float32), weights.astype(np.float32), level, spread, edges)

    def loss(self, logits: Tensor, places: Array) -> Tensor:
        """The mean loss of some cases."""
        truth = torch.from_numpy(self.truth[places]).to(logits.device)
        if self.kind == "survival":
            return discrete_time_loss(logits, truth[:, 0].long(), truth[:, 1])
        if self.kind == "numbers":
            is_known = ~torch.isnan(truth)
            return ((logits - torch.nan_to_num(truth)).square() * is_known).sum() / is_known.sum().clamp(min=1)
        if self.kind == "classes":
            return class_loss(logits, truth, exclusive=False)
        weights = torch.from_numpy(self.weights[places]).to(logits.device)
        losses = -(truth * logits.log_softmax(1)).sum(1)
        return (losses * weights).mean()


def discrete_time_loss(logits: Tensor, interval: Tensor, event: Tensor) -> Tensor:
    """The mean negative log-likelihood of discrete times.

    Args:
        logits: of the hazard in each interval, (case, interval).
        interval: int64, (case,), in which the event was, or the case last seen.
        event: 1 for an event, 0 for a censored case, (case,).

    Returns:
        Of -log S(k - 1) - log h(k) for an event in interval k, -log S(k) for a censored case.
    """
    survived = nn.functional.logsigmoid(-logits).cumsum(1)
    before = torch.cat([torch.zeros_like(survived[:, :1]), survived], 1)
    at = interval[:, None]
    hazard = nn.functional.logsigmoid(logits).gather(1, at)[:, 0]
    happened = before.gather(1, at)[:, 0] + hazard
    return -(event * happened + (1 - event) * survived.gather(1, at)[:, 0]).mean()


@contextmanager
def limited_threads(network: nn.Module, tiles: int) -> Iterator[None]:
    """Limits torch's threads by the number of tiles."""
    before = torch.get_num_threads()
    work = tiles * sum(parameter.numel() for parameter in network.parameters())
    torch.set_num_threads(min(before, threads(max(1, work // WORK))))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _group_bags(bags: PackedBags) -> Iterator[list[Array]]:
    """Groups whole bags up to a number of tiles."""
    some: list[Array] = []
    for bag in bags:
        if some and sum(map(len, some)) + len(bag) > TOGETHER:
            yield some
            some = []
        some.append(bag)
    if some:
        yield some


@dataclass(kw_only=True)
class Pooled(BagHead):
    """Mean or maximum over projected tiles.

    Args:
        how: `mean` or `max`.
        hidden: features that tiles are projected to.
    """

    how: Literal["mean", "max"] = "mean"
    hidden: int = 512

    def network(self, width: int, outputs: int) -> nn.Module:
        """Makes the network; raises UsageError for another `how`."""
        UsageError.refuse_invalid("head.how", ("mean", "max"), self.how)
        return PoolingNetwork(width, outputs, hidden=self.hidden, dropout=self.dropout, how=self.how)


@dataclass(kw_only=True)
class AttentionPooling(BagHead):
    """ABMIL: attention-weighted mean of projected tiles (Ilse et al. 2018).

    Args:
        hidden: features that tiles are projected to; 0 leaves them as they are.
        attention: hidden features of the attention.
        gated: whether a sigmoid gates it.
    """

    hidden: int = 512
    attention: int = 128
    gated: bool = True

    def network(self, width: int, outputs: int) -> nn.Module:
        """Makes the network."""
        return AttentionNetwork(
            width, outputs, hidden=self.hidden, attention=self.attention, gated=self.gated, dropout=self.dropout
        )


@dataclass(kw_only=True)
class Clam(BagHead):
    """CLAM: gated attention with an instance loss (Lu et al. 2021).

    Args:
        branches: `single` attention, or `multiple`, one for each class.
        instances: tiles of most, and of least, attention.
        share: of the bag's loss in the whole; the rest is the instances'.
        hidden: features that tiles are projected to.
        attention: hidden features of the attention.
    """

    kinds = frozenset({"exclusive"})

    branches: Literal["single", "multiple"] = "single"
    instances: int = 8
    share: float = 0.7
    hidden: int = 512
    attention: int = 256

    def network(self, width: int, outputs: int) -> nn.Module:
        """Makes the network; raises UsageError for other `branches`."""
        UsageError.refuse_invalid("head.branches", ("single", "multiple"), self.branches)
        return AttentionNetwork(
            width,
            outputs,
            hidden=self.hidden,
            attention=self.attention,
            gated=True,
            dropout=self.dropout,
            branches=outputs if self.branches == "multiple" else 1,
            instances=self.instances,
        )

    def whole(self, loss: Tensor, extra: Tensor) -> Tensor:
        """Weighted sum: `share` of the bag's loss, the rest the instances'."""
        return self.share * loss + (1 - self.share) * extra


@dataclass(kw_only=True)
class DsMil(BagHead):
    """DSMIL: critical instances and attention by similarity (Li et al. 2021).

    Args:
        attention: features that tiles are compared by.
    """

    attention: int = 128

    def network(self, width: int, outputs: int) -> nn.Module:
        """Makes the network."""
        return DualStreamNetwork(width, outputs, attention=self.attention, dropout=self.dropout)


@dataclass(kw_only=True)
class TransMil(BagHead):
    """TransMIL: Nystrom attention between tiles (Shao et al. 2021).

    Args:
        hidden: features that tiles are projected to.
        heads: of attention.
        landmarks: of Nystrom's approximation.
    """

    hidden: int = 512
    heads: int = 8
    landmarks: int = 256

    def network(self, width: int, outputs: int) -> nn.Module:
        """Makes the network."""
        return TransformerNetwork(
            width, outputs, hidden=self.hidden, heads=self.heads, landmarks=self.landmarks, dropout=self.dropout
        )
