"""Risk of an event over time: who comes first (`concordance`), and what was predicted by when (`horizons`).

`product_limit` holds curves and tests of groups, `metrics` the registered numbers of a run.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
