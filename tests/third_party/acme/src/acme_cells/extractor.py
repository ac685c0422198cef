"""What says how bright a picture is."""

import numpy as np

from medimg_eval.models.extractors import FeatureExtractor


class MeanGrey(FeatureExtractor):
    """The mean of all pixels, 0 to 255."""

    preprocessing = "mean grey value"

    def embed(self, pictures):
        return np.array([[np.asarray(picture.convert("L"), np.float32).mean()] for picture in pictures])
