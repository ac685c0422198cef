"""Scores of items with their days of release, and answers of 17 models to old items and to old and new ones."""

from pathlib import Path

import numpy as np
import pandas as pd

RNG = np.random.default_rng(0)

scores = pd.DataFrame(
    [
        (model, float(RNG.random() < 0.6), f"{2024 + month // 12}-{month % 12 + 1:02d}-15", f"p{month}")
        for model in ("model", "other")
        for month in range(24)
    ],
    columns=["model", "value", "released", "patient"],
)

old_answers = (RNG.random((17, 60)) < RNG.uniform(0.3, 0.9, (17, 1))).astype(float)
all_answers = np.hstack([old_answers, np.full((17, 20), np.nan)])
all_answers[::4, 60:] = RNG.random((5, 20)) < 0.6

# Each block is run after those before it, and what is sealed cannot be sealed again.
Path("runs/prognosis/model/seal.json").unlink(missing_ok=True)
