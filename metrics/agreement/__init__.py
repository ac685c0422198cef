"""How far readers, methods and repeats agree: `continuous` of measurements, `kappa` of categories."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
