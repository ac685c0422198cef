"""What a reader must know to trust a table: how it was computed, what it rests on, and what was left out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from medimg_eval import metrics
from medimg_eval.metrics.proportions import FEW_TRIALS
from medimg_eval.results.runs import (
    LABEL,
    UNKNOWN,
    Part,
    is_evidence,
    is_known,
    is_set,
    is_summary,
    labels_of,
    left_out,
    listed,
    salt_names,
    stratifying,
    validation_notes,
)
from medimg_eval.results.statistics import (
    BCA,
    EQUAL,
    EXACT,
    EXPANSION,
    FEWEST,
    MANY_CLUSTERS,
    MOST_LEFT_OUT,
    MOST_RESAMPLES,
    PERCENTILE,
    TOO_FEW,
    WILSON,
    rows_of,
)
from medimg_eval.results.table.cells import ALL_EQUAL, NO_METRIC, NO_RUN, SMALL_N, Cell, Column, Row, Settings
from medimg_eval.results.table.groups import GAP, SMALL
from medimg_eval.results.table.kind_footnotes import (
    chance_note,
    question_basis,
    question_facts,
    set_notes,
    set_warnings,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from medimg_eval.metrics import ScoreTable
    from medimg_eval.results.runs import RunScores


class _Entry(NamedTuple):
    """One row within one task."""

    name: str
    run: RunScores
    cells: tuple[tuple[Column, Cell], ...]


class _Group(NamedTuple):
    """One task with the rows that were run on it."""

    title: str
    entries: list[_Entry]

    @property
    def asks(self) -> bool:
        """Whether its cases are put in words."""
        return all(entry.run.asks for entry in self.entries)

    @property
    def finished(self) -> list[_Entry]:
        return [entry for entry in self.entries if entry.run.finished]

    @property
    def models(self) -> list[_Entry]:
        """Finished models without baselines."""
        return [entry for entry in self.finished if not entry.run.baseline] or self.finished


def write_footnotes(
    columns: Sequence[Column],
    rows: Sequence[Row],
    *,
    shown: Sequence[Row],
    settings: Settings,
    hidden: Sequence[str],
    by: str,
) -> list[str]:
    """Returns the footnotes of a table as plain sentences, in reading order.

    Args:
        columns: The table's columns.
        rows: One row per model.
        shown: The rows as the table has them: ranked, and divided where it is.
        settings: How the numbers were computed.
        hidden: Titles of the tasks that have no score of any metric asked for.
        by: What the table is divided by, if it is.
    """
    groups = _note_groups(columns, rows)
    notes = [*_method_notes(columns, groups, shown, settings), *_legend_notes(shown, by)]
    for group in groups:
        notes += [
            *_basis_notes(group),
            *_chance_notes(group),
            *_warning_notes(group),
            *_different_cases(group),
            *_of_sets(group),
        ]
        for entry in group.entries:
            notes += [f"{group.title}, {entry.name}: {fact}." for fact in (*_fact_notes(entry), *left_out(entry.run))]
        from_manifests = dict.fromkeys(note for entry in group.entries for note in entry.run.notes)
        notes += [f"{group.title}: {note}" for note in from_manifests]
    if any(_label_counts(entry.run) for group in groups for entry in group.finished):
        notes.append("missed: a label in the reference only; hallucinated: in the prediction only; absent: in neither.")
    notes += [
        f"{column.title} is not a known metric: without a direction it is not ranked."
        for column in {column.metric: column for column in columns}.values()
        if column.metric != NO_METRIC and column.higher_is_better is None and not is_known(column.metric)
    ]
    notes += [f"{title} is not shown: it has no scores of the metrics asked for." for title in hidden]
    if older := sum(len(entry.run.left_out) for group in groups for entry in group.entries):
        notes.append(
            f"{_count_noun(older, 'older run')} of the same task and model name left out; "
            "name a run folder to show it beside the newest."
        )
    return notes


def comparability(title: str, runs: Mapping[str, RunScores]) -> list[str]:
    """Returns the basis of a task's runs, and obstacles to comparison.

    Args:
        title: The task's title.
        runs: The runs by model.
    """
    group = _Group(title, [_Entry(name, run, ()) for name, run in runs.items()])
    return [*_basis_notes(group), *_warning_notes(group)]


def _note_groups(columns: Sequence[Column], rows: Sequence[Row]) -> list[_Group]:
    groups = []
    for task, title in {column.task: column.group for column in columns}.items():
        entries = []
        for row in rows:
            cells = tuple(
                (column, cell) for column, cell in zip(columns, row.cells, strict=True) if column.task == task
            )
            run = cells[0][1].run
            if run is not None:
                entries.append(_Entry(row.name, run, cells))
        groups.append(_Group(title, entries))
    return groups


def _method_notes(
    columns: Sequence[Column], groups: Sequence[_Group], shown: Sequence[Row], settings: Settings
) -> Iterator[str]:
    """Yields what the numbers are, once there are numbers."""
    units: dict[str, dict[str, None]] = {}
    for group in groups:
        for entry in group.finished:
            units.setdefault(entry.run.unit, {})[group.title] = None
    if not units:
        return
    if len(units) == 1:
        what = next(iter(units))
    else:
        what = " and ".join(f"{unit} ({', '.join(titles)})" for unit, titles in sorted(units.items()))
    strata = dict.fromkeys(stratifying(entry.run, settings.stratify_by) for group in groups for entry in group.finished)
    within = f" within strata of {listed(names)}" if (names := [name for name in strata if name]) else ""
    methods = _interval_methods(columns, shown)

    def interval(resamples: int, of: Sequence[str]) -> str:
        how = f"{100 * settings.level:g} % interval"
        kinds = {method for metric in of for method in methods[metric]}
        if kinds and kinds <= {WILSON, EXACT, EXPANSION}:
            return f"[{how}]"
        bounds = "BCa" if settings.interval == BCA else PERCENTILE
        return f"[{how}: {bounds} bootstrap, {resamples:,} resamples of {what}{within}, seed {settings.seed}]"

    # A paper's own table calls its columns otherwise, and may have one metric in several of them.
    summaries = {column.metric: metrics.title(column.metric) for column in columns if is_summary(column.metric)}
    sets = {column.metric: metrics.title(column.metric) for column in columns if is_set(column.metric)}
    if means := [metric for metric in methods if metric not in summaries and metric not in sets]:
        nouns = listed(list(dict.fromkeys(entry.run.noun for group in groups for entry in group.entries)))
        over = "labels" if settings.mean == "class" else nouns if all(group.asks for group in groups) else "cases"
        counted = {
            "cases": "; a case counts with the mean over its labels (case-macro)",
            "labels": "; a label counts with the mean over its cases (class-macro)",
        }
        yield f"Mean over {over} {interval(settings.resamples, means)}{counted.get(over, '')}."
    if summaries:
        most = min(settings.resamples, MOST_RESAMPLES)
        yield f"{listed(list(summaries.values()))}: one value for all cases together {interval(most, list(summaries))}."
    if sets:
        yield (
            f"{listed(list(sets.values()))}: one value for all pictures together [95 % interval of its own]; grey: "
            "fewer than 50 images on a side."
        )
    yield from _told_once((title, metrics.get(metric).definition) for metric, title in (summaries | sets).items())
    settings_of = [(column.title, metrics.get(column.metric).settings) for column in columns if is_known(column.metric)]
    yield from _told_once((title, f"{how}.") for title, how in settings_of if how)
    yield from _other_intervals(columns, methods, " or ".join(sorted(units)), within, settings)


def _interval_methods(columns: Sequence[Column], rows: Sequence[Row]) -> dict[str, set[str]]:
    """Returns how the intervals of each metric were made."""
    methods: dict[str, set[str]] = {column.metric: set() for column in columns}
    for row in rows:
        for column, cell in zip(columns, row.cells, strict=True):
            if cell.n and cell.method:
                methods[column.metric].add(cell.method)
    return methods


def _other_intervals(
    columns: Sequence[Column], methods: Mapping[str, set[str]], what: str, within: str, settings: Settings
) -> Iterator[str]:
    """Yields which columns have intervals that are not the bootstrap asked for."""
    descriptions = {
        WILSON: f"Wilson interval of a proportion, of values that are 0 or 1, one for each of the {what}.",
        EXACT: "exact interval (Clopper and Pearson) of a proportion, of values that are 0 or 1, where these are all "
        f"the same or of at most {FEW_TRIALS} {what}.",
        EXPANSION: (
            f"{'BCa' if settings.interval == BCA else PERCENTILE} bootstrap of more than {MANY_CLUSTERS:,} "
            f"{what}{within}, none of it drawn: quantiles from the moments of what these add, expanded to the second "
            "order (Cornish and Fisher)."
        ),
    }
    if settings.interval == BCA:
        descriptions[PERCENTILE] = (
            f"percentile interval where BCa has none: where all resamples agree, or more than {MOST_LEFT_OUT:,} {what} "
            "would be left out one by one."
        )
    yield from _told_once(
        (column.title, note)
        for method, note in descriptions.items()
        for column in columns
        if method in methods[column.metric]
    )
    if any(TOO_FEW in method for method in methods.values()):
        yield f"{SMALL_N}: a bootstrap of fewer than {FEWEST} {what} covers far less than it says."
    if any(EQUAL in method for method in methods.values()):
        yield (
            f"{ALL_EQUAL}: all values are the same, and so would all resamples be; how much others would differ is "
            "unknown."
        )


def _told_once(facts: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yields notes on columns, merging equal ones."""
    titles: dict[str, dict[str, None]] = {}
    for title, fact in facts:
        titles.setdefault(fact, {})[title] = None
    yield from (f"{listed(list(of))}: {fact}" for fact, of in titles.items())


def _legend_notes(rows: Sequence[Row], by: str) -> Iterator[str]:
    cells = [cell for row in rows for cell in row.cells]
    if any(cell.mark for cell in cells):
        among = "" if not by else f" and {'label' if by == LABEL else 'group'}"
        yield f"Best of each column{among} in bold, second underlined; means equal as printed share their mark."
    if baselines := dict.fromkeys(row.name for row in rows if row.baseline):
        yield f"Baselines, below the models, neither ranked nor tested: {', '.join(baselines)}."
    if any(cell.absent for cell in cells):
        also = "" if not by else ", or has no such label there" if by == LABEL else ", or has no such cases there"
        yield f"{NO_RUN}: the model was not run on this task{also}."
    if any(cell.unscored and cell.matched for cell in cells):
        yield f"{NO_RUN}: the model was not scored by this metric."
    if by:
        few = any(cell.remark.endswith("*") for cell in cells)
        yield "n: cases with a value" + (f"; *: fewer than {SMALL}." if few else ".")
    if any(row.group == GAP for row in rows):
        without = f", without the cases whose {by} is {UNKNOWN}" if any(row.group == UNKNOWN for row in rows) else ""
        yield f"{GAP}: largest minus smallest value of the groups by {by} of at least {SMALL} cases{without}."


def _basis_notes(group: _Group) -> Iterator[str]:
    """Yields cases, patients and score settings."""
    signatures = _names_by(group.models, lambda run: run.signature)
    basis = question_basis(group.title, [entry.run for entry in group.entries]) if group.asks else _case_basis(group)
    if len(signatures) > 1 and any(_scored_differently(group)):  # which says them
        yield f"{basis}."
        return
    whose = [f"{names}: {signature}" if len(signatures) > 1 else signature for signature, names in signatures.items()]
    yield f"{'; '.join([basis, *whose])}."


def _case_basis(group: _Group) -> str:
    sizes = sorted({entry.run.cases for entry in group.entries})
    by_patient = [entry.run for entry in group.finished if entry.run.resampled == "patients"]
    patients = sorted({run.scores["patient"].nunique() for run in by_patient})
    basis = f"{group.title}: n = {' or '.join(map(str, sizes))} {group.entries[0].run.noun}"
    if patients:
        basis += f" of {' or '.join(map(str, patients))} patients"
    return basis


def _chance_notes(group: _Group) -> Iterator[str]:
    shown_metrics = dict.fromkeys(column.metric for entry in group.entries for column, _ in entry.cells)
    if group.asks:
        yield from chance_note(group.title, [entry.run for entry in group.finished], list(shown_metrics))


def _warning_notes(group: _Group) -> Iterator[str]:
    """Yields why the rows of one task may not be comparable."""
    for entry in group.entries:
        if entry.run.partial:
            mend = "test without limit= and only= goes on to all"
            yield f"Warning: {group.title}, {entry.name}: a partial run, {entry.run.partial}; {mend}."
    yield from _scored_differently(group)
    fingerprints = _names_by(group.finished, lambda run: run.data_fingerprint)
    if len(fingerprints) > 1 and not _own_cases(group):
        parts = "; ".join(f"{names} on {fingerprint}" for fingerprint, names in fingerprints.items())
        yield f"Warning: the data of {group.title} differ, so its rows are not comparable: {parts}."
    if len(salts := _names_by([entry for entry in group.finished if salt_names(entry.run)], salt_names)) > 1:
        parts = "; ".join(f"{names} with {salt}" for salt, names in salts.items())
        yield (
            f"Warning: patients of {group.title} are named with different salts, so its rows cannot be paired: {parts}."
        )
    if len(labels := _names_by(group.finished, lambda run: ", ".join(sorted(labels_of(run)["label"].unique())))) > 1:
        parts = "; ".join(f"{names} on {salt}" for salt, names in labels.items())
        yield f"Warning: {group.title} was scored on different labels, so its rows are not comparable: {parts}."


def _scored_differently(group: _Group) -> Iterator[str]:
    """Yields metrics that rows computed differently."""
    if not all(entry.run.definitions for entry in group.models):
        parts = _in_words(_names_by(group.models, lambda run: run.signature))
        yield from (f"Warning: {group.title} was scored in different ways: {part}." for part in parts)
        return
    titles: dict[str, list[str]] = {}
    for metric in dict.fromkeys(metric for entry in group.models for metric in entry.run.definitions):
        holders = [entry for entry in group.models if metric in entry.run.definitions]
        for part in _in_words(_names_by(holders, lambda run: run.definitions[metric])):  # noqa: B023 - called at once
            titles.setdefault(part, []).append(metrics.title(metric) if is_known(metric) else metric)
    for part, of in titles.items():
        yield f"Warning: {group.title} was scored in different ways by {listed(of)}: {part}."


def _in_words(names: Mapping[str, str]) -> list[str]:
    """Returns wordings with row names, where they differ."""
    return ["; ".join(f"{held_by} with {wording}" for wording, held_by in names.items())] if len(names) > 1 else []


def _different_cases(group: _Group) -> Iterator[str]:
    """Yields that a task's rows rest on different cases."""
    columns = [entry.run.scores["case"].reset_index(drop=True) for entry in group.finished]
    if all(column.equals(columns[0]) for column in columns):
        return  # without a set of each, which takes a while where cases are very many
    case_sets = {frozenset(column.unique()) for column in columns}
    if len(case_sets) > 1 and not _own_cases(group):
        sizes = ", ".join(f"{entry.name} {entry.run.scores['case'].nunique()}" for entry in group.finished)
        shared = len(frozenset.intersection(*case_sets))
        yield (
            f"Warning: {group.title} was scored on different cases, so its rows are not comparable: "
            f"{sizes}; {shared} in common."
        )


def _own_cases(group: _Group) -> bool:
    """Returns whether models have own cases, as generated pictures."""
    layouts = [entry.run.task_config.get("layout") or {} for entry in group.entries]
    return all(str(layout.get("_target_")).endswith(".PictureSets") for layout in layouts)


def _of_sets(group: _Group) -> Iterator[str]:
    if group.finished:
        columns = [column for column, _ in group.entries[0].cells if is_set(column.metric)]
        runs = {entry.name: entry.run for entry in group.models}
        yield from set_warnings(group.title, runs, columns)
        yield from set_notes(group.title, {entry.name: entry.cells for entry in group.finished})


def _names_by(entries: Sequence[_Entry], key: Callable[[RunScores], str]) -> dict[str, str]:
    """Returns the row names that share each value of `key`, joined by commas."""
    names: dict[str, str] = {}
    for entry in entries:
        value = key(entry.run)
        names[value] = f"{names[value]}, {entry.name}" if value in names else entry.name
    return names


def _fact_notes(entry: _Entry) -> Iterator[str]:
    """Yields what is missing, failed or undefined in one run."""
    run = entry.run
    if not run.finished:
        state = {"running": "not finished", "failed": "stopped by an error"}.get(run.status, run.status)
        yield f"{state}, {run.predicted} of {run.cases} cases predicted; not averaged (run {run.run})"
        return
    scored = run.scores["case"].nunique()
    if scored != run.cases:
        yield f"{scored} of {run.cases} cases have scores"
    yield from _failure_notes(entry)
    if run.asks:
        yield from question_facts(run)
    if counts := _label_counts(run):
        total = len(labels_of(run))
        yield f"of {_count_noun(total, 'label')}, {', '.join(f'{n} {status}' for status, n in counts.items())}"
    for column, cell in entry.cells:
        yield from _cell_facts(column, cell)
    yield from _spread_notes(entry)
    yield from _not_shown(entry)
    yield from _remark_notes(entry)
    yield from _validation_notes(entry)
    # Numbers that summaries may have used beside scores.
    numbers = {name: value for name, value in entry.run.facts.items() if isinstance(value, int | float)}
    if numbers and any(is_summary(column.metric) for column, _ in entry.cells):
        yield f"facts: {', '.join(f'{name} {value:,}' for name, value in numbers.items())}"


def _cell_facts(column: Column, cell: Cell) -> Iterator[str]:
    """Yields what one cell lacks or leaves out."""
    if not cell.matched:
        return
    if cell.undefined_labels:
        whole_text = f" ({_count_noun(cell.undefined_cases, 'whole case')})" if cell.undefined_cases else ""
        labels = _count_noun(cell.undefined_labels, "label")
        yield f"{column.title} undefined for {labels}{whole_text}, left out of the mean"
    if not cell.rows and column.metric != NO_METRIC:
        yield f"no {column.title} scores; score the run again to have them"
    elif cell.raised:
        yield f"{column.title} undefined: it raised {cell.raised}"
    elif is_summary(column.metric) and not cell.n:
        hint = " (it needs efficiency=true; see docs/definitions/run_metrics.md)" if column.metric == "u_score" else ""
        yield f"{column.title} undefined: its rows or facts do not suffice{hint}"
    if cell.dropped:
        yield f"{column.title} undefined on {_count_noun(cell.dropped, 'resample')}, left out of its interval"


def _spread_notes(entry: _Entry) -> Iterator[str]:
    """Yields the spread of a run's repeats; nothing for one."""
    if entry.run.repeats < 2:
        return
    texts = []
    for column, cell in entry.cells:
        of = (
            [f"{column.text(cell.between)} between {'folds' if entry.run.in_folds else 'repeats'}"]
            if cell.between is not None and not math.isnan(cell.between)
            else []
        )
        of += (
            [f"{column.text(cell.within)} within cases"]
            if cell.within is not None and not math.isnan(cell.within)
            else []
        )
        texts += [f"{column.title} {' and '.join(of)}"] if of else []
    sds = f"; SD (n - 1): {', '.join(texts)}" if texts else ""
    if entry.run.in_folds:
        deviations_text = f"; SD (n - 1), which is no interval: {', '.join(texts)}" if texts else ""
        yield f"summaries are of each of {entry.run.repeats} folds by itself, then their mean{deviations_text}"
        return
    if entry.run.subsets:
        last = max(entry.run.subsets, key=lambda one: one["size"])
        meant = f"of the largest size, {last['kind']} {last['size']:g} ({last['patients']} patients)"
        yield f"mean over {entry.run.repeats} draws {meant} of what is fitted on{sds}; by=condition shows each size"
        return
    yield f"mean over {entry.run.repeats} repeats of a case, and n counts cases{sds}"


def _not_shown(entry: _Entry) -> Iterator[str]:
    """Yields the task's metrics without any value."""
    scored = {*entry.run.scores["metric"].unique(), *entry.run.sets["metric"].unique()}
    wanted = [name for name in entry.run.metrics if not (is_summary(name) or is_evidence(name))]
    shown_metrics = {column.metric for column, _ in entry.cells}
    if any(name in scored and name not in shown_metrics for name in wanted):
        return  # some columns were asked for, and others were not
    for name in (metric for metric in wanted if metric not in scored):
        why = "no judge was asked" if name.startswith("judge") else "it judges none of the cases"
        yield f"no {metrics.title(name) if is_known(name) else name} scores: {why}"


JUDGED = "judged@"
"""How metrics are called that are a judge's verdict on one question."""


def _validation_notes(entry: _Entry) -> Iterator[str]:
    """Yields agreement of the shown judge with people, or none."""
    questions = [column.metric.removeprefix(JUDGED) for column, _ in entry.cells if column.metric.startswith(JUDGED)]
    yield from validation_notes(entry.run.folder, dict.fromkeys(questions))


def _remark_notes(entry: _Entry) -> Iterator[str]:
    """Yields what summaries have to say of a run, each thing once."""
    remarks: dict[str, None] = {}
    whole_part = Part.whole(entry.run)
    rows_by_needs: dict[
        tuple[tuple[str, ...], bool], ScoreTable
    ] = {}  # of the last summary: those that follow mostly need the same
    for column, cell in entry.cells:
        definition, parameter = metrics.parse(column.metric) if is_summary(column.metric) else (None, None)
        if definition is not None and definition.remark is not None and cell.rows:
            key = whole_part.needed(column.metric), entry.run.in_folds or definition.over == "repeats"
            if key not in rows_by_needs:
                rows_by_needs = {key: rows_of(whole_part, key[0], every=key[1])}
            rows = rows_by_needs[key]
            remarks[definition.remark(rows, *(() if parameter is None else (parameter,)))] = None
    yield from (remark for remark in remarks if remark)


def _failure_notes(entry: _Entry) -> Iterator[str]:
    scores = entry.run.scores
    failed = int(scores.loc[scores["status"] == "failed", "case"].nunique())
    if not failed:
        return
    fact = f"{failed} of {entry.run.cases} cases failed, counted at the metric's worst value"
    if exceptions := [f"{cell.not_judged} by {column.title}" for column, cell in entry.cells if cell.not_judged]:
        fact += f", except those not judged and left out of the mean: {', '.join(exceptions)}"
    yield fact


def _label_counts(run: RunScores) -> dict[str, int]:
    """Returns how many labels were missed, hallucinated or absent; only those that occur."""
    judged = labels_of(run)
    # Of classes, `absent` is what is true of one, and no outcome.
    classes = [
        metric
        for metric in judged["metric"].unique()
        if is_known(metric) and metrics.get(metric).kind == "classification"
    ]
    labels = judged.loc[~judged["metric"].isin(classes), "status"]
    counts = {status: int((labels == status).sum()) for status in ("missed", "hallucinated", "absent")}
    return {status: number for status, number in counts.items() if number}


def _count_noun(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
