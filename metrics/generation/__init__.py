"""Metrics of a generated set as tasks name them: fidelity, memorisation, and agreement with the prompts.

The arithmetic is in `medimg_eval.metrics.fidelity` and `medimg_eval.metrics.privacy`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
