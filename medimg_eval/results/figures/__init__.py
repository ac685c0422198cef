"""Figures of Score rows, with the numbers they show; nothing here is drawn on a screen."""

from medimg_eval.results.figures.agreement import bland_altman
from medimg_eval.results.figures.calibration import reliability
from medimg_eval.results.figures.curves import froc, pr, risk_coverage, roc
from medimg_eval.results.figures.distributions import box, strip, violin
from medimg_eval.results.figures.drawn import Drawn, svg, write_figure
from medimg_eval.results.figures.forests import forest
from medimg_eval.results.figures.given import by_task
from medimg_eval.results.figures.maps import significance_map
from medimg_eval.results.figures.radars import radar
from medimg_eval.results.figures.ranks import critical_difference, rank_stability

__all__ = [
    "Drawn",
    "bland_altman",
    "box",
    "by_task",
    "critical_difference",
    "forest",
    "froc",
    "pr",
    "radar",
    "rank_stability",
    "reliability",
    "risk_coverage",
    "roc",
    "significance_map",
    "strip",
    "svg",
    "violin",
    "write_figure",
]
