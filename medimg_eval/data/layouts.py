"""How datasets lie on disk: a root folder becomes Cases."""

from __future__ import annotations

import csv
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from medimg_eval.case import Case
from medimg_eval.errors import SplitError, UserError, nearest
from medimg_eval.imaging import ImageFile, MaskFile


@dataclass
class Volumes:
    """A folder of NIfTI images and label maps, paired by case id.

    Args:
        root: the dataset's folder.
        image: pattern below `root` holding `{case}`, such as `imagesTs/{case}_0000.nii.gz`.
        mask: pattern below `root` holding `{case}`, such as `labelsTs/{case}.nii.gz`; may hold `{split}`,
            as may `image`.
        table: optional CSV below `root` with a column `case`, optionally `patient` and `split`; every
            other column becomes an attribute. Without it every file that matches `mask` is a case.
        modality: DICOM code of the images.
    """

    root: str
    image: str
    mask: str
    table: str | None = None
    modality: str = ""

    def cases(self, split: str) -> list[Case]:
        """The cases of one split, sorted by id, or in the table's order.

        Raises:
            UserError: the root or the table is missing, the table has no such column or split, or a
                pattern holds no `{case}`.
        """
        root = Path(self.root).expanduser()
        if not root.is_dir():
            raise UserError(f"{root}: no such folder; set task.layout.root to where the dataset lies")
        for pattern in (self.image, self.mask):
            held = {name for _, name, _, _ in string.Formatter().parse(pattern) if name is not None}
            if "case" not in held or held - {"case", "split"}:
                raise UserError(f"expected {{case}}, and at most {{split}}, in task.layout's pattern {pattern!r}")
        if self.table is None:
            return [self._case(root, split, case, None, {}) for case in self._found(root, split)]
        return [
            self._case(root, split, row.pop("case"), row.pop("patient", None) or None, row)
            for row in self._rows(root / self.table, split)
        ]

    def _case(self, root: Path, split: str, case: str, patient: str | None, attributes: dict[str, str]) -> Case:
        image = ImageFile(root / self.image.format(case=case, split=split), modality=self.modality)
        mask = MaskFile(root / self.mask.format(case=case, split=split))
        return Case(case, (image,), mask, patient, attributes)

    def _found(self, root: Path, split: str) -> list[str]:
        pattern = self.mask.format(case="*", split=split)
        name = re.escape(self.mask).replace(r"\{split\}", re.escape(split)).replace(r"\{case\}", "(.+)", 1)
        name = name.replace(r"\{case\}", r"\1")  # a case's folder often repeats its name
        matches = (re.fullmatch(name, path.relative_to(root).as_posix()) for path in root.glob(pattern))
        # Archives made on a Mac hold a hidden `._` companion of every file.
        return sorted(match.group(1) for match in matches if match and not Path(match.group()).name.startswith("."))

    def _rows(self, table: Path, split: str) -> Iterator[dict[str, str]]:
        try:
            with table.open(newline="", encoding="utf-8-sig") as stream:
                reader = csv.DictReader(stream)
                rows = list(reader)
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise UserError(f"{table}: cannot be read as a CSV table ({error})") from error
        columns = list(reader.fieldnames or [])
        ragged = next((row for row in rows if None in row or None in row.values()), None)
        if ragged is not None:
            case = ragged.get("case")
            raise UserError(f"{table}: the row of case {case!r} has not as many fields as the header's {len(columns)}")
        if rows and "case" not in rows[0]:
            raise UserError(f"{table}: expected a column 'case'{nearest('case', rows[0])}")
        if rows and "split" in rows[0]:
            splits = {row["split"] for row in rows}
            if split not in splits:
                raise SplitError(f"{table}: no case of split {split!r}{nearest(split, splits)}")
            rows = [row for row in rows if row["split"] == split]
        return ({key: value for key, value in row.items() if key != "split"} for row in rows)
