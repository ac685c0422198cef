"""What a judge, another model, says of answers and reports, turned into numbers.

What a judge is asked stands in `configs/judging`, its replies are kept word for word, and every number follows from
what its replies were read as by arithmetic that is public here. A reply that cannot be read is no verdict: the metric
is NaN there, the report is left out of the mean, and how many there were is printed. Where the authors of a metric
count such replies as the worst, that number has a name of its own, `..._as_published`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
