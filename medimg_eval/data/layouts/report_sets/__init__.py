"""Images with reports: studies of patients, the JSON of R2Gen and LLaVA, and tables of reports alone."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
