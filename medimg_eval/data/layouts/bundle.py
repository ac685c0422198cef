"""Arrays: all samples in one file, or one file a sample."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array, Case, Mask, Reference
from medimg_eval.data.layouts.base import FolderLayout
from medimg_eval.data.layouts.folders import find
from medimg_eval.data.records import Entry, Row, Target
from medimg_eval.data.targets import ClassColumns, ClassName
from medimg_eval.data.targets.masks import RecodedMask
from medimg_eval.errors import MissingDataError, UsageError, UserError, nearest
from medimg_eval.imaging import MaskFile
from medimg_eval.imaging.arrays import Bundle

SWEPT, CLEAN, SEVERITY = "swept", "clean", "_severity_"
"""The split of all files of a corrupted set, that of its clean pictures, and what parts the names of the others."""


@dataclass(kw_only=True)
class Arrays(FolderLayout):
    """Arrays of images and labels per split, as MedMNIST and MedSegBench.

    Args:
        file: the .npz or HDF5 below the root; or a pattern that holds `{split}`, of a file for each split.
        labels_file: the same of the labels, where they lie in a file of their own, as PCam's do.
        images: key of the images, which holds `{split}` where the name of the file does not.
        labels: key of the labels, such as `{split}_labels`, or `{split}_label` of MedSegBench.
        classes: the classes in the order of their numbers; a label is one number, or one 0 or 1 for each class. Masks
            when empty.
        values: of masks: what a pixel holds -> label.
        axes: of one image, where the reader cannot tell: see `medimg_eval.imaging.arrays.read`. A mask has the same but
            for the channel.
        cache: a folder that compressed arrays are unpacked into, once; without it each image costs the whole array.
    """

    file: str
    labels_file: str = ""
    images: str = "{split}_images"
    labels: str = "{split}_labels"
    classes: Sequence[str] = ()
    values: Mapping[int, int] = field(default_factory=dict)
    axes: str = ""
    cache: str = ""

    def entries(self, root: Path) -> list[Entry]:
        """Samples of each split that a file holds, in order."""
        if "{split}" in self.file:
            bundles = [(fields["split"], Bundle(path)) for path, fields in find(root, self.file)]
            if not bundles:
                raise MissingDataError(f"{root / self.file}: there is no such file")
            return [entry for split, bundle in bundles for entry in self._split(root, bundle, split)]
        if "{split}" not in self.images or "{split}" not in self.labels:
            raise UsageError(f"expected {{split}} in the keys {self.images!r} and {self.labels!r}")
        path = root / self.file
        bundle = Bundle(path)
        key = re.compile("(.+)".join(re.escape(part) for part in self.images.split("{split}")))
        splits = [match[1] for name in bundle.headers if (match := key.fullmatch(name))]
        if not splits:
            raise UserError(f"{path}: holds no array {self.images!r}{nearest(self.images, bundle.headers)}")
        return [entry for split in splits for entry in self._split(root, bundle, split)]

    def split_files(self, root: Path) -> tuple[Path, ...]:
        """The files."""
        if "{split}" in self.file:
            return tuple(path for path, _ in find(root, self.file))
        return (root / self.file,)

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """Findings of the classes, or masks."""
        if not self.classes:
            return _ArrayMask(self.values)
        if "label" in entries[0].row.values:
            return ClassName("label", {str(number): name for number, name in enumerate(self.classes)})
        return ClassColumns(list(self.classes), words={"1": "present", "0": "absent"})

    def _split(self, root: Path, bundle: Bundle, split: str) -> list[Entry]:
        images, labels = (pattern.replace("{split}", split) for pattern in (self.images, self.labels))
        label_bundle = Bundle(root / self.labels_file.replace("{split}", split)) if self.labels_file else bundle
        count, labelled = bundle.header(images).shape[0], label_bundle.header(labels).shape[0]
        if count != labelled:
            raise UserError(f"{bundle.path}: {images} holds {count} images, {labels} {labelled} labels")
        attributes = self._said(label_bundle, labels) if self.classes else None
        axes = _mask_axes(self.axes, len(label_bundle.header(labels).shape) - 1)
        options: dict[str, Any] = {name: value for name, value in (("axes", self.axes), ("cache", self.cache)) if value}
        entries = []
        for index in range(count):
            fields = {"split": split, "index": index, "labels": labels, "cache": self.cache, "axes": axes}
            row = Row(
                label_bundle.path, f"{labels}[{index}]", fields if attributes is None else fields | attributes[index]
            )
            image = self.image_file(bundle.path, key=images, index=index, **options)
            entries.append(self.with_patient(Entry(f"{split}-{index:06d}", root, (row,), (image,), split)))
        return entries

    def _said(self, bundle: Bundle, key: str) -> list[dict[str, Any]]:
        labels = bundle.array(key)
        labels = labels.reshape(len(labels), -1)
        if labels.shape[1] == 1:
            return [{"label": str(value)} for value in labels[:, 0].tolist()]
        if labels.shape[1] != len(self.classes):
            raise UserError(
                f"{bundle.path}: {key} holds {labels.shape[1]} labels a sample for {len(self.classes)} classes"
            )
        return [dict(zip(self.classes, map(str, values), strict=True)) for values in labels.tolist()]


@dataclass(kw_only=True)
class CorruptedArrays(Arrays):
    """Pictures clean and corrupted, one file per corruption and severity.

    `file` holds `{split}`: `clean`, or `fog_severity_3`. A split is one such file, or `swept` for all there are, whose
    cases have the attributes `corruption` and `severity` (0 of clean ones). A picture is the same patient in all files.

    Args:
        corruptions: those of `swept`, whose files must all be there; any that is found when empty.
        others: as of `Arrays`.
    """

    corruptions: Sequence[str] = ()
    allow_overlap: str = "each file holds the same pictures"

    def entries(self, root: Path) -> list[Entry]:
        """The samples of each file, in its order."""
        entries = []
        for entry in super().entries(root):
            corruption, _, severity = (entry.split or "").rpartition(SEVERITY)
            fields = {"corruption": corruption or str(entry.split), "severity": severity if corruption else "0"}
            entries.append(
                replace(entry, attributes={**entry.attributes, **fields}, patient=entry.id.rpartition("-")[2])
            )
        return entries

    def cases(self, split: str) -> list[Case]:
        """Cases of one file or all; raises also for missing files."""
        if split != SWEPT or self.folds:
            return super().cases(split)
        root = self.folder()
        held = {fields["split"] for _, fields in find(root, self.file)}
        wanted = {CLEAN, *(f"{name}{SEVERITY}{number}" for name in self.corruptions for number in range(1, 6))}
        chosen = wanted if self.corruptions else held
        if lacking := sorted(chosen - held):
            raise MissingDataError(
                f"{root / self.file}: there is no file of {lacking[0]!r}; complete the folder, or name what is "
                "there by task.layout.corruptions"
            )
        return replace(self, folds={SWEPT: sorted(chosen)}).cases(SWEPT)


@dataclass
class _ArrayMask:
    """One item of the array of masks."""

    values: Mapping[int, int]

    def reference(self, entry: Entry) -> Reference[Mask]:
        fields = entry.row.values
        options = {name: fields[name] for name in ("cache", "axes") if fields[name]}
        return _recode_mask(
            MaskFile(entry.row.path, {"key": fields["labels"], "index": fields["index"], **options}), self.values
        )


@dataclass(kw_only=True)
class ArrayFiles(FolderLayout):
    """One .npz or HDF5 file per sample: image, mask and patient facts.

    Args:
        file: pattern of the files below the root, holding `{case}`.
        image: key of the image, or the spellings it has, of which a file holds one.
        mask: the same of the mask.
        values: what a pixel of the mask holds -> label.
        about: keys that become attributes.
        axes: of the image, where the reader cannot tell; the mask has the same but for the channel.
        allow_pickle: whether arrays of Python objects are read; pickles can run code.
        others: see `FolderLayout`; the patient is the case unless `patient` says otherwise.
    """

    file: str
    image: str | Sequence[str]
    mask: str | Sequence[str] = ()
    values: Mapping[int, int] = field(default_factory=dict)
    about: Sequence[str] = ()
    axes: str = ""
    allow_pickle: bool = False

    def entries(self, root: Path) -> list[Entry]:
        """The files that fit the pattern, sorted."""
        entries = []
        for path, fields in find(root, self.file):
            row = Row(path, "", {"name": path.name, "stem": path.stem, **fields})
            entry = Entry(fields["case"], root, (row,), split=fields.get("split"), patient=fields["case"])
            entries.append(self.with_patient(entry))
        if not entries:
            raise MissingDataError(f"{root / self.file}: there is no such file")
        return entries

    def completed(self, entry: Entry) -> Entry:
        """Reads the file's field names and patient facts."""
        bundle = Bundle(entry.row.path, allow_pickle=self.allow_pickle)
        options = {"axes": self.axes} if self.axes else {}
        image = self.image_file(bundle.path, key=_held_key(bundle, self.image), **options)
        keys_found = {"mask": _held_key(bundle, self.mask)} if self.mask else {}
        if self.mask and self.axes:
            keys_found["axes"] = _mask_axes(self.axes, len(bundle.header(keys_found["mask"]).shape))
        row = Row(bundle.path, "", {**entry.row.values, **keys_found})
        return replace(entry, rows=(row,), images=(image,), attributes=self.attributes_of(bundle))

    def attributes_of(self, bundle: Bundle) -> dict[str, str]:
        """Attributes of the patient in a file."""
        return {key: _scalar_text(bundle.array(key)) for key in self.about if key in bundle.headers}

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """The mask."""
        return _KeyedMask(self.values) if self.mask else super().truth(root, entries)


@dataclass
class _KeyedMask:
    """The mask in the sample's own file."""

    values: Mapping[int, int]

    def reference(self, entry: Entry) -> Reference[Mask]:
        axes = entry.row.values.get("axes")
        mask = MaskFile(entry.row.path, {"key": entry.row.text("mask")} | ({"axes": axes} if axes else {}))
        return _recode_mask(mask, self.values)


def _recode_mask(mask: MaskFile, values: Mapping[int, int]) -> Reference[Mask]:
    labels = {int(value): int(label) for value, label in values.items()}
    return RecodedMask(mask, labels) if labels else mask


@dataclass(kw_only=True)
class FairSeg(ArrayFiles):
    """FairSeg: .npz per patient with SLO fundus, rim, cup and demographics.

    The mask has 1 for the rim, 2 for the cup.

    The data come in two spellings. The README's has `slo_fundus`, `disc_cup_mask`, races 0, 1, 2; the code's has
    `fundus_slo`, `disc_cup`, races 2, 3, 7 for the same, and ages in days, which become years. -1 is not known.
    `allow_pickle` is for files whose demographics are stored as Python objects.
    """

    file: str = "data/{case}.npz"
    image: str | Sequence[str] = ("slo_fundus", "fundus_slo")
    mask: str | Sequence[str] = ("disc_cup_mask", "disc_cup")
    values: Mapping[int, int] = field(default_factory=lambda: {-1: 1, -2: 2})
    about: Sequence[str] = ("age", "gender", "race", "ethnicity", "language", "maritalstatus")

    def attributes_of(self, bundle: Bundle) -> dict[str, str]:
        """Demographics; empty where not known."""
        attributes = super().attributes_of(bundle)
        if "fundus_slo" in bundle.headers:
            codes = {"2": "0", "3": "1", "7": "2", "-1": "-1"}
            if attributes.get("race", "-1") not in codes:
                raise UserError(
                    f"{bundle.path}: race is {attributes['race']!r}, expected 2, 3 or 7 beside 'fundus_slo'"
                )
            attributes["race"] = codes[attributes.get("race", "-1")]
            if float(attributes.get("age", -1)) >= 0:
                attributes["age"] = f"{float(attributes['age']) / 365.25:.1f}"
        return {key: "" if value in ("-1", "-1.0") else value for key, value in attributes.items()}


def _mask_axes(axes: str, count: int) -> str:
    """Mask axes equal to the image's, else guessed."""
    return next((candidate for candidate in (axes, axes.replace("c", "")) if len(candidate) == count), "")


def _held_key(bundle: Bundle, keys: str | Sequence[str]) -> str:
    spellings = [keys] if isinstance(keys, str) else list(keys)
    key = next((key for key in spellings if key in bundle.headers), None)
    if key is None:
        raise UserError(
            f"{bundle.path}: holds no array {' or '.join(map(repr, spellings))}{nearest(spellings[0], bundle.headers)}"
        )
    return key


def _scalar_text(array: Array) -> str:
    value = np.asarray(array).reshape(-1)
    return str(value[0]) if value.size == 1 else str(array.tolist())
