"""Chest X-ray phantoms as prompts, and a procedural generator that answers them and copies some of its training."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from medimg_eval.case import Array, Case, Image, Prompt, Prompts, Text
from medimg_eval.data.records import Given
from medimg_eval.errors import UsageError, UserError
from medimg_eval.imaging.pictures import as_picture
from medimg_eval.models.base import Synthesizer
from medimg_eval.phantoms.chest_reports import ChestReports, picture
from medimg_eval.phantoms.cohort import REPORTS, Member, Phantom
from medimg_eval.phantoms.report import NOUNS

LESION = 4
"""The label of a lesion in the phantoms of heads."""

WORDS: Mapping[str, Sequence[str]] = {
    **NOUNS,
    "nodule": ("nodule", "mass"),
    "pleural effusion": ("effusion",),
    "edema": ("edema",),
    "consolidation": ("consolidation",),
    "cardiomegaly": ("cardiomegaly",),
    "pacemaker": ("pacemaker",),
    "endotracheal tube": ("endotracheal tube",),
}
"""Finding -> words of a prompt that ask for it."""


@dataclass
class ChestPrompts:
    """Chest X-ray phantoms prompted by impressions, with images and findings.

    `root` holds `chest_reports` (None keeps it in the cache), written on first use; `count` is that of cases over all
    splits.
    """

    root: str | None = None
    count: int = 400
    seed: int = 0

    def cases(self, split: str) -> list[Case]:
        """Cases of `fit`, `validate` or `test`, disjoint by patient."""
        layout = ChestReports(root=self.root, count=self.count, seed=self.seed, text="impression")
        cases = []
        for case, _, row in layout.with_findings(split):
            target = Given(Text(str(case.target.read().value)), case.target.files)
            findings = {name: value for name, value in row.items() if name != "case"}
            cases.append(Case(case.id, case.images, target, case.patient, {**case.attributes, **findings}))
        return cases


@dataclass
class HeadPrompts:
    """MR head phantoms prompted by lesion presence, with volumes.

    `root` holds the phantoms `mr` (None keeps them in the cache), written on first use; `count` is over all splits.
    """

    root: str | None = None
    count: int = 16
    seed: int = 0

    def cases(self, split: str) -> list[Case]:
        """Cases of `fit`, `validate` or `test`, disjoint by patient."""
        heads = Phantom("mr", root=self.root, count=self.count, seed=self.seed).cases(split)
        return [replace(case, target=Given(Text(_head_prompt(case)), case.target.files)) for case in heads]


def _head_prompt(case: Case) -> str:
    lesion = bool((case.target.read().labels == LESION).any())
    return "A T1-weighted MRI of a head with a lesion." if lesion else "A T1-weighted MRI of a head."


class PhantomGenerator(Synthesizer):
    """Generator of phantom chest X-rays, some copied on purpose.

    It is no model of anything: with it a task of synthesis runs from end to end, and screens for copies have something
    to find.

    Args:
        copies: part of the prompts that are answered with a training image, changed by noise alone.
        noise: standard deviation of that noise, in grey levels.
        tries: chests that are drawn for a picture, of which the one whose findings fit the prompt best is kept.
        blur: how blurred other pictures are, in pixels: what makes them worse than real ones.
        root: of the training phantoms, as `count` and `seed`; see `ChestPrompts`.
    """

    reads_images: ClassVar[bool] = False
    file_arguments: ClassVar[tuple[str, ...]] = ()
    preferred_batch = 8

    def __init__(
        self,
        copies: float = 0.1,
        noise: float = 1.0,
        tries: int = 4,
        blur: float = 0.6,
        root: str | None = None,
        count: int = 400,
        seed: int = 0,
    ) -> None:
        if not 0 <= copies <= 1 or noise < 0 or tries < 1 or blur < 0:
            raise UsageError(
                f"expected model.copies from 0 to 1, noise and blur from 0 on and tries from 1 on, got {copies}, "
                f"{noise}, {blur} and {tries}"
            )
        self.copies, self.noise, self.tries, self.blur = copies, noise, tries, blur
        self.layout = ChestPrompts(root, count, seed)

    @cached_property
    def training(self) -> list[Case]:
        """Cases that it was "trained" on: the phantoms to fit on."""
        cases = self.layout.cases("fit")
        if not cases:
            raise UserError(f"model.count={self.layout.count} phantoms are too few: none is there to fit on")
        return cases

    def copied(self, case: str) -> Case | None:
        """Training case copied for a prompt; None where none is."""
        number = int.from_bytes(hashlib.blake2b(case.encode(), digest_size=8).digest(), "big")
        if number % 10_000 >= self.copies * 10_000:
            return None
        return self.training[number // 10_000 % len(self.training)]

    def synthesize(self, prompts: Prompts, seeds: Sequence[Sequence[int]]) -> Sequence[Sequence[Array]]:
        """Returns uint8 pictures, (1, row, column)."""
        return [[self._picture(prompt, seed) for seed in some] for prompt, some in zip(prompts, seeds, strict=True)]

    def _picture(self, prompt: Prompt, seed: int) -> Array:
        from scipy.ndimage import gaussian_filter

        rng = np.random.default_rng(seed)
        copied = self.copied(prompt.case_id)
        if copied is not None:
            grey = _as_grey(copied.images[0].read())
            grey = grey + rng.normal(0, self.noise, grey.shape)
        else:
            grey = gaussian_filter(_as_grey(self._drawn(prompt.text, seed)), self.blur)
        picture: Array = np.rint(np.clip(grey, 0, 255)).astype(np.uint8)[None]
        return picture

    def _drawn(self, text: str, seed: int) -> Image:
        words = text.lower()
        wanted = {name for name, words_ in WORDS.items() if any(word in words for word in words_)}
        best: tuple[int, Image] | None = None
        for number in range(self.tries):
            # Every fifth is healthy, as in the cohort itself.
            patient = 4 if not wanted else 0
            drawn = picture(Member(REPORTS, number, REPORTS, patient, "fit", seed))
            mismatches = len(wanted ^ {finding.name for finding in drawn.found})
            if best is None or mismatches < best[0]:
                best = mismatches, drawn.image
            if not mismatches:
                break
        return best[1]  # type: ignore[index]


def _as_grey(image: Image) -> Array:
    return np.asarray(as_picture(image).convert("L"), np.float64)
