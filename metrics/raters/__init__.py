"""Several truths: answers held against every reader, against what readers make together, and against their spread."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
