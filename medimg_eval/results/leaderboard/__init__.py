"""A leaderboard of many models over many tasks: pages that need no server, and JSON beside them."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
