"""The pictures of a finished synthesis run as cases, so that models can be tested on them, or trained on a mixture."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from medimg_eval.case import Case, Findings, Reference
from medimg_eval.codecs import Pictures
from medimg_eval.data.former_names import found_now
from medimg_eval.data.records import Entry, Given, Row, Target
from medimg_eval.data.stored import require_ours
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.imaging import ImageFile
from medimg_eval.question import Key, Question
from medimg_eval.tasks.base import Layout, split_source
from medimg_eval.tasks.synthesis import PRESENT
from medimg_eval.trust import place_in

log = logging.getLogger(__name__)

ABSENT = ("0", "0.0", "false", "no", "absent", "")
"""What an attribute says, in lower case, of a case that lacks the finding; any other word leaves it open."""

MANIFEST = "manifest.json"
PROMPT = "prompt"
"""The attribute that names the prompt of a picture."""


@dataclass(kw_only=True)
class Generated(Layout):
    """Pictures of a synthesis run as cases of their prompts' patients.

    The id is the prompt's with the picture's number, such as `case12-000`; attributes are the prompt's, and `prompt`,
    its id. All of them serve any split.

    What is right about a picture is said in one of these ways, and by default is the prompt's text:

    Args:
        run: the run folder.
        prompts: where the prompts lie; None finds them as the run did.
        target: as of any layout. A record has the prompt's attributes and `case`, `number`, `patient` and `text`, so
            that `{_target_: medimg_eval.data.targets.MaskTarget, path: "MASKS/{case}-{number}.png"}` names the masks
            that pictures were made of.
        classes: the attributes that are findings; one that is not stated is absent, an uncertain one is not judged.
        question: what a report is asked for with; the text is the report.
        root: the folder that file names of `target` are below; the run folder when empty.
        modality: DICOM code of the pictures; that of the prompts' images when empty.
        options: passed to the reader of the pictures.
    """

    run: str
    prompts: Layout | None = None
    target: Target | None = None
    classes: Sequence[str] = ()
    question: str = ""
    root: str = ""
    modality: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuses two ways of saying what is right."""
        if sum(map(bool, (self.target, self.classes, self.question))) > 1:
            raise UsageError("Generated: target, classes and question each say what is right; set one of them")

    def cases(self, split: str) -> list[Case]:
        """The pictures in the order of their prompts.

        Raises UserError where there is no such run, it is not finished, it made no pictures, or its prompts are gone.
        """
        folder = Path(self.run).expanduser()
        manifest = manifest_of(folder)
        prompts = {case.id: case for case in self._prompts(folder, manifest)}
        pictures = _pictures_by_prompt(folder)
        odd = next((name for name in pictures if name not in prompts), None)
        if odd is not None:
            raise UserError(
                f"{folder}: has pictures of the prompt {odd!r}, which is not among the {len(prompts)} prompts that are "
                "there; set `prompts` to the layout that the run had"
            )
        if len(pictures) < len(prompts):
            log.warning(
                "%s: %d of %d prompts have no pictures, and are left out",
                folder,
                len(prompts) - len(pictures),
                len(prompts),
            )
        names = dict.fromkeys(name for case in prompts.values() for name in case.attributes)
        return [
            self._case(folder, case, number, file, names)
            for case in prompts.values()
            for number, file in enumerate(pictures.get(case.id, ()))
        ]

    def _prompts(self, folder: Path, manifest: Mapping[str, Any]) -> Sequence[Case]:
        config = found_now(manifest.get("task_config") or {})
        split = (config.get("splits") or {}).get("test", "test")
        if self.prompts is not None:
            return self.prompts.cases(split)
        if "layout" not in config:
            raise UserError(f"{folder}: does not say where its prompts lie; set `prompts` to the layout that it had")
        from hydra.utils import instantiate

        require_ours(config["layout"], folder / MANIFEST)
        layout: Layout = instantiate(config["layout"], _convert_="all")
        return layout.cases(split)

    def _case(self, folder: Path, case: Case, number: int, file: Path, names: Mapping[str, None]) -> Case:
        modality = self.modality or str(getattr(case.images[0], "modality", "") if case.images else "")
        image = ImageFile(file, modality=modality, options=self.options)
        attributes = {**case.attributes, PROMPT: case.id}
        name = f"{case.id}-{number:03d}"
        question = Question(self.question, "report") if self.question else None
        return Case(
            name, (image,), self._truth(folder, case, name, number, image, names), case.patient, attributes, question
        )

    def _truth(
        self, folder: Path, case: Case, name: str, number: int, image: ImageFile, names: Mapping[str, None]
    ) -> Reference[Any]:
        files = case.target.files
        if self.classes:
            return Given(
                Findings({name: _stated_label(case.attributes.get(name, "")) for name in self.classes}), files, image
            )
        text = case.target.read()
        if self.target is None:
            return Given(Key(text.text) if self.question else text, files, image)
        fields = {"case": case.id, "number": f"{number:03d}", "patient": case.patient or "", "text": text.text}
        row = Row(
            files[0] if files else folder,
            f"prompt {case.id!r}",
            {**dict.fromkeys(names, ""), **case.attributes, **fields},
        )
        root = Path(self.root).expanduser() if self.root else folder
        return self.target.reference(
            Entry(name, root, (row,), (image,), patient=case.patient, attributes=case.attributes)
        )


def manifest_of(folder: Path) -> dict[str, Any]:
    """The manifest of a finished run that made pictures.

    Raises UserError where there is none, it cannot be read, the run is not finished, or it made something else.
    """
    file = folder / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: cannot be read ({error}); name the folder of a run that made pictures") from error
    if manifest.get("status") != "finished":
        raise UserError(f"{folder}: is not finished but {manifest.get('status')!r}; run its test again")
    return manifest


def stored_files(folder: Path) -> dict[str, Path]:
    """Case id -> its prediction's file in a run's folder."""
    stored: dict[str, Path] = {}
    for shard in sorted(folder.glob("predictions-*.jsonl")):
        for line in shard.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            if "file" in record:
                stored[record["case"]] = place_in(folder, record["file"])
    return stored


def _pictures_by_prompt(folder: Path) -> dict[str, list[Path]]:
    """Prompt -> picture files; UserError where none or missing."""
    pictures: dict[str, list[Path]] = {}
    for case, file in stored_files(folder).items():
        try:
            pictures[case] = list(Pictures().read(file).pictures)
        except CaseError as error:
            raise UserError(f"{error}, or name the folder of a run that made some") from error
    if not pictures:
        raise UserError(f"{folder}: holds no pictures; name the folder of a run that made some")
    return pictures


def _stated_label(word: str) -> float:
    word = word.strip().lower()
    return 1.0 if word in PRESENT else 0.0 if word in ABSENT else math.nan


Setting = Literal["real", "synthetic", "mixed", "augmented"]

SETTINGS: tuple[Setting, ...] = get_args(Setting)
"""What a model is trained on: real cases; synthetic ones in their place; half of each; all of both."""


@dataclass(kw_only=True)
class MixedDataset(Layout):
    """Task's cases, with fit cases replaced or joined by synthetic ones.

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
        """Refuses invalid settings."""
        UsageError.refuse_invalid("setting", SETTINGS, self.setting)
        if isinstance(self.fraction, bool) or not isinstance(self.fraction, int | float) or not 0 < self.fraction <= 1:
            raise UsageError(f"fraction: expected a number above 0 and up to 1, got {self.fraction!r}")
        if self.synthetic is None and self.setting != "real":
            raise UsageError(f"setting {self.setting!r} needs the layout of the synthetic cases, and none is given")

    def cases(self, split: str) -> list[Case]:
        """Cases of a split; UserError for unknown ones or without synthetic cases."""
        if split != self.fit:
            return list(self.real.cases(split))
        real, generated = self.parts()
        names = {case.id for case in real}
        renamed = (replace(case, id=f"{case.id}-synthetic") if case.id in names else case for case in generated)
        return [*real, *renamed]

    def parts(self) -> tuple[list[Case], list[Case]]:
        """Real and synthetic fit cases; UserError without synthetic ones."""
        real = self._first(self.real.cases(self.fit)) if self.setting != "synthetic" else []
        if self.synthetic is None or self.setting == "real":
            return real, []
        generated = self.synthetic.cases(self.made)
        if not generated:
            raise UserError("there are no synthetic cases to train on")
        return self._mixed(real, generated) if self.setting == "mixed" else (real, self._first(generated))

    def split_source(self) -> Mapping[str, str]:
        """Path -> SHA-256 of files defining real cases' splits."""
        return split_source(self.real)

    def _first(self, cases: Sequence[Case]) -> list[Case]:
        """The cases of the first patients."""
        order = self._order(cases)
        chosen = set(order[: max(1, round(self.fraction * len(order)))])
        return [case for case in cases if patient_of(case) in chosen]

    def _mixed(self, real: Sequence[Case], made: Sequence[Case]) -> tuple[list[Case], list[Case]]:
        """Real cases of alternate patients; synthetic ones replace the others."""
        order = self._order(real)
        kept_patients, replaced = set(order[::2]), set(order[1::2])
        remaining = [case for case in real if patient_of(case) in kept_patients]

        def place(case: Case) -> tuple[bool, bool, bytes, bytes]:
            patient = patient_of(case)
            return patient not in replaced, patient in kept_patients, self._drawn(patient), self._drawn(case.id)

        return remaining, sorted(made, key=place)[: len(real) - len(remaining)]

    def _order(self, cases: Sequence[Case]) -> list[str]:
        return sorted({patient_of(case) for case in cases}, key=self._drawn)

    def _drawn(self, name: str) -> bytes:
        return hashlib.blake2b(f"{self.seed}/{name}".encode(), digest_size=8).digest()


def patient_of(case: Case) -> str:
    """Group of a case: patient, else prompt, else itself."""
    return case.patient if case.patient is not None else case.attributes.get(PROMPT, case.id)
