"""What patients can be recognised by: DICOM headers (after PS3.15), side-cars, and names of files.

Texts are looked at by `medimg_eval.metrics.phi`; pixels are not looked at.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
