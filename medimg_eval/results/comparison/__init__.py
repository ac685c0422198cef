"""Which differences between models are significant: paired tests, against a baseline or pair by pair."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
