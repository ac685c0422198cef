"""What patients can be recognised by: headers, side-cars and file names."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
