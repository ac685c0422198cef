"""Shows pictures to an extractor as a run does, without one."""

from contextlib import nullcontext

import numpy as np

from medimg_eval.case import Case
from medimg_eval.evaluation.observe import Source, gather_evidence
from medimg_eval.metrics.registry import Requirement
from medimg_eval.tasks.synthesis_sets import Picture, Shown, subjects_of


class _Run:
    """Keeps the lines of evidence."""

    def __init__(self):
        self.lines = []

    def predictions(self):
        return {}

    def evidence(self):
        return iter(self.lines)

    def append_evidence(self, lines):
        self.lines += lines


class _Task:
    """Shows pictures and nothing else."""

    def __init__(self, references, optional):
        self.shown = [
            Shown(f"set/{name}", Case(name, (), None), Picture(name, reference, optional))
            for name, reference in references.items()
        ]

    def requirements(self):
        return (Requirement("features", "it"),)

    def subjects(self, need, cases, predictions, evidence):
        return subjects_of(self.shown, need.provider, evidence)


def observed(extractor, identity, references, *, optional=False):
    """By name, what an extractor says of pictures, as `Observation`.

    Args:
        extractor: that is shown them.
        identity: under which its features are kept.
        references: by name, files or what reads them.
        optional: whether one that cannot be read is left out.
    """
    source = Source(
        "it", "features", identity, extractor.revision, lambda: nullcontext(extractor), cached=extractor.cached
    )
    evidence = gather_evidence(_Task(references, optional), _Run(), [], {"it": source})
    return {name: evidence.find("it", f"set/{name}") for name in references}


def rows(found):
    """The features of what was seen, (picture, feature)."""
    return np.stack([one.value for one in found.values() if one.status == "known"])
