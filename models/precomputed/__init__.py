"""Predictions that were made elsewhere, read from files: masks, nnU-Net's folders, classes, points, texts, images."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
