"""Declarations that many metrics share, whose further arguments are those of `metric` and `summary`."""

import math
from functools import partial

from medimg_eval.metrics.registry import metric, summary

neutral_metric = partial(metric, higher_is_better=None, best=math.nan, worst=math.nan)
"""Declares a value of a case that is neither better nor worse."""

evidence_metric = partial(neutral_metric, source="this package", intermediate=True)
"""Declares values of cases that are only there for summaries."""

share_metric = partial(metric, higher_is_better=True, best=1.0, worst=0.0)
"""Declares a value of a case from 0, the worst, to 1."""

error_metric = partial(metric, higher_is_better=False, best=0.0)
"""Declares a value of a case whose best is 0."""

answer_share = partial(share_metric, kind="answer")
"""Declares a value of an answer from 0, the worst, to 1."""

share_summary = partial(summary, higher_is_better=True, best=1.0)
"""Declares a summary whose best value is 1."""

error_summary = partial(summary, higher_is_better=False, best=0.0)
"""Declares a summary whose best value is 0."""
