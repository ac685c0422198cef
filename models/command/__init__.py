"""Models in an environment of their own: `model` asks them, `process` starts, hears and ends their programs."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
