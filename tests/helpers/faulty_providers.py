"""Providers of every kind whose own method goes wrong as a test says, and the stage that asks them.

Each is shown cases, by whatever it is shown of them, and says how many letters the name of each has.
"""

import os
import signal
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np

from medimg_eval.case import Image, Prompt
from medimg_eval.evaluation.observe import Source, gather_evidence
from medimg_eval.evaluation.run import Run
from medimg_eval.evidence import Subject, TextPair
from medimg_eval.metrics.registry import Requirement
from medimg_eval.models.annotators import PairAnnotator, TextAnnotator
from medimg_eval.models.extractors import FeatureExtractor
from medimg_eval.models.extractors.perceptual import PerceptualDistance
from medimg_eval.models.providers import Judge

NAMES = [f"c{number:02d}" for number in range(32)]
BATCH = 4


class Said:
    """What any of them says; `fault` takes names, and raises, or returns something else, or None for what is right.

    Attributes:
        asked: names, in the order in which they were shown, again where a batch was shown again in parts.
    """

    def __init__(self, fault):
        self.fault, self.asked = fault, []

    def __call__(self, names):
        self.asked += names
        told = self.fault(names)
        return [len(name) for name in names] if told is None else told


class Reader(TextAnnotator):
    def __init__(self, said):
        self.said = said

    def annotate(self, texts):
        return self.said(list(texts))


class Comparer(PairAnnotator):
    def __init__(self, said):
        self.said = said

    def compare(self, pairs, corpus):
        return self.said([pair.prediction for pair in pairs])


class Extractor(FeatureExtractor):
    preprocessing = "the length of a name"

    def __init__(self, said):
        self.said = said

    def embed(self, pictures):
        raise NotImplementedError

    def embed_images(self, images):
        told = self.said([image.attributes["name"] for image in images])
        return told if isinstance(told, str) else np.array(told, np.float32)[:, None]


class Network(PerceptualDistance):
    load = between = None

    def __init__(self, said):
        self.said = said

    def distances(self, pairs):
        return self.said([NAMES[int(pairs[0, 0, 0, 0])]])


class Writer:
    """A model that writes, which serves as a judge."""

    def __init__(self, said):
        self.said = said

    def generate(self, prompts, decoding):
        told = self.said([prompt.case_id for prompt in prompts])
        return told if isinstance(told, str) else [None if one is None else str(one) for one in told]


def picture(name):
    image = Image(np.zeros((1, 2, 2), np.uint8), np.eye(4), units="pixel", attributes={"name": name})
    return SimpleNamespace(read=lambda: image)


KINDS = {
    "verdict": (lambda said: Judge(Writer(said)), lambda name: (Prompt(name, ()), 8), "3"),
    "annotation": (Reader, lambda name: name, 3),
    "comparison": (Comparer, lambda name: TextPair("right", name), 3),
    "features": (Extractor, picture, [3.0]),
    "distance": (Network, lambda name: np.full((1, 2, 16, 16), NAMES.index(name)), [3]),
}
"""Of what is said -> what makes the provider, what it is shown of a case, and what it says of one."""


def gather(folder, kind, said, batch=BATCH):
    """Evidence on all cases, in the run of a folder."""
    make, shown, _ = KINDS[kind]
    provider = make(said)
    provider.preferred_batch = batch
    source = Source("who", kind, f"who-{kind}", "v1", lambda: nullcontext(provider))
    subjects = [Subject(name, f"key-{name}", lambda name=name: shown(name)) for name in NAMES]
    task = SimpleNamespace(requirements=lambda: (Requirement(kind, "who"),), subjects=lambda *_: subjects)
    with Run(folder, "x") as run:
        return gather_evidence(task, run, [], {"who": source})


def sound(names):
    return None


def is_killed(names):
    if "c16" in names:
        os.kill(os.getpid(), signal.SIGKILL)


def kill_each(folder):
    """For each kind, a process that is killed while it is shown the cases from `c16` on; returns their exit codes."""
    codes = {}
    for kind in KINDS:
        child = os.fork()
        if child == 0:
            gather(folder / kind, kind, Said(is_killed))
            os._exit(0)
        codes[kind] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return codes
