"""Names, dates and numbers of patients in generated texts; images and headers are looked at by `medimg_eval.deid`."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
