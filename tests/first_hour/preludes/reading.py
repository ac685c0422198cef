"""A mask of a slide."""

from types import SimpleNamespace

import numpy as np

labels = np.zeros((64, 64), np.uint8)
labels[8:24, 8:40] = 1
mask = SimpleNamespace(labels=labels, instances=None)
