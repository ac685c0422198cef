"""What a classifier is asked, network or not. Imports no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from medimg_eval.case import Array, Prompts
from medimg_eval.models.base import Model


class Classifier(Model, ABC):
    """A model that says how probable each of its classes is."""

    @abstractmethod
    def classify(self, prompts: Prompts) -> Sequence[Mapping[str, float]]:
        """Returns class -> probability, 0 to 1, for each prompt.

        Classes are the prompt's, or the model's where it names none. A prompt has one or several `images` and, of a
        classification, `labels` (integer -> class); where these exclude each other, they are the `options` as well.
        """


def log_softmax(logits: Array) -> Array:
    """Logarithms of probabilities over the last axis, float64."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_probabilities: Array = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return log_probabilities
