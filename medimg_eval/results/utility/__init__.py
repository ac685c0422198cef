"""What generated images are worth for training: studies of real and synthetic cases, as a table and a card."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
