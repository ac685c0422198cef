"""BIDS: names made of entities, and what is derived beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from medimg_eval.data.layouts.base import texts
from medimg_eval.data.layouts.folders import MaskLayout
from medimg_eval.data.records import Entry, Row
from medimg_eval.data.tables import read_table
from medimg_eval.errors import MissingDataError, UserError


@dataclass(kw_only=True)
class Bids(MaskLayout):
    """A BIDS dataset: `sub-*/[ses-*/][anat/]sub-*_[entity-*_]suffix.nii.gz`, and label maps among its derivatives.

    A case is an image; its id is the name without the suffix, its patient the subject. What `participants.tsv` says of
    the subject becomes attributes.

    Args:
        suffix: the last part of the names, such as `T1w` or `ct`.
        entities: entity -> the value, or values, of the images that are meant, such as `{run: 1}`.
        mask: pattern of the label map below the root: `{folder}` is the image's folder below `raw` (such as
            `sub-01/ses-1/anat`), `{entities}` the case id, `{raw}` the folder of the raw data, `{sub}`, `{ses}`,
            ... a single value.
        raw: the folder that holds `sub-*`, or split -> such a folder.
        endings: of the images.
    """

    suffix: str
    entities: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    raw: str | Mapping[str, str] = "."
    endings: Sequence[str] = (".nii.gz", ".nii")

    def entries(self, root: Path) -> list[Entry]:
        """The images whose names fit, sorted."""
        folders = {None: self.raw} if isinstance(self.raw, str) else dict(self.raw)
        entries = []
        for split, raw in folders.items():
            if not (root / raw).is_dir():
                raise MissingDataError(f"{root / raw}: no such folder; set task.layout.raw to what holds sub-*")
            people = _read_participants(root / raw / "participants.tsv") or _read_participants(
                root / "participants.tsv"
            )
            for path in sorted((root / raw).glob("sub-*/**/*")):
                ending = next((ending for ending in self.endings if path.name.endswith(ending)), None)
                if ending is None or path.name.startswith("."):
                    continue
                name = path.name.removesuffix(ending)
                if name.rpartition("_")[2] == self.suffix:
                    entry = self._entry(root, raw, path, name)
                    subject = people.get(f"sub-{entry.row.text('sub')}", {})
                    if self._meant(entry.row):
                        entries.append(replace(entry, split=split, attributes=subject))
        return [self.with_patient(entry) for entry in entries]

    def _entry(self, root: Path, raw: str, path: Path, name: str) -> Entry:
        entities = parse_name(path, name)
        case = name.rpartition("_")[0]
        folder = path.parent.relative_to(root / raw).as_posix()
        row = Row(path, "", {**entities, "folder": folder, "entities": case, "raw": raw})
        return Entry(case, root, (row,), (self.image_file(path),), patient=f"sub-{entities['sub']}")

    def _meant(self, row: Row) -> bool:
        for entity, wanted in self.entities.items():
            values = [wanted] if isinstance(wanted, str | int) else wanted
            if _plain_index(row.values.get(entity, "")) not in {_plain_index(value) for value in values}:
                return False
        return True


def _plain_index(value: Any) -> str:
    """The same for `1` and `01`: BIDS lets indices have leading zeros."""
    text = str(value)
    return str(int(text)) if text.isdecimal() else text


def parse_name(path: Path, name: str) -> dict[str, str]:
    """Entities of a BIDS name in order: `sub-01_run-1_T1w`.

    Raises UserError where a part before the suffix is no `key-value`, or the first is no subject.
    """
    entities: dict[str, str] = {}
    for part in name.split("_")[:-1]:
        key, dash, value = part.partition("-")
        if not (dash and key and value) or key in entities:
            raise UserError(f"{path}: {part!r} is no BIDS entity of its own; expected key-value, such as run-1")
        entities[key] = value
    if next(iter(entities), "") != "sub":
        raise UserError(f"{path}: expected a name that starts with sub-")
    return entities


def _read_participants(path: Path) -> dict[str, dict[str, str]]:
    if not path.is_file():
        return {}
    people: dict[str, dict[str, str]] = {}
    for row in read_table(path):
        name = row.text("participant_id")
        if not name.startswith("sub-"):
            raise row.error(f"column 'participant_id' holds {name!r}, expected sub-...")
        # BIDS writes n/a for what is not known.
        fields = {key: "" if value == "n/a" else value for key, value in texts(row.values).items()}
        people[name] = {key: value for key, value in fields.items() if key != "participant_id"}
    return people
