"""Images of other libraries: SimpleITK, nibabel and MONAI, each imported when it is asked for."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
