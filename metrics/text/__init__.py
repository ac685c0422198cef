"""Words of a text against words of a reference: BLEU, ROUGE, METEOR, CIDEr-D, and the profiles of published scores."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
