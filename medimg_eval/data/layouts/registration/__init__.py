"""Pairs of images to register: from a table, as Learn2Reg lists them, and the MNI152 brain under known warps."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
