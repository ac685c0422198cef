"""Tokenizers, stemmer, sentences and sections: what all metrics of text stand on."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
