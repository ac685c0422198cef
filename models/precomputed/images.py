"""Images that were made elsewhere: generated pictures from a folder or a table, and reconstructions of scans."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from medimg_eval.case import Array, Image, Prompts
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.imaging import VIDEOS, VOLUMES, read
from medimg_eval.imaging.arrays import Bundle
from medimg_eval.models.base import Reconstructor, Synthesizer
from medimg_eval.models.precomputed.files import FromFiles, FromFolder, result_folder
from medimg_eval.models.synthesis import ENDINGS


class PrecomputedImages(FromFiles, Synthesizer):
    """A folder of pictures, volumes or videos that another program made, whose names begin with the ids of the cases.

    Args:
        root: the folder.
        pattern: the files of a case in it, holding `{case}`, and `{n}` where there are several: any number, in whose
            order they are taken. An ending of `*` stands for any of a picture; volumes and videos name theirs, such as
            `{case}.nii.gz`.
        table: instead of a pattern: a table in the folder with a row per picture, as generators write it.
        id: its column of the case's id.
        file: its column of the picture, below the folder.
        first: whether of more pictures than are wanted the first count; without it they are a mistake.

    Raises:
        UserError: the folder, or the table, is not there.
        UsageError: the pattern holds no `{case}`.
    """

    preferred_batch = 16

    def __init__(
        self,
        root: str,
        pattern: str = "{case}.*",
        table: str | None = None,
        id: str = "id",  # noqa: A002 - as the column is called
        file: str = "synthetic_filename",
        first: bool = False,
    ) -> None:
        self.root = result_folder(root, "pictures")
        if table is None and "{case}" not in pattern:
            raise UsageError(f"expected {{case}} in model.pattern, got {pattern!r}")
        self.pattern, self.first = pattern, first
        self._listed: dict[Path, list[str]] = {}
        self._table = None if table is None else self._read(self.root / table, id, file)

    def check_ready(self) -> None:
        """Raises UserError where the folder holds no picture or volume."""
        endings = (*ENDINGS, *(ending for ending in (*VOLUMES, *VIDEOS) if self.pattern.endswith(ending)))
        if self._table is None and not any(path.name.lower().endswith(endings) for path in self.root.rglob("*")):
            raise UserError(f"{self.root}: holds no picture; set model.root to the folder of pictures")

    def synthesize(self, prompts: Prompts, seeds: Sequence[Sequence[int]]) -> Sequence[Sequence[Image]]:
        """Reads the pictures; CaseError names missing or unreadable files."""
        return [
            [read(file) for file in self._files(prompt.case_id, len(some))]
            for prompt, some in zip(prompts, seeds, strict=True)
        ]

    def _files(self, case: str, wanted: int) -> list[Path]:
        files = self._table.get(case, []) if self._table is not None else self._sought(case)
        if len(files) < wanted or (len(files) > wanted and not self.first):
            where = "the table" if self._table is not None else repr(self.pattern.replace("{case}", case))
            hint = "; set model.first=true to take the first" if len(files) > wanted else ""
            raise CaseError(f"{self.root}: {len(files)} pictures of case {case!r} ({where}), expected {wanted}{hint}")
        return files[:wanted]

    def _sought(self, case: str) -> list[Path]:
        name = self.pattern.replace("{case}", case)
        folder = (self.root / name).parent
        begin, numbered, end = Path(name).name.partition("{n}")
        endings = ENDINGS if end.endswith(".*") or name.endswith(".*") else ()
        begin, end = begin.removesuffix(".*"), end.removesuffix(".*")
        there = []
        names = self._names(folder)
        for index in range(bisect_left(names, begin), len(names)):
            path = folder / names[index]
            if not path.name.startswith(begin):
                break
            if endings and path.suffix.lower() not in endings:
                continue
            stem = path.name[: -len(path.suffix)] if endings else path.name
            middle = stem.removeprefix(begin).removesuffix(end) if numbered else ""
            if numbered and stem == f"{begin}{middle}{end}" and middle.isdigit():
                there.append((int(middle), path))
            elif not numbered and stem == begin:
                there.append((0, path))
        return [path for _, path in sorted(there)]

    def _names(self, folder: Path) -> list[str]:
        if folder not in self._listed:
            self._listed[folder] = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
        return self._listed[folder]

    def _read(self, table: Path, name: str, file: str) -> dict[str, list[Path]]:
        import pandas as pd

        with UserError.about(table, "cannot be read as a table", OSError, ValueError):
            rows = pd.read_csv(table, dtype=str, keep_default_na=False)
        UserError.refuse_unknown(f"{table}: has no column", rows, name, file)
        twice = [repeated for repeated, count in Counter(rows[file]).items() if count > 1]
        if twice:
            raise UserError(f"{table}: picture {twice[0]!r} stands there {Counter(rows[file])[twice[0]]} times")
        files_by_case: dict[str, list[Path]] = {}
        for case, picture in zip(rows[name].str.strip(), rows[file].str.strip(), strict=True):
            files_by_case.setdefault(case, []).append(self.root / picture)
        return files_by_case


class PrecomputedReconstructions(FromFolder, Reconstructor):
    """A folder with one file per scan, whichever program made them.

    Args:
        pattern: the file of a case in it, holding `{case}`: HDF5, as fastMRI and MC-MRRec have it, .npz or .npy.
        key: of the array in the file; not of .npy.
        fft: how the program scaled its inverse FFT: `ortho`, or `backward`, numpy's default, whose images are smaller
            by the root of the number of pixels of a slice, as in submissions to MC-MRRec.
    """

    def __init__(
        self,
        root: str,
        pattern: str = "{case}.h5",
        key: str = "reconstruction",
        fft: Literal["ortho", "backward"] = "ortho",
    ) -> None:
        if fft not in ("ortho", "backward"):
            raise UserError(f"expected model.fft to be ortho or backward, got {fft!r}")
        self.root, self.pattern = result_folder(root, "reconstructions", pattern), pattern
        self.key, self.fft = key, fft

    def reconstruct(self, prompts: Prompts) -> Sequence[Any]:
        """Returns the stored images; raises CaseError naming a file that is not there."""
        return [self._read(prompt.case_id) for prompt in prompts]

    def _read(self, case: str) -> Array:
        path = self.root / self.pattern.replace("{case}", case)
        if not path.is_file():
            raise CaseError(f"case {case!r}: {path}: no such file; set model.pattern to how the files are called")
        image = Bundle(path).array("array" if path.suffix == ".npy" else self.key)
        if self.fft == "ortho":
            return image
        scaled: Array = image * np.sqrt(np.prod(image.shape[-2:]))
        return scaled
