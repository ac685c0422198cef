"""Masks against masks: overlap, distances, boundaries, topology, instances, lesions.

- `scores`: whole segmentations, every label under every metric, in one call
- `overlap`, `surface_distance`, `boundary`, `topology`: metrics of one label
- `instances`, `lesions`: metrics of the objects a mask falls into, matched by `matching_rules`
- `probability_maps`: metrics of voxels' probabilities
- `empty_masks`: what counts where a label is on one side alone, or on none
- the rest: label maps, surfaces and distances, computed once for all metrics
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
