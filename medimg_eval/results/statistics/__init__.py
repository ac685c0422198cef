"""Intervals, tests, effect sizes, resamples and power: arithmetic on values, with no thought of tables."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
