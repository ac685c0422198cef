"""Prompts to generate images from, images that were generated, and mixtures of these with real ones."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
