"""What is done to cases before they are shown: noise, blur, artefacts, moves and changed words, by severity.

A degradation is a function with a declaration; its draws depend on seed, case, image, name and repeat alone.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
