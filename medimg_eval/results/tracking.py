"""Trackers: a scored run's means with intervals, table, card and figures at W&B, MLflow, TensorBoard."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medimg_eval.errors import UserError, import_optional

if TYPE_CHECKING:
    from lightning.pytorch.loggers import Logger

    from medimg_eval.results.table import Table

log = logging.getLogger(__name__)

FOLDER = "tracked"
"""Of a run: the files that trackers are given."""

KEY = "medimg_eval.run"
"""MLflow's tag with the run's id."""


def report_to(trackers: Iterable[Logger], table: Table, facts: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Reports a scored run to trackers, always as one run.

    Args:
        trackers: W&B's, MLflow's, TensorBoard's or other loggers of Lightning.
        table: of the run.
        facts: what tells the run from others; `run` is its id.
        folder: of the run.

    Returns:
        Trackers that did not take it, with what they said.
    """
    values, written = tracked_values(table), write_tracked(table, folder / FOLDER)
    untracked: dict[str, str] = {}
    for tracker in trackers:
        kinds = {kind.__name__ for kind in type(tracker).__mro__}
        if "CSVLogger" in kinds:  # for curves of a training; summary.json holds what it could say here
            continue
        report = next((REPORTERS[kind] for kind in REPORTERS if kind in kinds), _report_values)
        try:
            report(tracker, values, facts, written)
        except Exception as error:  # noqa: BLE001 - the scores are there, and so may be the other trackers
            untracked[type(tracker).__name__] = f"{type(error).__name__}: {error}"
        else:
            log.info("%s: reported to %s", folder, type(tracker).__name__)
    return untracked


def tracked_values(table: Table) -> dict[str, float]:
    """Returns tracked numbers: `dice`, `dice/low`, `dice/high`, `dice/n`.

    Rows of conditions have the row's name before these; what is undefined is left out.
    """
    frame = table.frame()
    twice = frame.duplicated(["model", "metric"], keep=False)
    values: dict[str, float] = {}
    for (_, row), shared in zip(frame.iterrows(), twice, strict=True):
        condition = () if row["model"] == frame["model"].iloc[0] else (str(row["model"]),)
        name = "/".join([*condition, str(row["column"] if shared else row["metric"])])
        values |= {name: row["mean"], **{f"{name}/{part}": row[part] for part in ("low", "high", "n", "failed")}}
    return {name: float(value) for name, value in values.items() if not math.isnan(value)}


def write_tracked(table: Table, folder: Path) -> Path:
    """Writes table, card and forest plots of a run; returns the folder."""
    from medimg_eval.results.cards import write_card
    from medimg_eval.results.figures import forest, write_figure
    from medimg_eval.results.table import write_all

    write_all(table, folder)
    write_card(table, folder)
    for metric in dict.fromkeys(column.metric for column in table.columns):
        try:
            drawn = forest(table.runs, metric)
        except UserError as error:  # such as a metric without any value
            log.debug("no figure of %s: %s", metric, error)
        else:
            write_figure(drawn, folder, f"forest-{re.sub(r'[^A-Za-z0-9.]+', '-', metric)}")
    return folder


def _report_values(tracker: Logger, values: dict[str, float], facts: Mapping[str, Any], folder: Path) -> None:
    tracker.log_hyperparams(dict(facts))
    tracker.log_metrics(values, step=0)
    tracker.save()
    tracker.finalize("success")


def _report_to_wandb(tracker: Any, values: dict[str, float], facts: Mapping[str, Any], folder: Path) -> None:
    import pandas as pd

    wandb = import_optional("wandb")
    run = tracker.experiment
    figures = {file.stem: wandb.Image(str(file)) for file in sorted(folder.glob("*.png"))}
    run.log({"table": wandb.Table(dataframe=pd.read_csv(folder / "table.csv")), **figures})
    artifact = wandb.Artifact(f"{run.id}-results", type="results")
    artifact.add_dir(str(folder))
    run.log_artifact(artifact)
    tracker.log_hyperparams(dict(facts))
    run.summary.update(values)
    run.finish()


def _report_to_mlflow(tracker: Any, values: dict[str, float], facts: Mapping[str, Any], folder: Path) -> None:
    # Lightning's own client starts a run of its own as soon as it is asked for.
    settings = vars(tracker)
    client, title = import_optional("mlflow").MlflowClient(settings["_tracking_uri"]), settings["_experiment_name"]
    experiment_by_name = client.get_experiment_by_name(title)
    experiment = client.create_experiment(title) if experiment_by_name is None else experiment_by_name.experiment_id
    earlier = client.search_runs([experiment], f"tags.`{KEY}` = '{facts['run']}'", max_results=1)
    if earlier:
        tracked = earlier[0].info.run_id
    else:
        tracked = client.create_run(experiment, tags={KEY: facts["run"]}, run_name=folder.parent.name).info.run_id
        for name, value in facts.items():
            client.log_param(tracked, name, value)
    for name, value in values.items():
        client.log_metric(tracked, re.sub(r"[^\w\-. /:]", "_", name), value)
    client.log_artifacts(tracked, str(folder))
    client.set_terminated(tracked, "FINISHED")


def _report_to_tensorboard(tracker: Any, values: dict[str, float], facts: Mapping[str, Any], folder: Path) -> None:
    import numpy as np
    from PIL import Image

    for name in ("table", "card"):
        tracker.experiment.add_text(name, (folder / f"{name}.md").read_text(encoding="utf-8"))
    for file in sorted(folder.glob("*.png")):
        with Image.open(file) as picture:
            tracker.experiment.add_image(file.stem, np.asarray(picture.convert("RGB")), dataformats="HWC")
    _report_values(tracker, values, facts, folder)


Reporter = Callable[[Any, dict[str, float], Mapping[str, Any], Path], None]
REPORTERS: dict[str, Reporter] = {
    "WandbLogger": _report_to_wandb,
    "MLFlowLogger": _report_to_mlflow,
    "TensorBoardLogger": _report_to_tensorboard,
}
"""By the class of a Lightning logger: what reports to it."""
