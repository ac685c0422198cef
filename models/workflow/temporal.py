"""A temporal network on features of frames, which `fit` trains in minutes on a CPU."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from medimg_eval.case import Array, Image, Prompts
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.imaging.video import Film, FilmPrompt
from medimg_eval.models.base import FrameLabeler, refuse_names
from medimg_eval.models.fitted import CHECKPOINTS, FittedNetwork, fitted_folder

log = logging.getLogger(__name__)

WEIGHTS, RECORD = "temporal.safetensors", "temporal.json"


class TemporalModel(FittedNetwork, FrameLabeler):
    """Causal TCN or GRU over features, labelling each frame.

    Films give features where the layout has `features`; of pictures `frame_encoder` makes them, frame by frame. What it
    says of a film online is what it would say of the whole film.

    Args:
        network: `tcn` (stages of dilated convolutions) or `gru`.
        causal: whether no later frame is seen; a task that is online needs it.
        width: channels within.
        layers: of each stage of a TCN, or of GRUs.
        stages: of a TCN.
        dropout: in training.
        epochs: passes over the films to fit on.
        learning_rate: of Adam.
        smoothing: weight of the loss that neighbouring frames differ, as of MS-TCN.
        seed: of weights and order.
        frame_encoder: an extractor of features; None where films give features.
        checkpoint: folder of a `fit` run.

    Raises:
        UsageError: a setting is out of range.
    """

    def __init__(
        self,
        network: Literal["tcn", "gru"] = "tcn",
        *,
        causal: bool = True,
        width: int = 64,
        layers: int = 8,
        stages: int = 2,
        dropout: float = 0.3,
        epochs: int = 40,
        learning_rate: float = 2e-3,
        smoothing: float = 0.15,
        seed: int = 0,
        frame_encoder: Any = None,
        checkpoint: str | None = None,
    ) -> None:
        if network not in ("tcn", "gru") or min(width, layers, stages, epochs) < 1:
            raise UsageError(f"expected model.network tcn or gru, and sizes from 1 on, got {network!r}")
        refuse_names({"frame_encoder": frame_encoder})
        self.network, self.causal, self.width, self.layers, self.stages = network, causal, width, layers, stages
        self.dropout, self.epochs, self.learning_rate, self.smoothing = dropout, epochs, learning_rate, smoothing
        self.seed, self.frame_encoder, self.checkpoint = seed, frame_encoder, checkpoint
        self._fitted: Any = None
        self._facts: dict[str, Any] = {}
        self._scale: tuple[Array, Array] = (np.zeros(0), np.ones(0))

    def learn(self, fit: Iterable[Any], validation: Iterable[Any] | None, folder: Path, asked: str) -> dict[str, Any]:
        """Fits the network, and keeps it.

        Args:
            fit: films to fit on, with `prompt` (a `FilmPrompt`) and `target` (`FrameLabels`).
            validation: films to choose the epoch on; None for the last epoch.
            folder: of the run: gets `checkpoints/`.
            asked: the task's capability, `label_frames`.

        Returns:
            How fitting ended.

        Raises:
            UserError: there is no film, or features differ in length.
        """
        from medimg_eval.models.workflow.training import train

        courses = [self._course(lesson) for lesson in fit]
        if not courses:
            raise UserError("there are no films to fit on")
        held = None if validation is None else [self._course(lesson) for lesson in validation]
        first = courses[0]
        sizes = {course.features.shape[1] for course in courses}
        if len(sizes) > 1:
            raise UserError(f"features of the films to fit on have several lengths: {sorted(sizes)}")
        stacked = np.concatenate([course.features for course in courses])
        mean, spread = stacked.mean(0), np.maximum(stacked.std(0), 1e-6)
        self._facts = {
            "phases": list(first.phases), "presence": list(first.presence_names), "features": sizes.pop(),
            "network": self.network, "causal": self.causal,
        }  # fmt: skip
        self._fitted = self._made()
        scaled = [course.scaled(mean, spread) for course in courses]
        held_courses = None if held is None else [course.scaled(mean, spread) for course in held]
        training = train(self._fitted, scaled, held_courses, len(first.phases), self)
        self._scale = mean.astype(np.float32), spread.astype(np.float32)
        self._save(folder / CHECKPOINTS)
        return {"films": len(courses), "frames": len(stacked), **training}

    def label_frames(self, prompts: Prompts) -> Sequence[Iterator[Mapping[str, float]]]:
        """Returns a generator per film of class -> probability by frame.

        Raises:
            CaseError: a class was not fitted on, or the network sees later frames and the film is online.
        """
        self._load()
        return [self._labelled(prompt) for prompt in prompts if isinstance(prompt, FilmPrompt)]

    def _labelled(self, prompt: FilmPrompt) -> Iterator[dict[str, float]]:
        import torch

        names = [*self._facts["phases"], *self._facts["presence"]]
        wanted = [*prompt.phases, *prompt.presence]
        if names != wanted:
            missing = sorted(set(wanted) - set(names)) or wanted
            raise CaseError(f"case {prompt.case_id!r}: the network was not fitted on {missing[:3]}; fit it anew")
        if prompt.online and not self._facts["causal"]:
            raise CaseError(f"case {prompt.case_id!r}: the task is online, and model.causal=false sees later frames")
        mean, spread = self._scale
        phases = len(self._facts["phases"])
        with torch.no_grad():
            if prompt.online:
                steps = self._fitted.stepper()
                for frame in self._vectors(prompt.film):
                    logits = steps.step(torch.from_numpy((frame - mean) / spread).float())
                    yield _name_probabilities(names, logits.numpy(), phases)
                return
            frames = np.stack(list(self._vectors(prompt.film)))
            tensor = torch.from_numpy((frames - mean) / spread).float().T[None]
            for column in self._fitted(tensor)[-1][0].T.numpy():
                yield _name_probabilities(names, column, phases)

    def _vectors(self, film: Film) -> Iterator[Array]:
        """The features of frames, float32, (feature,), each before the next frame is taken."""
        for frame in film:
            if frame.ndim == 1:
                yield np.asarray(frame, np.float32)
            elif self.frame_encoder is None:
                raise CaseError("films show pictures; set model.frame_encoder, or task.layout.features to stored ones")
            else:
                picture = Image(frame, np.eye(4), units="pixel")
                yield np.asarray(self.frame_encoder.embed_images([picture]), np.float32)[0]

    def _course(self, lesson: Any) -> Any:
        from medimg_eval.models.workflow.training import Course

        prompt, target = lesson.prompt, lesson.target
        features = np.stack(list(self._vectors(prompt.film)))
        indices = {name: index for index, name in enumerate(prompt.phases)}
        column = next((values for values in target.columns.values() if values.dtype == object), None)
        size = len(target.frames)
        phase_indices = (
            np.full(size, -1) if column is None else np.array([indices.get(name, -1) for name in column.tolist()])
        )
        presence_columns = [np.asarray(target.columns[name], np.float32) for name in prompt.presence]
        presence = np.stack(presence_columns, 1) if presence_columns else np.zeros((size, 0), np.float32)
        return Course(features, phase_indices, presence, tuple(prompt.phases), tuple(prompt.presence))

    def _made(self) -> Any:
        import torch

        from medimg_eval.models.workflow.networks import Recurrent, TemporalConvolutions

        torch.manual_seed(self.seed)
        phases, size = len(self._facts["phases"]), self._facts["features"]
        outputs = phases + len(self._facts["presence"])
        if self.network == "gru":
            return Recurrent(size, outputs, self.width, self.layers, self.causal, self.dropout)
        shape = (self.width, self.layers, self.stages, self.causal, self.dropout)
        return TemporalConvolutions(size, phases, outputs, *shape)

    def _save(self, folder: Path) -> None:
        import torch
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        scale = dict(zip(("scale.mean", "scale.spread"), map(torch.from_numpy, self._scale), strict=True))
        save_file({**self._fitted.state_dict(), **scale}, folder / WEIGHTS)
        (folder / RECORD).write_text(json.dumps(self._facts, indent=1) + "\n", encoding="utf-8")

    def _load(self) -> None:
        if self._fitted is not None or self.checkpoint is None:
            return
        from safetensors.torch import load_file

        folder = fitted_folder(self.checkpoint)
        with UserError.about(folder, "holds no temporal network of `fit` that can be read", Exception):
            self._facts = json.loads((folder / RECORD).read_text(encoding="utf-8"))
            state = load_file(folder / WEIGHTS)
            self._scale = state.pop("scale.mean").numpy(), state.pop("scale.spread").numpy()
        if (self._facts["network"], self._facts["causal"]) != (self.network, self.causal):
            raise UserError(
                f"{folder}: was fitted with model.network={self._facts['network']} and "
                f"model.causal={str(self._facts['causal']).lower()}; leave both as they were"
            )
        network = self._made()
        with UserError.about(folder, "has weights of another size than the settings", RuntimeError):
            network.load_state_dict(state)
        self._fitted = network.eval()


def _name_probabilities(names: Sequence[str], logits: Array, phases: int) -> dict[str, float]:
    numbers = np.asarray(logits, np.float64)
    shares = np.exp(numbers[:phases] - numbers[:phases].max(initial=-math.inf))
    values = [*(shares / max(shares.sum(), 1e-300)), *(1 / (1 + np.exp(-numbers[phases:])))]
    return dict(zip(names, map(float, values), strict=True))
