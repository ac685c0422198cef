"""Meetings of agents whose course depends on what is said: who is asked next, who agrees, when it ends."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
