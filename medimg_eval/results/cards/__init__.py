"""Cards and checklists that go with a paper: what was disclosed, and what a generator's pictures are worth."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
