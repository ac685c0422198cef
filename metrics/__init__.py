"""How answers are judged: functions on arrays and strings, importable without torch.

A room per subject: masks (`segmentation`), points and lengths (`measurement`), classes (`classification`), boxes
(`detection`), images (`reconstruction`), generated images (`generation`, on `fidelity` and `privacy`), answers to
questions (`answers` takes them from what a model wrote, `vqa` judges them, `calibration` their confidence), reports
(`text`, `reports`, `judges`, `phi`, on the tools of `nlp`), and agreement of readers (`agreement`). `registry` declares
and finds metrics by name.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
