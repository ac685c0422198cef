"""Reconstructed and synthesised images against the fully sampled or original ones.

`metrics` declares what is judged, `presets` which domain, range and window that takes for granted; SSIM and its kin,
and distances that networks see (`perceptual`), are computed beside them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
