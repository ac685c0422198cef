"""Scores to statistics, comparisons, ranking, tables and figures.

`runs` reads run folders, `statistics` is arithmetic on values; `table`, `comparison`, `ranking`, `fairness`, `items`,
`agreement` and `utility` each answer one question; `figures`, `report` and `cards` are what is shown of it.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
