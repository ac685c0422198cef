"""Who answers: one wrapper class per way of running a model.

Importing this package imports no torch; a wrapper is imported when it is first named.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
