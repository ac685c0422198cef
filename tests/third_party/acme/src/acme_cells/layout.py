"""How such data lie on disk: fields/*.png, and counts.json beside them."""

import json
from dataclasses import dataclass
from pathlib import Path

from acme_cells.counts import Count, content_of
from medimg_eval.case import Case
from medimg_eval.errors import MissingDataError
from medimg_eval.imaging import ImageFile


@dataclass(frozen=True)
class HandCount:
    """What a person counted in one field."""

    table: Path
    field: str
    image: ImageFile

    @property
    def files(self):
        return (self.table,)

    def geometry(self):
        return self.image.geometry()

    def read(self):
        row = json.loads(self.table.read_text())[self.field]
        return Count(row["cells"], row["note"])


@dataclass(frozen=True)
class CellFields:
    """Fields of view with the number of cells in each."""

    root: str

    @property
    def table(self):
        return Path(self.root, "counts.json")

    def cases(self, split):
        if not self.table.is_file():
            raise MissingDataError(f"{self.table}: there is no such table")
        rows = json.loads(self.table.read_text())
        images = {name: ImageFile(Path(self.root, "fields", f"{name}.png")) for name in rows}
        return [
            Case(name, (images[name],), HandCount(self.table, name, images[name]), row["slide"])
            for name, row in sorted(rows.items())
            if row["split"] == split
        ]

    def split_source(self):
        return {str(self.table): content_of(self.table)}
