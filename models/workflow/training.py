"""Training of temporal networks on films that are held as features."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - as torch's documentation writes it

from medimg_eval.case import Array

if TYPE_CHECKING:
    from medimg_eval.models.workflow.temporal import TemporalModel

CLIPPED = 16.0
"""Largest squared difference of log-probabilities of neighbouring frames that smoothing counts, as of MS-TCN."""


@dataclass(frozen=True, eq=False)
class Course:
    """One film to learn from.

    Attributes:
        features: float32, (frame, feature).
        places: int64, (frame,): of phases; -1 where it is not known.
        presence: float32, (frame, class), 0 or 1.
        phases: names.
        presence_names: names.
    """

    features: Array
    places: Array
    presence: Array
    phases: tuple[str, ...]
    presence_names: tuple[str, ...]

    def scaled(self, mean: Array, spread: Array) -> Course:
        """Course with features of mean 0 and spread 1."""
        return replace(self, features=((self.features - mean) / spread).astype(np.float32))


def train(
    network: Any, courses: list[Course], held: list[Course] | None, phases: int, settings: TemporalModel
) -> dict[str, Any]:
    """Trains a network in place; keeps the epoch best on validation.

    Returns:
        The epoch that was kept and its loss.
    """
    optimiser = torch.optim.Adam(network.parameters(), lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, settings.epochs)
    order = np.random.default_rng(settings.seed)
    best: tuple[float, int, Any] | None = None
    for epoch in range(1, settings.epochs + 1):
        network.train()
        total = 0.0
        for index in order.permutation(len(courses)):
            loss = film_loss(network, courses[index], phases, settings.smoothing)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 5.0)
            optimiser.step()
            total += float(loss.detach())
        schedule.step()
        network.eval()
        with torch.no_grad():
            judged = total if not held else sum(float(film_loss(network, c, phases, 0.0)) for c in held)
        if best is None or (judged <= best[0] if held else True):
            best = judged, epoch, copy.deepcopy(network.state_dict())
    assert best is not None  # noqa: S101 - there is an epoch
    network.load_state_dict(best[2])
    return {"epoch": best[1], "loss": round(best[0] / len(held or courses), 4)}


def film_loss(network: Any, course: Course, phases: int, smoothing: float) -> Tensor:
    """Mean over stages of cross-entropies, and of how much neighbouring frames differ."""
    frames = torch.from_numpy(course.features).T[None]
    phase_indices, present = torch.from_numpy(course.places), torch.from_numpy(course.presence)
    stages = network(frames)
    total = frames.new_zeros(())
    for logits in stages:
        if phases and bool((phase_indices >= 0).any()):
            phase_logits = logits[0, :phases]
            total = total + F.cross_entropy(phase_logits.T, phase_indices, ignore_index=-1)
            if smoothing and phase_logits.shape[1] > 1:
                shares = phase_logits.log_softmax(0)
                apart = (shares[:, 1:] - shares[:, :-1].detach()) ** 2
                total = total + smoothing * apart.clamp(max=CLIPPED).mean()
        if present.shape[1]:
            total = total + F.binary_cross_entropy_with_logits(logits[0, phases:].T, present)
    return total / len(stages)
