"""A mask of a slide, and images in a list, as data sets have them."""

from types import SimpleNamespace

import numpy as np

labels = np.zeros((64, 64), np.uint8)
labels[8:24, 8:40] = 1
mask = SimpleNamespace(labels=labels, instances=None)
images = []
