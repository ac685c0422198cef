"""Published numbers computed again from the raw outputs that authors made public, and how far ours are from theirs."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
