"""Where a network looked: maps of gradients and of attention over the pictures that it was shown."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
