"""Whole suites: their signal over checkpoints, a few tasks for all, answers not asked for, dates, seals.

`signal` for checkpoints, `subsets` for choosing tasks, `rasch` for completing tables of answers, `windows` for dates of
release, `gains` for what one model gains over another by kind of task, `seals` for predictions that were made before
the truth was known.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
