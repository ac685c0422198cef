"""An image, and the same with noise."""

import numpy as np

rng = np.random.default_rng(0)
reference = rng.random((4, 64, 64))
reconstruction = reference + rng.normal(0, 0.02, reference.shape)
