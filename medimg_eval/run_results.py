"""A run as its reader sees it: scores, summary, predictions, failures, read when they are asked for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, overload

from medimg_eval.case import Failure, Trial
from medimg_eval.codecs import Stored
from medimg_eval.errors import UserError
from medimg_eval.evaluation.run import Run
from medimg_eval.results.runs import MANIFEST, RunScores, read_manifest, usage_in_all

if TYPE_CHECKING:
    import pandas as pd

    from medimg_eval.results import Table
    from medimg_eval.results.table import Sheet
    from medimg_eval.tasks import Task

SUMMARY = {"metric": "metric", "mean": "value", "low": "low", "high": "high", "n": "n", "failed": "failed"}
"""Columns of a table's frame -> those of a run's summary."""


class Predictions(Mapping[Trial, Any]):
    """Predictions by trial, read on demand; case ids suffice without repeats."""

    def __init__(self, stored: Mapping[str, Stored | Failure], trials: Mapping[str, Trial]) -> None:
        self._stored = {trial: value for trial, value in stored.items() if not isinstance(value, Failure)}
        self._trials = trials

    def __getitem__(self, trial: Trial | str) -> Any:
        value = self._stored[trial if isinstance(trial, str) else trial.id]
        return _read_prediction(value) if isinstance(value, Path) else value

    def __iter__(self) -> Iterator[Trial]:
        return (self._trials[name] for name in self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    def first(self, case: str) -> Any:
        """A case's prediction in its first repeat or fold, else None."""
        trial = self._first.get(case)
        return None if trial is None else self[trial]

    @cached_property
    def _first(self) -> dict[str, Trial]:
        trials: dict[str, Trial] = {}
        for trial in self:
            if not trial.condition and trial.repeat <= trials.get(trial.case, trial).repeat:
                trials[trial.case] = trial
        return trials


class RunResults:
    """A run of a model on a task.

    Attributes:
        folder: where it lies.
        baselines: the runs that were made beside it, to compare it with.
    """

    def __init__(self, folder: Path, *, task: Task | None = None, table: Table | None = None) -> None:
        self.folder = folder
        self.baselines: Sequence[RunResults] = ()
        self._task = task
        self._known_table = table

    def __repr__(self) -> str:
        manifest = self.manifest
        return f"<{manifest.get('status')} run of {manifest.get('model')!r} on {manifest.get('task')!r}: {self.folder}>"

    def _repr_html_(self) -> str | None:
        return self.table._repr_html_() if self.manifest.get("command") == "test" else None

    @property
    def task(self) -> Task | None:
        """The task, where the run was made or scored here."""
        return self._task

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Record of the run: settings, versions, times, status."""
        return read_manifest(self.folder / MANIFEST)

    @property
    def id(self) -> str:
        """Hash of everything that decides its predictions."""
        return str(self.manifest["run"])

    @cached_property
    def _loaded(self) -> list[RunScores]:
        from medimg_eval.results import load_runs

        return load_runs([self.folder])

    @cached_property
    def table(self) -> Table:
        """The run's means with their intervals, as the command prints them."""
        if self._known_table is not None:
            return self._known_table
        from medimg_eval.results import build_table

        return build_table(self._loaded)

    @cached_property
    def scores(self) -> pd.DataFrame:
        """Score rows: one per case, label and metric."""
        import pandas as pd

        file = self.folder / "scores.parquet"
        if not file.is_file():
            self._refuse("scores")
        return pd.read_parquet(file)

    @property
    def summary(self) -> pd.DataFrame:
        """Row per metric: `value` (mean), `low`, `high`, `n` cases, `failed`."""
        frame = self.table.frame()
        return frame[frame["model"] == str(self.manifest["model"])][list(SUMMARY)].rename(columns=SUMMARY)

    @cached_property
    def predictions(self) -> Predictions:
        """Answers of the model; cases that failed are in `failures`."""
        run = Run(self.folder, self.id)
        return Predictions(run.predictions(), run.trials())

    @cached_property
    def evidence(self) -> pd.DataFrame:
        """Provider statements on predictions: one row per provider, topic and owner."""
        import pandas as pd

        return pd.DataFrame(Run(self.folder, self.id).evidence())

    @cached_property
    def failures(self) -> pd.DataFrame:
        """Cases without answer or score: `case`, `stage`, `message`.

        Values that metrics lost have a `metric`.
        """
        import pandas as pd

        file = self.folder / "summary.json"
        if not file.is_file():
            self._refuse("summary")
        summary = json.loads(file.read_text(encoding="utf-8"))
        failures = [*summary["failures"], *({"stage": "score", **raised} for raised in summary.get("raised", []))]
        return pd.DataFrame(failures, columns=["case", "stage", "metric", "message"])

    @property
    def usage(self) -> Mapping[str, Any]:
        """Cost of answering, over all starts: tokens, requests, retries, cost."""
        return usage_in_all(self.manifest.get("usage"))

    @property
    def notes(self) -> Sequence[str]:
        """Notes for readers of its numbers."""
        return self._loaded[0].notes

    def _refuse(self, what: str) -> NoReturn:
        if self.manifest.get("command") == "predict":
            raise UserError(f"{self.folder}: has no {what}: no truth is known of what was asked about")
        raise UserError(
            f"{self.folder}: has no {what} yet, for the run is {self.manifest.get('status')}; run test again"
        )


class RunSet(Sequence[RunResults]):
    """Runs made together: table, and for several models comparison and ranks.

    Args:
        runs: which.
        by: `label`, or an attribute of the cases that the table is divided by.
        paired: whether models were asked about the same cases, which comparisons need.
    """

    def __init__(self, runs: Iterable[RunResults], *, by: str | None = None, paired: bool = True) -> None:
        self._runs = tuple(runs)
        self._by, self._paired = by, paired
        self.not_compared = ""
        """Why there is no comparison; "" where there is one, or where there is a single run."""

    @overload
    def __getitem__(self, place: int) -> RunResults: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[RunResults]: ...
    def __getitem__(self, place: int | slice) -> RunResults | Sequence[RunResults]:
        return self._runs[place]

    def __len__(self) -> int:
        return len(self._runs)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self._runs))

    def _repr_html_(self) -> str:
        from medimg_eval.results.table import notebook_html

        return self.table._repr_html_() + (notebook_html(*self.sheets) if self.sheets else "")

    @cached_property
    def loaded(self) -> list[RunScores]:
        """The runs as tables read them."""
        from medimg_eval.results import load_runs

        return load_runs([run.folder for run in self._runs])

    @cached_property
    def table(self) -> Table:
        """The means of all runs with their intervals, a row for each."""
        from medimg_eval.results import build_table

        if len(self._runs) == 1 and self._by is None:  # whose intervals take long to compute twice
            return self._runs[0].table
        return build_table(self.loaded, by=self._by)

    @cached_property
    def sheets(self) -> Sequence[Sheet]:
        """Comparison and ranks by the first metric; none where `not_compared` explains."""
        from medimg_eval.results import compare, rank_models

        if len(self._runs) < 2 or not self._paired:
            return ()
        if len({run.data_fingerprint for run in self.loaded}) > 1:
            self.not_compared = "the cases of the models differ"
            return ()
        try:
            return (*compare(self.loaded, self.loaded[0].metrics[0]).sheets, *rank_models(self.loaded).sheets)
        except UserError as error:  # such as of one that has no values
            self.not_compared = str(error)
            return ()


def folder_of(run: RunResults | str | Path) -> Path:
    """The folder of a run, given as such or as what `medimg_eval.test` returned."""
    return run.folder if isinstance(run, RunResults) else Path(run).expanduser()


def _read_prediction(file: Path) -> Any:
    """A stored prediction; other files than mask, array, JSON stay paths."""
    if file.name.endswith(".nii.gz"):
        from medimg_eval.codecs import InstanceMasks, Masks

        return (InstanceMasks() if file.name.endswith(InstanceMasks.suffix) else Masks()).read(file)
    if file.suffix == ".npy":
        import numpy as np

        return np.load(file, allow_pickle=False)
    return json.loads(file.read_text(encoding="utf-8")) if file.suffix == ".json" else file
