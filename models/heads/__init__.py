"""Heads: what is fitted on the features of an encoder that stays as it is."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
