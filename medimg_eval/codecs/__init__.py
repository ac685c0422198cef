"""How predictions are kept with their run: one module for each stored form. Knows no task, no model and no run.

A task names its codec (`Task.codec`); a class of anybody's that derives from `Codec` serves as well as these.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
