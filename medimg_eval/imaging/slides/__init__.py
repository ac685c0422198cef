"""Whole-slide images, their tiles, and features of tiles; `backends` are the libraries that open them."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
