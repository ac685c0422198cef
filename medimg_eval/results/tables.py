"""What the commands `table` and `compare` show of runs, given their settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medimg_eval.arguments import as_list
from medimg_eval.errors import UsageError, UserError
from medimg_eval.results.cards import build_cards
from medimg_eval.results.comparison import CompareSettings, compare, marked
from medimg_eval.results.table import Look, Settings, build_authors_tables, build_severity_tables, build_table
from medimg_eval.results.utility import load_utility, utility_of_card

if TYPE_CHECKING:
    from medimg_eval.results.runs import RunScores
    from medimg_eval.results.table import Comparison, Table

AUTHORS, CARD, SEVERITY = "authors", "card", "severity"
INTERVALS = ("resamples", "level", "seed", "interval", "stratify_by")


def tables_of(runs: Sequence[RunScores], wanted: Mapping[str, Any]) -> dict[str, Table]:
    """Tables of runs, or papers' own, by file stem.

    Args:
        runs: which.
        wanted: the keys of the command `table`.

    Raises:
        UsageError: what is asked for does not exist.
        UserError: there are no scores to show.
    """
    tables = {"table": _usual_table(runs, wanted)} if wanted["table"] is None else _author_tables(runs, wanted)
    look = Look(**{key: wanted[key] for key in Look._fields})
    return {stem: _mark_significance(table.looking(look), wanted) for stem, table in tables.items()}


def comparison_of(runs: Sequence[RunScores], wanted: Mapping[str, Any]) -> Comparison:
    """Compares models by a metric; `wanted` has the keys of the command `compare`."""
    if not wanted["metric"]:
        raise UsageError("metric is not set; name one, such as dice")
    settings = ("test", "correction", "alpha", "margin", "resamples", "seed")
    return compare(
        runs,
        wanted["metric"],
        by=None if wanted["by"] is None else str(wanted["by"]),
        baseline=None if wanted["baseline"] is None else str(wanted["baseline"]),
        how=CompareSettings(**{name: wanted[name] for name in settings}),
    )


def _usual_table(runs: Sequence[RunScores], wanted: Mapping[str, Any]) -> Table:
    table = build_table(
        runs,
        metrics=_parse_metrics(wanted["metrics"]),
        by=None if wanted["by"] is None else str(wanted["by"]),
        mean=wanted["mean"],
        **{key: wanted[key] for key in INTERVALS},
        published_numbers=_shows_published(wanted),
    )
    if not table.columns:
        raise UserError(
            "There are no scores that a table shows by itself; name summaries that rest on those there are, such as "
            f"metrics=[auroc@macro] ({'; '.join(table.footnotes)})"
        )
    return table


def _mark_significance(table: Table, wanted: Mapping[str, Any]) -> Table:
    """Returns a table with signs of significance if they are asked for."""
    if wanted["marks"] is None:
        return table
    if wanted["mean"] != "case":
        raise UsageError(f"marks come from tests of means over cases; leave out mean={wanted['mean']}")
    how = CompareSettings(resamples=wanted["resamples"], seed=wanted["seed"])
    return marked(table, str(wanted["marks"]), how)


def _parse_metrics(said: Any) -> list[str] | dict[str, list[str]] | None:
    """Returns the metrics asked for, of all tasks or by task."""
    if isinstance(said, dict):
        return {str(task): as_list(names) for task, names in said.items()}
    return None if said is None else as_list(said)


def _author_tables(runs: Sequence[RunScores], wanted: Mapping[str, Any]) -> dict[str, Table]:
    """Returns the tables by the name of their files."""
    UsageError.refuse_invalid("table", (AUTHORS, CARD, SEVERITY), wanted["table"])
    own: dict[str, Any] = {"marks": None} if wanted["table"] == SEVERITY else {"metrics": None}
    for key, usual in {**own, "by": None, "mean": "case"}.items():
        if wanted[key] != usual:
            raise UsageError(f"table={wanted['table']} has columns of its own; leave out {key}={wanted[key]}")
    if wanted["table"] == CARD:
        if _shows_published(wanted):
            raise UsageError(
                "published numbers have no place on the score card of pictures; leave out published_numbers=true"
            )
        folders = [Path(path) for path in as_list(wanted["runs"])]
        # Studies of utility lie where the runs do, or in the folder `utility` beside them.
        folders_ = [folder / "utility" for path in folders for folder in path.parents[:2]]
        studies = load_utility(list(dict.fromkeys([*folders, Path("runs/utility"), *folders_])))
        bootstrap = {key: wanted[key] for key in ("resamples", "level", "seed")}
        tables = build_cards(runs, utility_of_card(runs, studies, **bootstrap))
    elif wanted["table"] == SEVERITY:
        how = Settings(wanted["resamples"], wanted["level"], wanted["seed"], "case", wanted["interval"])
        tables = build_severity_tables(runs, metrics=_parse_metrics(wanted["metrics"]), settings=how)
    else:
        numbers = {key: wanted[key] for key in INTERVALS}
        tables = build_authors_tables(runs, **numbers, published_numbers=_shows_published(wanted))
    if len(tables) == 1:
        return {"table": tables[0]}
    return {f"table-{table.columns[0].task}": table for table in tables}


def _shows_published(wanted: Mapping[str, Any]) -> bool:
    """Returns whether published numbers are shown."""
    if not isinstance(wanted["published_numbers"], bool):
        raise UsageError(f"published_numbers must be true or false, got {wanted['published_numbers']!r}")
    return bool(wanted["published_numbers"])
