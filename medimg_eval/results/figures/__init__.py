"""Figures of Score rows, with the numbers they show; nothing here is drawn on a screen."""

from medimg_eval.results.figures.bland_altman_plot import bland_altman
from medimg_eval.results.figures.curves import froc, pr, risk_coverage, roc
from medimg_eval.results.figures.distributions import box, strip, violin
from medimg_eval.results.figures.figure import Drawn, svg, write_figure
from medimg_eval.results.figures.forest_plot import forest
from medimg_eval.results.figures.inputs import by_task
from medimg_eval.results.figures.radar_chart import radar
from medimg_eval.results.figures.ranks import critical_difference, rank_stability
from medimg_eval.results.figures.reliability_diagram import reliability
from medimg_eval.results.figures.significance_matrix import significance_map

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
