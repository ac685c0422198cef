"""What is counted, and how a count is kept with its run."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from medimg_eval.codecs import Codec
from medimg_eval.errors import CaseError


@dataclass(frozen=True)
class Count:
    """How many cells there are, and what was said of them."""

    cells: int
    remark: str

    def __str__(self):
        return f"{self.cells} cells"


class CountFiles(Codec):
    """A file for each count: the number, and the remark below it."""

    form = "cell count"

    def write(self, folder, trial, value):
        folder.mkdir(exist_ok=True)
        path = Path(folder, f"{trial}.count")
        path.write_text(f"{value.cells}\n{value.remark}\n")
        return path

    def read(self, stored):
        number, _, remark = stored.read_text().partition("\n")
        if not number.isdecimal():
            raise CaseError(f"{stored}: begins with {number!r}, expected a number of cells")
        return Count(int(number), remark.strip())


def content_of(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
