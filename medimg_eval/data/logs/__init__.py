"""Logs of other programs: what models replied, what was right, and how those programs scored it."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
