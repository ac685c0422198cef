"""Figures of a paper, each with the numbers it shows.

One module per kind of figure draws runs or a frame of scores; `inputs`, `rows` and `style` are shared.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
