"""A regressor that never looks: the mean of each output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from medimg_eval.case import Prompts
from medimg_eval.models.base import Regressor
from medimg_eval.models.baselines.class_frequency import MeansOfFit


class MeanOfFit(MeansOfFit, Regressor):
    """Baseline without images: mean of each output, R² about 0.

    Its predictions are constant, so their correlation with anything counts 0.
    """

    nothing_known = "mean_of_fit: none of the cases has a number"
    not_known = "has output"

    def regress(self, prompts: Prompts) -> Sequence[Mapping[str, float]]:
        """Returns the means for all; CaseError for an unknown output."""
        return [self.asked_means(prompt) for prompt in prompts]
