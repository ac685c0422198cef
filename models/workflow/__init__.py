"""Models that label the frames of films: temporal networks on features, and classifiers of frames with smoothing."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
