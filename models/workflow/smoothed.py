"""A classifier of pictures on each frame, smoothed over the frames before it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from medimg_eval.case import Image, Prompt, Prompts
from medimg_eval.errors import UsageError
from medimg_eval.imaging.video import FilmPrompt
from medimg_eval.models.base import Example, FrameLabeler


class SmoothedFrames(FrameLabeler):
    """Classifier of frames, averaged over the last ones.

    Args:
        classifier: a model with `classify`, such as `TimmClassifier`.
        window: how many frames, the one that is labelled and those before it; 1 smooths nothing.

    Raises:
        UsageError: the window is below 1.
    """

    def __init__(self, classifier: Any, window: int = 10) -> None:
        if window < 1:
            raise UsageError(f"expected model.window from 1 on, got {window}")
        self.classifier, self.window = classifier, window
        self.uses_torch = bool(getattr(classifier, "uses_torch", True))

    def check_ready(self) -> None:
        """Asks the classifier."""
        self.classifier.check_ready()

    def prepare(self, labels: Mapping[int, str], example: Example) -> None:
        """Has the classifier prepared for the classes of frames."""
        self.classifier.prepare(labels, example)

    def label_frames(self, prompts: Prompts) -> Sequence[Iterator[Mapping[str, float]]]:
        """Returns a generator per film of class -> running mean score."""
        return [self._labelled(prompt) for prompt in prompts if isinstance(prompt, FilmPrompt)]

    def _labelled(self, prompt: FilmPrompt) -> Iterator[dict[str, float]]:
        last: deque[Mapping[str, float]] = deque(maxlen=self.window)
        for number, frame in enumerate(prompt.film):
            picture = Image(frame, np.eye(4), units="pixel")
            frame_prompt = Prompt(f"{prompt.case_id}-{number}", (picture,), prompt.labels)
            last.append(self.classifier.classify([frame_prompt])[0])
            yield {name: float(np.mean([scores[name] for scores in last])) for name in prompt.labels.values()}
