"""How sure models are: calibration before and after scaling, and conformal sets, intervals and thresholds."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
