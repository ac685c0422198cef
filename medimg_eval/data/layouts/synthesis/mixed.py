"""Real and synthetic cases to train on, mixed by patients; validation and test cases are real."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from medimg_eval.case import Case
from medimg_eval.data.layouts.synthesis.generated import PROMPT
from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.tasks.base import Layout

Setting = Literal["real", "synthetic", "mixed", "augmented"]

SETTINGS: tuple[Setting, ...] = get_args(Setting)
"""What a model is trained on: real cases; synthetic ones in their place; half of each; all of both."""


@dataclass(kw_only=True)
class Blend:
    """A task's own cases, of which those to fit on are replaced by synthetic ones, or joined with them.

    A synthetic case that has the id of a real one is called by it with `-synthetic` behind.

    Patients are put in an order that `seed` alone decides, real and synthetic ones in the same, and the first of them
    are taken: a smaller fraction is a part of a larger one, and `real` and `synthetic` hold the same patients where the
    synthetic cases were made of prompts of the real ones.

    Args:
        real: the task's own layout.
        synthetic: of synthetic cases; needed by all settings but `real`.
        setting: `real`; `synthetic`; `mixed`, where the cases of every other patient are replaced by as many synthetic
            ones, of the same patients if there are any; or `augmented`, real and synthetic ones together.
        fraction: of the patients, above 0 and up to 1.
        seed: of the order.
        fit: the split that is meant; any other is the real layout's own.
        made: the split of the synthetic layout that is taken.
    """

    real: Layout
    synthetic: Layout | None = None
    setting: Setting = "real"
    fraction: float = 1.0
    seed: int = 0
    fit: str = "fit"
    made: str = "fit"

    def __post_init__(self) -> None:
        """Refuses settings that cannot be meant."""
        if self.setting not in SETTINGS:
            raise UsageError(f"there is no setting {self.setting!r}{nearest(str(self.setting), SETTINGS)}")
        if isinstance(self.fraction, bool) or not isinstance(self.fraction, int | float) or not 0 < self.fraction <= 1:
            raise UsageError(f"fraction: expected a number above 0 and up to 1, got {self.fraction!r}")
        if self.synthetic is None and self.setting != "real":
            raise UsageError(f"setting {self.setting!r} needs the layout of the synthetic cases, and none is given")

    def cases(self, split: str) -> list[Case]:
        """The cases of one split.

        Raises:
            UserError: there are no synthetic cases, or there is no such split.
        """
        if split != self.fit:
            return list(self.real.cases(split))
        real, made = self.parts()
        names = {case.id for case in real}
        renamed = (replace(case, id=f"{case.id}-synthetic") if case.id in names else case for case in made)
        return [*real, *renamed]

    def parts(self) -> tuple[list[Case], list[Case]]:
        """The real and the synthetic cases to fit on; raises UserError where there are no synthetic ones to take."""
        real = self._first(self.real.cases(self.fit)) if self.setting != "synthetic" else []
        if self.synthetic is None or self.setting == "real":
            return real, []
        made = self.synthetic.cases(self.made)
        if not made:
            raise UserError("there are no synthetic cases to train on")
        return self._mixed(real, made) if self.setting == "mixed" else (real, self._first(made))

    def split_source(self) -> Mapping[str, str]:
        """SHA-256 of each file that decides which real case belongs to which split, by its path."""
        found: Mapping[str, str] = getattr(self.real, "split_source", dict)()
        return found

    def _first(self, cases: Sequence[Case]) -> list[Case]:
        """The cases of the first patients."""
        order = self._order(cases)
        chosen = set(order[: max(1, round(self.fraction * len(order)))])
        return [case for case in cases if patient_of(case) in chosen]

    def _mixed(self, real: Sequence[Case], made: Sequence[Case]) -> tuple[list[Case], list[Case]]:
        """The real cases of every other patient, and for the others as many synthetic ones."""
        order = self._order(real)
        kept, replaced = set(order[::2]), set(order[1::2])
        left = [case for case in real if patient_of(case) in kept]

        def place(case: Case) -> tuple[bool, bool, bytes, bytes]:
            patient = patient_of(case)
            return patient not in replaced, patient in kept, self._drawn(patient), self._drawn(case.id)

        return left, sorted(made, key=place)[: len(real) - len(left)]

    def _order(self, cases: Sequence[Case]) -> list[str]:
        return sorted({patient_of(case) for case in cases}, key=self._drawn)

    def _drawn(self, name: str) -> bytes:
        return hashlib.blake2b(f"{self.seed}/{name}".encode(), digest_size=8).digest()


def patient_of(case: Case) -> str:
    """Who a case belongs to: its patient, or where none is known its prompt, or itself."""
    return case.patient if case.patient is not None else case.attributes.get(PROMPT, case.id)
