"""A model that is not ours."""

import numpy as np

from medimg_eval.models import Segmenter


class Bright(Segmenter):
    """Everything above a level is the task's first label."""

    def __init__(self, level):
        self.level = level

    def segment(self, prompts):
        return [np.where(prompt.image.array[0] > self.level, 1, 0) for prompt in prompts]
