"""Who answers: one wrapper class per way of running a model.

Importing this package imports no torch; each wrapper lives in its own module.
"""

from medimg_eval.models.base import (
    Chooser,
    Detector,
    Embedder,
    Model,
    Reconstructor,
    Segmenter,
    Synthesizer,
    VisionLanguageModel,
)

__all__ = [
    "Chooser",
    "Detector",
    "Embedder",
    "Model",
    "Reconstructor",
    "Segmenter",
    "Synthesizer",
    "VisionLanguageModel",
]
