"""RaTEScore's weights: how much a match counts, by the types of the two entities.

The authors searched them on human ratings, once for sentences and once for whole reports (affinity_matrix of
MAGIC-AI4Med/RaTEScore, commit a970406). They are not symmetric, and a match of equal types may weigh nearly nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

TYPES = ("abnormality", "non-abnormality", "disease", "non-disease", "anatomy")
"""What an entity is: a finding that is there or is denied, a diagnosis that is there or is denied, or a place."""


class Affinity(NamedTuple):
    """One table.

    Attributes:
        weights: float64, (type, type): of an entity and of what it is matched with, in the order of `TYPES`.
        opposed: what the similarity is multiplied with where one says what the other denies.
    """

    weights: npt.NDArray[np.float64]
    opposed: float


AFFINITY: Mapping[str, Affinity] = MappingProxyType(
    {
        "long": Affinity(
            np.array(
                [
                    [
                        0.4276119164393705,
                        0.5431049700217344,
                        0.0034478181112993847,
                        0.27005425386213877,
                        0.6240929990607657,
                    ],
                    [
                        0.16546764653692908,
                        0.0009357166071730684,
                        0.719397354576018,
                        0.0927333564267591,
                        0.018670610691852826,
                    ],
                    [
                        0.8396510075734789,
                        0.9820689020512646,
                        0.8460555030578727,
                        0.3789136708096537,
                        0.9950209388542061,
                    ],
                    [
                        0.7759420231214385,
                        0.03860183811876373,
                        0.10073046076318157,
                        0.34065681486566446,
                        0.1839139293714062,
                    ],
                    [
                        0.7487824274337533,
                        0.02097055139911715,
                        0.4592143222158069,
                        0.00013736314126696204,
                        0.2856134859160784,
                    ],
                ]
            ),
            0.8716553966489615,
        ),
        "short": Affinity(
            np.array(
                [
                    [
                        0.4070293318365468,
                        0.9479148658006686,
                        0.28342529466226446,
                        0.23875064111146294,
                        0.6952639610605605,
                    ],
                    [
                        0.1712744286898638,
                        0.0007887930317199857,
                        0.00045065329822896076,
                        0.8555432840895761,
                        0.4485149671497294,
                    ],
                    [
                        0.8840397619834857,
                        0.6962283914800402,
                        0.19018958438059513,
                        0.943727057946997,
                        0.9637659445696822,
                    ],
                    [
                        0.9555801066212176,
                        0.05650711141169969,
                        0.6072996585919443,
                        0.3214769399791204,
                        0.13122106162635216,
                    ],
                    [
                        0.5829759950441763,
                        0.794672584951181,
                        0.0006059634829551632,
                        0.27982942400798977,
                        0.7709590751917746,
                    ],
                ]
            ),
            0.3611577852354489,
        ),
    }
)
"""By name: `long`, for reports, which is the authors' default, and `short`, for sentences."""
