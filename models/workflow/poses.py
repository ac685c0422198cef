"""A classifier of sequences of poses, which `fit` trains."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array, Image, Prompts
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.models.classification import Classifier
from medimg_eval.models.fitted import CHECKPOINTS, FittedNetwork, fitted_folder

WEIGHTS, RECORD = "poses.safetensors", "poses.json"


class PoseClassifier(FittedNetwork, Classifier):
    """Tells classes of sequences of poses by ST-GCN.

    Poses are centred on the mean of their joints over the sequence and scaled by their spread; joints that were not
    found lie in the middle. Sequences are brought to `frames` by taking frames at even distances.

    Args:
        frames: of a sequence as the network sees it.
        width: channels of the first blocks; 64 in ST-GCN.
        edges: pairs of joints; by their number (17, 18 or 25) when empty.
        dropout: in training.
        epochs: passes over the sequences to fit on.
        batch: sequences a step.
        learning_rate: of Adam.
        seed: of weights and order.
        checkpoint: folder of a `fit` run.

    Raises:
        UsageError: a setting is out of range.
    """

    def __init__(
        self,
        frames: int = 64,
        *,
        width: int = 64,
        edges: Sequence[Sequence[int]] = (),
        dropout: float = 0.5,
        epochs: int = 40,
        batch: int = 16,
        learning_rate: float = 1e-3,
        seed: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        if min(frames, width, epochs, batch) < 1:
            raise UsageError("model.frames, width, epochs and batch are invalid: expected 1 or more")
        self.frames, self.width, self.edges, self.dropout = frames, width, edges, dropout
        self.epochs, self.batch, self.learning_rate, self.seed = epochs, batch, learning_rate, seed
        self.checkpoint = checkpoint
        self._fitted: Any = None
        self._facts: dict[str, Any] = {}

    def learn(self, fit: Iterable[Any], validation: Iterable[Any] | None, folder: Path, asked: str) -> dict[str, Any]:
        """Fits the network, and keeps it.

        Args:
            fit: sequences to fit on, with `prompt` and `target`.
            validation: sequences to choose the epoch on; None for the last epoch.
            folder: of the run: gets `checkpoints/`.
            asked: the task's capability, `classify`.

        Returns:
            How fitting ended.

        Raises:
            UserError: nothing can be learned from the sequences.
        """
        lessons = list(fit)
        if not lessons:
            raise UserError("there are no sequences to fit on")
        prompt = lessons[0].prompt
        names = list(prompt.labels.values())
        self._facts = {
            "classes": names, "exclusive": bool(prompt.options), "joints": prompt.images[0].array.shape[2],
            "frames": self.frames, "width": self.width,
        }  # fmt: skip
        self._fitted = self._made()
        held = None if validation is None else self._gathered(list(validation))
        training = self._train(self._gathered(lessons), held)
        self._save(folder / CHECKPOINTS)
        return {"sequences": len(lessons), **training}

    def classify(self, prompts: Prompts) -> Sequence[Mapping[str, float]]:
        """Returns class -> probability per sequence; CaseError for missing poses."""
        import torch

        self._load()
        answers = []
        for prompt in prompts:
            names = self._facts["classes"]
            if prompt.labels and list(prompt.labels.values()) != names:
                raise CaseError(f"case {prompt.case_id!r}: the network was fitted on {', '.join(names)}; fit it anew")
            poses = torch.from_numpy(self._poses(prompt.case_id, prompt.images))[None]
            with torch.no_grad():
                logits = self._fitted(poses)[0].double()
            shares = logits.softmax(0) if self._facts["exclusive"] else logits.sigmoid()
            answers.append(dict(zip(names, shares.tolist(), strict=True)))
        return answers

    def _poses(self, case: str, images: Sequence[Image]) -> Array:
        array = images[0].array
        if len(images) != 1 or array.ndim != 3 or array.shape[0] != 3 or array.shape[2] != self._facts["joints"]:
            shapes = ", ".join(str(image.array.shape) for image in images)
            raise CaseError(
                f"case {case!r}: expected one sequence of poses (3, frame, {self._facts['joints']}), got {shapes}"
            )
        return scale_poses(array, self._facts["frames"])

    def _gathered(self, lessons: Sequence[Any]) -> tuple[Array, Array]:
        names = self._facts["classes"]
        poses = np.stack([self._poses(lesson.prompt.case_id, lesson.prompt.images) for lesson in lessons])
        values_of = [lesson.target.values for lesson in lessons]
        return poses, np.array([[values.get(name, np.nan) for name in names] for values in values_of], np.float32)

    def _loss(self, poses: Array, truth: Array) -> Any:
        import torch
        from torch.nn import functional as F  # noqa: N812 - as torch's documentation writes it

        logits, wanted = self._fitted(torch.from_numpy(poses)), torch.from_numpy(truth)
        if self._facts["exclusive"]:
            return F.cross_entropy(logits, wanted)
        is_known = ~wanted.isnan()
        return F.binary_cross_entropy_with_logits(logits[is_known], wanted[is_known])

    def _train(self, lessons: tuple[Array, Array], held: tuple[Array, Array] | None) -> dict[str, Any]:
        import torch

        poses, truth = lessons
        optimiser = torch.optim.Adam(self._fitted.parameters(), lr=self.learning_rate, weight_decay=1e-4)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, self.epochs)
        order = np.random.default_rng(self.seed)
        best: tuple[float, int, Any] = (np.inf, 0, None)
        for epoch in range(1, self.epochs + 1):
            self._fitted.train()
            total, batch_order = 0.0, order.permutation(len(poses))
            for chosen in np.array_split(batch_order, max(1, len(batch_order) // self.batch)):
                loss = self._loss(poses[chosen], truth[chosen])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                total += float(loss.detach()) * len(chosen) / len(batch_order)
            schedule.step()
            self._fitted.eval()
            with torch.no_grad():
                judged = total if held is None else float(self._loss(*held))
            if held is None or judged <= best[0]:
                best = judged, epoch, copy.deepcopy(self._fitted.state_dict())
        if best[2] is None:
            raise UserError("the loss on sequences to validate on is not finite; lower model.learning_rate")
        self._fitted.load_state_dict(best[2])
        return {"epoch": best[1], "loss": round(best[0], 4)}

    def _made(self) -> Any:
        import torch

        from medimg_eval.models.workflow.pose_network import PoseNetwork, read_bones

        torch.manual_seed(self.seed)
        joints = self._facts["joints"]
        with UserError.about("model", "cannot be made", ValueError):
            bones = read_bones(joints, self.edges)
        return PoseNetwork(joints, bones, len(self._facts["classes"]), self._facts["width"], self.dropout)

    def _save(self, folder: Path) -> None:
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        save_file(self._fitted.state_dict(), folder / WEIGHTS)
        (folder / RECORD).write_text(json.dumps(self._facts, indent=1) + "\n", encoding="utf-8")

    def _load(self) -> None:
        if self._fitted is not None or self.checkpoint is None:
            return
        from safetensors.torch import load_file

        folder = fitted_folder(self.checkpoint)
        with UserError.about(folder, "holds no network of poses of `fit` that can be read", Exception):
            self._facts = json.loads((folder / RECORD).read_text(encoding="utf-8"))
            network = self._made()
            network.load_state_dict(load_file(folder / WEIGHTS))
        self._fitted = network.eval()


def scale_poses(poses: Array, frames: int) -> Array:
    """Resampled poses, centred and scaled, float32, (3, frame, joint); unscored joints are 0."""
    indices = np.linspace(0, poses.shape[1] - 1, frames).round().astype(int)
    chosen = np.asarray(poses, np.float32)[:, indices]
    is_seen = chosen[2] > 0
    if not is_seen.any():
        return np.zeros_like(chosen)
    points = chosen[:2][:, is_seen]
    middle, spread = points.mean(1), max(float(points.std()), 1e-6)
    chosen[:2] = np.where(is_seen, (chosen[:2] - middle[:, None, None]) / spread, 0)
    return chosen
