"""How far judges, labelers and readers agree with people, and with each other."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
