"""What a language model said as a judge, turned into numbers: GREEN, CRIMSON, RadFact and others."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
