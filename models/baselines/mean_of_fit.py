"""A regressor that never looks: the mean of each output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from medimg_eval.case import Prompts
from medimg_eval.models.base import Regressor
from medimg_eval.models.baselines.class_frequency import MeansOfFit


class MeanOfFit(MeansOfFit, Regressor):
    """Says of every case the mean of each output over those to `fit` on: a baseline whose R² is about 0.

    Its predictions are constant, so their correlation with anything counts 0.
    """

    nothing_known = "mean_of_fit: none of the cases has a number"
    not_known = "has output"

    def regress(self, prompts: Prompts) -> Sequence[Mapping[str, float]]:
        """Returns the same for all; raises CaseError where nothing is known of an output."""
        return [self.asked_means(prompt) for prompt in prompts]
