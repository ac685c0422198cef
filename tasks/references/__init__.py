"""Questions beside a case that was retrieved: whose visits are shown before the case's own, and how they are found."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
