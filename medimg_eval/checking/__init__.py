"""What is wrong with data, and what metrics lack, before anything is evaluated; `check` prints it."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
