"""Models that read texts for metrics: CheXbert, RadGraph, RaTEScore, BERTScore and others.

They find entities, labels or embeddings in reports; what is made of these is in `medimg_eval.metrics.reports`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
