"""How answers are judged: functions on arrays and strings, importable without torch.

A room per subject: masks (`segmentation`), points and lengths (`measurement`), classes (`classification`), boxes
(`detection`), images (`reconstruction`), generated images (`generation`, on `fidelity` and `privacy`), answers to
questions (`answers` takes them from what a model wrote, `vqa` judges them, `calibration` their confidence), reports
(`text`, `reports`, `judges`, `phi`, on the tools of `nlp`), and agreement of readers (`agreement`). `registry` declares
and finds metrics by name.
"""

import warnings
from typing import Any

import lazy_loader as lazy

_attached, __dir__, __all__ = lazy.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name == "Rows":
        message = "medimg_eval.metrics.Rows is now called ScoreTable; the former name goes on working"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        name = "ScoreTable"
    return _attached(name)
