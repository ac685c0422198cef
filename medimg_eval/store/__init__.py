"""What has been paid for or computed, by the content that it was made of; shared by runs, threads and processes."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
