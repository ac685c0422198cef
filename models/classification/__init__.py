"""Image classifiers that are trained here or wrapped: networks of MONAI, timm and open_clip, or one's own."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
