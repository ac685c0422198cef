"""Inspect beside us: `agent` is one of its agents as a model, `wrapped` a model of ours as one of its own."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
