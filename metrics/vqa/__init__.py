"""Answers to questions: `correctness`, `grounding` in the image, and protocols over whole `question_sets`."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
