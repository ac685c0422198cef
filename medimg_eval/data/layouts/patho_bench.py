"""Tasks of Patho-Bench: a table of folds, and a file that says what its columns are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from medimg_eval.data.layouts.table import Slides
from medimg_eval.data.records import Entry, Row, Target
from medimg_eval.data.splits import SplitTable
from medimg_eval.data.tables import read_table
from medimg_eval.data.targets import ClassName, SurvivalColumns
from medimg_eval.errors import MissingDataError, UserError

TABLE, CONFIG = "k=all.tsv", "config.yaml"
"""What the folder of a task holds."""


@dataclass
class PathoBenchFolds:
    """Columns `fold_0`, ... with `train`, `val` or `test` by case.

    A case may have several rows, one for each slide, which must agree.
    """

    fold: int | str = 0
    key: str = "{case}"

    def fold_numbers(self, root: Path) -> list[int]:
        """The numbers of the columns, ascending."""
        return SplitTable(TABLE, "slide_id", "fold_{fold}").fold_numbers(root)

    def files(self, root: Path) -> tuple[Path, ...]:
        """The table."""
        return (root / TABLE,)

    def read(self, root: Path) -> dict[str, list[Row]]:
        """Ids by split; UserError where a case's rows disagree."""
        config, column = _cached_config(root), f"fold_{self.fold}"
        split_rows: dict[str, tuple[str, Row]] = {}
        for row in _labelled_rows(root):
            name, split = row.text(config["sample_col"]), row.text(column)
            before, first = split_rows.setdefault(name, (split, row))
            if split != before:
                raise row.error(f"{column} puts {name!r} into {split!r}, and {first.place} into {before!r}")
        rows: dict[str, list[Row]] = {}
        for name, (split, row) in split_rows.items():
            if split:
                rows.setdefault(split, []).append(Row(row.path, row.place, {"id": name}))
        return rows


@dataclass(kw_only=True)
class PathoBench(Slides):
    """The folder of one task, `SOURCE/TASK`, with `k=all.tsv` and `config.yaml`.

    A case is what `sample_col` says: a patient with the bags of all slides, or a slide. Rows without a label are left
    out. The truth is the column `task_col`, whose numbers `label_dict` names; or, where there are the columns
    `TASK_event` and `TASK_days`, a time.

    Args:
        others: see `Slides`; `store` may lie anywhere.
    """

    table: str = TABLE
    splits: Any = field(default_factory=PathoBenchFolds)

    def entries(self, root: Path) -> list[Entry]:
        """The cases with a label, in the order of their first rows."""
        return super(PathoBench, replace(self, id=_cached_config(root)["sample_col"])).entries(root)

    def class_names(self) -> list[str]:
        """Names of `label_dict` by number; MissingDataError without the folder."""
        held = _cached_config(Path(self.root).expanduser())["label_dict"]
        return [str(held[number]) for number in sorted(held, key=int)]

    def rows(self, root: Path) -> list[tuple[Row, str | None]]:
        """The rows with a label."""
        return [(row, None) for row in _labelled_rows(root)]

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """The class by its name, or the time in days."""
        config = _cached_config(root)
        name = config["task_col"]
        if {f"{name}_event", f"{name}_days"} <= entries[0].row.values.keys():
            return SurvivalColumns(f"{name}_days", event=f"{name}_event", unit="days")
        return ClassName(name, {str(number): str(label) for number, label in config["label_dict"].items()})


def _labelled_rows(root: Path) -> list[Row]:
    column = _cached_config(root)["task_col"]
    return [row for row in read_table(root / TABLE) if row.text(column)]


def _cached_config(root: Path) -> Mapping[str, Any]:
    path = root / CONFIG
    if not path.is_file():
        raise MissingDataError(f"{path}: no such file; set task.layout.root to the folder of one task")
    return _read_config(path, path.stat().st_mtime_ns)


@lru_cache(8)
def _read_config(path: Path, _: int) -> Mapping[str, Any]:
    import yaml

    with UserError.about(path, "cannot be read as YAML", OSError, ValueError, yaml.YAMLError):
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    wanted = {"task_col": str, "sample_col": str, "label_dict": dict}
    if not isinstance(config, dict) or not all(isinstance(config.get(name), kind) for name, kind in wanted.items()):
        raise UserError(f"{path}: expected task_col, sample_col and label_dict, as Patho-Bench writes them")
    return config
