"""A classical baseline that needs no training: one Gaussian per tissue, fitted to each image alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from medimg_eval.case import Array, Prompt, Prompts
from medimg_eval.errors import UserError
from medimg_eval.models.base import Segmenter


class GaussianMixture(Segmenter):
    """Labels voxels by intensity: a mixture of Gaussians by expectation-maximisation (scikit-learn).

    Components are ordered by mean intensity. The darkest is background, the others take the labels in
    ascending order, as grey before white matter on a T1 image. Voxels at or below `threshold` are
    background and not fitted. The unit of the intensities does not matter.

    Args:
        threshold: intensity up to which a voxel is background.
        share: the same as a share of the 99 % quantile of the intensities, 0 to 1, for images with noise about the
            body; the higher of the two counts.
        smoothing: standard deviation in voxels of a Gaussian filter applied first; 0 applies none.
        samples: voxels drawn to fit on, at most.
        seed: of the draw and the initialisation.
    """

    def __init__(
        self,
        threshold: float = 0.0,
        smoothing: float = 0.0,
        samples: int = 50_000,
        seed: int = 0,
        share: float = 0.0,
    ) -> None:
        if not 0 <= share < 1:
            raise UserError(f"expected model.share from 0 to below 1, got {share}")
        self.threshold = threshold
        self.share = share
        self.smoothing = smoothing
        self.samples = samples
        self.seed = seed

    def segment(self, prompts: Prompts) -> Sequence[Array]:
        """Returns label maps of the first channel of each image."""
        return [self._segment(prompt) for prompt in prompts]

    def _segment(self, prompt: Prompt) -> Array:
        from scipy.ndimage import gaussian_filter
        from sklearn.mixture import GaussianMixture as Mixture

        pixels = prompt.image.array[0].astype(np.float64)
        lowest = self.threshold
        if self.share > 0:
            lowest = max(lowest, self.share * float(np.quantile(pixels, 0.99)))
        foreground = pixels > lowest
        if self.smoothing > 0:
            pixels = gaussian_filter(pixels, self.smoothing)
        labels = np.zeros(pixels.shape, dtype=np.int32)
        values = pixels[foreground][:, None]
        wanted = sorted(prompt.labels)
        if len(np.unique(values)) <= len(wanted):
            return labels  # too few grey levels for a mixture: an empty field of view
        # The mixture adds 1e-6 to variances, which is all there is of intensities below 1e-3.
        values = values / values.std()
        draw = np.random.default_rng(self.seed).permutation(len(values))[: self.samples]
        mixture = Mixture(len(wanted) + 1, n_init=2, random_state=self.seed).fit(values[draw])
        by_component = np.empty(len(wanted) + 1, dtype=np.int32)
        by_component[np.argsort(mixture.means_[:, 0])] = [0, *wanted]
        labels[foreground] = by_component[mixture.predict(values)]
        return labels
