"""Sets and intervals that hold the truth as often as is asked for: split conformal prediction and risk control."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
