"""Outlines and points drawn on slides: QuPath's GeoJSON, ASAP's XML and Aperio ImageScope's.

All state x and y in level-0 pixels from the upper left corner of the slide: the first pixel's centre lies at 0.5.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
