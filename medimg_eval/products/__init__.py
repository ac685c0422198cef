"""What predictions become for people and other programs: DICOM-SEG on the source series, tables of what was said."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
