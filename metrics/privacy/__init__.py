"""Screens for copies and attacks on membership: how much of the training set a generator gives away.

Screens take features of training (n, d), hold-out (h, d) and generated (m, d) images and the keyword arguments of
`ScreenOptions`. They return a `SetValue` whose floor is the same measure of the hold-out images, real ones of other
patients that were not trained on: without them no distance means anything, so they are compulsory. They raise a
SetError where sets do not fit, as `prepare_membership_sets` says. A screen finds images that are too near to training
images in the features it looks at. It proves neither that nothing was memorised nor that a person can be found:
distances to the closest record do not follow the success of attacks (Yao et al. 2025). Attacks take scores and losses
that others computed.

Distances are exact: near copies are measured by differences in float64, never by products of matrices.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
