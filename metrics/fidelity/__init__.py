"""How alike a generated set of images is to a real one, judged by their feature vectors.

Each function takes two arrays of features, real (n, d) and generated (m, d), and the keyword arguments of `Options`. It
returns a `SetValue`: the value with n, its interval, the same of real against real (the floor), and flags. It raises a
SetError where sets do not fit, as `prepare` says. All arithmetic is in float64, but for searches of neighbours, which
are settled in it. They judge sets, not cases, so they are no metrics of the registry: a task calls them once, when all
features are there.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
