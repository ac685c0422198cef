"""Radiology reports against their references.

- `labeler`: what a report says of 14 observations, by rules of our own
- `labels`: precision, recall and F1 of labels, whoever read them
- `radgraph`, `ratescore_entities`, `lunguage`: graphs, entities and structured findings
- `radcliq`: scores that are made of others
- `icon_consistency`: whether studies that show the same are described alike
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
