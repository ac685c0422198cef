"""Films whose frames are labelled: what is asked, how it is asked online, and how answers are judged."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
