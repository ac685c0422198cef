"""What an answer cost and how it was come by: the `budget` of tokens, seconds and money, and calls of `tools`."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
