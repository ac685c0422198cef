"""Networks that turn images and texts into features, of which metrics compare the distributions or distances."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
