"""T2 of cartilage and meniscus, as it is and as a reconstruction has it."""

import numpy as np

rng = np.random.default_rng(0)
labels = np.repeat([1, 2, 3, 4], 64).reshape(16, 16)
t2_reference = rng.normal(40, 3, (16, 16))
t2_of_reconstruction = t2_reference + rng.normal(1, 1, (16, 16))
