"""What is said of each frame of a video: Parquet, one row for each labelled frame."""

from __future__ import annotations

from pathlib import Path

from medimg_eval.case import FrameLabels
from medimg_eval.codecs.base import FileCodec
from medimg_eval.errors import CaseError
from medimg_eval.system import whole

FRAME = "frame"
"""The column that holds a frame's index."""


class Frames(FileCodec):
    """Labels of frames; their columns keep their types."""

    form = "frames"
    suffix = ".parquet"

    def save(self, path: Path, value: FrameLabels) -> None:
        """Writes a table."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        with whole(path) as partial:
            pq.write_table(pa.table({FRAME: value.frames, **value.columns}), partial)

    def read(self, stored: Path) -> FrameLabels:
        """Reads a table."""
        import pyarrow.parquet as pq

        try:
            table = pq.ParquetFile(stored).read()
            columns = {name: table[name].to_numpy() for name in table.column_names}
            return FrameLabels(columns.pop(FRAME), columns)
        except (OSError, ValueError, KeyError) as error:
            raise CaseError(f"{stored}: cannot be read as labels of frames ({error}); run test again") from error
