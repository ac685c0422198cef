"""Answers taken from what a model wrote: the option, number, box, yes or no it means.

`extraction` is the way in, `choice` and `yes_no` are its cascades of rules; `published` holds the rules of benchmarks'
own code, and `reply` is what the metrics of answers are given.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
