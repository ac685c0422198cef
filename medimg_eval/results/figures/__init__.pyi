from .bland_altman_plot import bland_altman as bland_altman
from .control_chart_plot import control_chart_figure as control_chart_figure
from .curves import froc as froc, pr as pr, risk_coverage as risk_coverage, roc as roc
from .data_fraction_plot import data_fraction as data_fraction
from .distributions import box as box, strip as strip, violin as violin
from .figure import Drawn as Drawn, Figures as Figures, svg as svg, write_figure as write_figure
from .forest_plot import forest as forest
from .inputs import by_task as by_task
from .kaplan_meier_plot import kaplan_meier as kaplan_meier
from .kinds import KINDS as KINDS, figures_of as figures_of
from .budget_plot import budget as budget, share_within as share_within
from .learning_curve_plot import learning_curve as learning_curve
from .forest_plot import radar as radar
from .ranks import critical_difference as critical_difference, rank_stability as rank_stability
from .reliability_diagram import reliability as reliability
from .severity_plot import severity as severity
from .significance_matrix import significance_map as significance_map
from .style import (
    Width as Width,
    canvas as canvas,
    drawable as drawable,
    millimetres as millimetres,
    styled as styled,
    wrapped as wrapped,
)
