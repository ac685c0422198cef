"""Models that are shown images and write: local ones (`huggingface`), servers (`openai`), CLIP (`open_clip`)."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
