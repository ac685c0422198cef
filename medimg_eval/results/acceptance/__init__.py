"""Whether a run meets what was fixed before it: criteria on bounds of intervals, plans, their hashes and signatures."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
