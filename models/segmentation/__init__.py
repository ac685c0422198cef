"""Segmentation networks, promptable models, ensembles, and what is done to their masks.

- `monai`, `promptable`: wrappers of networks, bundles and VISTA-3D; of SAM and other models that take prompts
- `ensemble`: the majority of any models
- `sliding_window`, `postprocess`: how volumes are gone through, and masks cleaned
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
