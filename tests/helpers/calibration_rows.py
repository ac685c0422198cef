"""Rows of confidences and of probabilities of classes, and summaries of them."""

import numpy as np

from medimg_eval.metrics import ScoreTable, parse


def rows(sure, right, *, cases=None):
    """Rows of `confidence`."""
    sure, right = np.asarray(sure, float), np.asarray(right, bool)
    return ScoreTable(
        case=np.arange(sure.size),
        metric=np.full(sure.size, "confidence"),
        label=np.full(sure.size, "choice"),
        value=sure,
        status=np.where(right, "right", "wrong"),
        attributes={},
        cases=sure.size if cases is None else cases,
        facts={},
    )


def classes(truth, said, **facts):
    """Rows of `probability`: truth and said (case, class)."""
    truth, said = np.asarray(truth, float), np.asarray(said, float)
    return ScoreTable(
        case=np.repeat(np.arange(len(truth)), truth.shape[1]),
        metric=np.full(truth.size, "probability"),
        label=np.tile([f"c{place}" for place in range(truth.shape[1])], len(truth)),
        value=said.ravel(),
        status=np.where(truth.ravel() == 1, "present", "absent"),
        attributes={},
        cases=len(truth),
        facts=facts,
    )


def value(name, given_rows):
    found, parameter = parse(name)
    return found.function(given_rows, *(() if parameter is None else (parameter,)))


def made(number=300, seed=0, digits=2):
    rng = np.random.default_rng(seed)
    sure = np.round(rng.beta(4, 2, number), digits)
    return sure, rng.random(number) < 0.2 + 0.7 * sure
