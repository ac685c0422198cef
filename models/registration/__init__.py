"""Registration without training: images left as they lie, and SimpleITK's rigid, affine and deformable methods."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
