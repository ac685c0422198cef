"""A metric that is not ours."""

from medimg_eval.metrics import LabelPair, metric


@metric(kind="mask", title="Size ratio", higher_is_better=True, best=1.0, worst=0.0, source="acme")
def size_ratio(pair: LabelPair) -> float:
    """The smaller of both sizes over the larger."""
    sizes = sorted((pair.reference_size, pair.prediction_size))
    return sizes[0] / sizes[1]
