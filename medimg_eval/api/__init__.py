"""The Python API: what `import medimg_eval as me` offers, and all that the commands of the same names do but print."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
