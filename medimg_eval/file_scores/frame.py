"""What all kinds of `score FILES=` share: models by name, pairs, and a run for each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from medimg_eval.arguments import as_list
from medimg_eval.data.records import Row
from medimg_eval.data.tables import read_table
from medimg_eval.errors import UsageError, UserError, nearest, shortened
from medimg_eval.evaluation import pipeline
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.readiness import missing, refuse
from medimg_eval.evaluation.settings import Settings
from medimg_eval.instantiate import Annotators, Extractors, build_candidate
from medimg_eval.models import Model
from medimg_eval.run_results import RunResults, RunSet
from medimg_eval.settings import build_loggers
from medimg_eval.tasks import Task


@dataclass(frozen=True)
class Candidate:
    """Files of one model, and the task they are judged by.

    Attributes:
        task: its cases are those of the references.
        model: answers with what the files hold.
        predicted: ids of the cases that the files hold; None where others cannot be among them.
        silence_answers: whether a case that they lack has an answer, too, such as no candidates.
        repeats: how many answers to each case the files hold.
    """

    task: Task
    model: ModelSpec
    predicted: Collection[str] | None = None
    silence_answers: bool = False
    repeats: int = 1


def answering(name: str, wrapper: type[Model], config: Mapping[str, Any]) -> ModelSpec:
    """Model answering by files, of the class in `config`."""
    return ModelSpec(name, wrapper, config, partial(wrapper, **config))


def task_config(family: str, kind: str, layout: Mapping[str, Any], **settings: Any) -> dict[str, Any]:
    """Task config for files of a kind, with one split."""
    return {
        "_target_": f"medimg_eval.tasks.{family}",
        "name": kind,
        "title": kind.capitalize(),
        "layout": layout,
        "splits": {"test": "test"},
        **settings,
    }


def named_files(key: str, value: Any) -> dict[str, Path]:
    """Files or folders by table names, given or by stem; UsageError for equal names."""
    if not value or (isinstance(value, str) and not value.strip()):
        raise UsageError(f"{key}= is empty; name a file or folder, a list of them, or names with them: {{mine: a}}")
    if isinstance(value, Mapping):
        return {str(name): Path(str(path)).expanduser() for name, path in value.items()}
    paths = [Path(str(path)).expanduser() for path in as_list(value)]
    named = {path.resolve().name if path.is_dir() else Path(path.name.removesuffix(".gz")).stem: path for path in paths}
    if len(named) < len(paths):
        path_list = ", ".join(map(str, paths))
        raise UsageError(f"{key}={path_list}: two have the same name; name them, as in {key}={{mine: a, other: b}}")
    return named


def columns_of(
    path: Path, roles: Mapping[str, bool], called: Mapping[str, str], others: Collection[str] = ()
) -> dict[str, str]:
    """The column of each role that a table has.

    Args:
        path: the table.
        roles: such as `case` -> whether it must be there.
        called: role -> what the table calls it, of those that are not called by the role.
        others: roles that other tables of the same command have.

    Raises:
        UsageError: there is no such role.
        UserError: the table holds nothing, or lacks a column that it must have.
    """
    UsageError.refuse_invalid("columns: role", [*roles, *others], *called)
    rows = read_table(path)
    if not rows:
        raise UserError(f"{path}: holds no row")
    header = list(dict.fromkeys(name for row in rows for name in row.values))
    wanted = {role: str(called.get(role, role)) for role in roles}
    missing = next((role for role, name in wanted.items() if name not in header and roles[role]), None)
    if missing is not None:
        complaint = f"{path}: has no column {wanted[missing]!r}{nearest(wanted[missing], header)}"
        raise UserError(f"{complaint}; name that of the {missing} with columns.{missing}=NAME")
    return {role: name for role, name in wanted.items() if name in header}


def numeric_columns(rows: Sequence[Row], taken: Collection[str | None] = ()) -> list[str]:
    """Columns of numbers in every row, beside taken ones."""

    def is_number(text: str) -> bool:
        try:
            float(text or "nan")
        except ValueError:
            return False
        return True

    return [name for name in rows[0].values if name not in taken and all(is_number(row.text(name)) for row in rows)]


def dividing_column(wanted: Mapping[str, Any]) -> list[str]:
    """Reference column that divides tables; none for label or `cases=`."""
    return [] if wanted["by"] in (None, "label") or wanted["cases"] is not None else [wanted["by"]]


def listed(layout: Mapping[str, Any], wanted: Mapping[str, Any], **settings: Any) -> dict[str, Any]:
    """Layout config, restricted to `cases=` where given."""
    own = {**layout, "_target_": f"medimg_eval.data.layouts.{layout['_target_']}"}
    if wanted["cases"] is None:
        return own
    table = str(Path(str(wanted["cases"])).expanduser())
    return {"_target_": "medimg_eval.data.layouts.Listed", "layout": own, "table": table, **settings}


def table_layout(target: str, path: Path, columns: Mapping[str, str], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Config of a `Table` layout without images, several rows per case."""
    config: dict[str, Any] = {"_target_": target, "root": str(path.parent), "table": path.name, "id": columns["case"]}
    if "patient" in columns:
        config["patient"] = columns["patient"]
    if attributes := dividing_column(wanted):
        config["attributes"] = attributes
    return config


def references_of(wanted: Mapping[str, Any], kind: str, what: str) -> Path:
    """Reference file or folder; UsageError where unnamed."""
    if wanted["references"] is None:
        raise UsageError(f"{kind}= needs references=, {what}")
    return Path(str(wanted["references"])).expanduser()


def score_candidates(
    wanted: Mapping[str, Any], kind: str, candidates: Sequence[Candidate], warn: Callable[[str], None]
) -> RunSet:
    """Scores candidates, a run for each; several are compared and ranked.

    Args:
        wanted: the config of `score`.
        kind: its key that named the files, such as `masks`.
        candidates: one for each model.
        warn: is told which predictions and references have no partner.

    Raises:
        UserError: no case of a candidate is one of the references', or a metric lacks what it needs.
    """
    settings = Settings(
        runs=Path(wanted["runs"]),
        config={key: value for key, value in wanted.items() if key != "runs"},
        judge=build_candidate(wanted["judge"]) if wanted.get("judge") else None,
        annotators=Annotators(wanted["annotators"] or {}),
        extractors=Extractors(wanted["extractors"] or {}),
        loggers=build_loggers(wanted.get("logger") or {}),
    )
    for candidate in candidates:
        refuse(missing(candidate.task.requirements(), settings.providers, candidate.task))
        _tell_unpaired(candidate, kind, warn)
    runs = []
    for candidate_ in candidates:
        run = pipeline.test(candidate_.task, candidate_.model, replace(settings, repeats=candidate_.repeats))
        runs.append(RunResults(run.folder, task=candidate_.task, table=run.table))
    # Each model has generated pictures of its own, which nothing pairs.
    return RunSet(runs, by=wanted["by"], paired=kind != "pictures")


def _tell_unpaired(candidate: Candidate, kind: str, warn: Callable[[str], None]) -> None:
    """Says which predictions and references have no partner."""
    if candidate.predicted is None:
        return
    name, predicted = candidate.model.name, candidate.predicted
    cases = [case.id for case in candidate.task.cases("test")]
    if not set(cases) & set(predicted):
        raise UserError(
            f"{kind} of {name}: no case is one of the references; there is {next(iter(predicted), 'nothing')!r}, "
            f"among the references {cases[0]!r}; names must be equal, those of files but for their endings"
        )
    strays = [case for case in predicted if case not in set(cases)]
    unpaired = [case for case in cases if case not in predicted and not candidate.silence_answers]
    for lone, words in (
        (strays, f"{kind} of {name} belong to no case and are left out"),
        (unpaired, f"cases have no {kind} of {name} and count at the worst value; cases=TABLE leaves them out"),
    ):
        if lone:
            warn(f"{len(lone):,} {words}: {shortened(lone)}")
