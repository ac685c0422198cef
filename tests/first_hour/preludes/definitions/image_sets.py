"""Features of real and generated pictures, and whose they are."""

import numpy as np

rng = np.random.default_rng(0)
real, generated = rng.normal(size=(60, 8)), rng.normal(0.2, 1, (60, 8))
patients = [f"p{n // 2}" for n in range(60)]
prompts = [f"prompt {n // 3}" for n in range(60)]
