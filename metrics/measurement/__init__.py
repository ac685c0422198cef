"""Landmarks, angles, lengths, vertebral heights and tissue parameters (T2) against their reference."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
