"""Labels of reports by a language model, as the command `label` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from medimg_eval.api.asking import Asked, Overrides, resolving
from medimg_eval.arguments import as_list
from medimg_eval.errors import UsageError, UserError
from medimg_eval.instantiate import build_candidate

if TYPE_CHECKING:
    from medimg_eval.evaluation.labelling.report_labels import ReportLabels
    from medimg_eval.evaluation.model_spec import ModelSpec
    from medimg_eval.metrics.reports import LabelScheme
    from medimg_eval.results.table import Sheet
    from medimg_eval.tasks.base import MayLeave


class Labelled(NamedTuple):
    """Labels of a table of reports.

    Attributes:
        labels: with the replies and their cost.
        files: that were written.
        agreement: with people; None where no labels of theirs were given.
    """

    labels: ReportLabels
    files: list[Path]
    agreement: Sheet | None


class _Given(NamedTuple):
    """User's table, without a card on data permission."""

    name: str
    may_leave: MayLeave = "ask"


def label(
    reports: str | Path,
    model: Any,
    scheme: str | Path | Mapping[str, Any] = "chexpert",
    *,
    human: str | Path | None = None,
    out: str | Path | None = None,
    overrides: Overrides = (),
    config_dir: str | Path | None = None,
    trust: bool = False,
    **settings: Any,
) -> Labelled:
    """Labels reports by language model, and compares with people's labels.

    It takes what the command `label` takes.

    Args:
        reports: a table of reports.
        model: that writes: name of a config, a config with `_target_`, or an object with `generate`.
        scheme: of `configs/labelling` by name, a YAML file, or its content.
        human: a table of people's labels.
        out: folder; `labels` without it.
        overrides: further changes, such as `{"model.batch": 4}`.
        config_dir: a folder of configs of your own.
        trust: whether code that a folder brings may run.
        settings: keys of the command `label`, such as `column="text"`, `patient="subject_id"`.

    Raises:
        UserError: nothing can be done: a file, column or scheme does not exist, or the model cannot be asked.
    """
    request = Asked("label", None, model, None, None, "", overrides, config_dir, trust)
    given_settings = {**settings, "reports": str(reports), "human": None if human is None else str(human)}
    given_settings["scheme"] = scheme if isinstance(scheme, Mapping) else str(scheme)
    if out is not None:
        given_settings["out"] = str(out)
    with resolving(request, given_settings) as resolved:
        return run_labelling(resolved.config, resolved.model)


def run_labelling(wanted: Mapping[str, Any], model: ModelSpec | None = None) -> Labelled:
    """Labels the reports that a resolved config of `label` names."""
    from medimg_eval.data.given_reports import read_reports
    from medimg_eval.evaluation.labelling.label_files import FILES, write_labels
    from medimg_eval.evaluation.labelling.report_labels import label_reports
    from medimg_eval.evaluation.leaving import permit
    from medimg_eval.metrics.reports import LabelScheme
    from medimg_eval.settings import undisturbed

    if model is None and not wanted.get("model"):
        raise UsageError("no model is named; add model=NAME, such as model=huggingface_vlm model.checkpoint=NAME")
    forms = [str(form) for form in as_list(wanted["write"])]
    UsageError.refuse_unknown("write names", FILES, *forms)
    stated = wanted["scheme"]
    scheme = LabelScheme.of(stated) if isinstance(stated, Mapping) else LabelScheme.load(str(stated))
    if "rate" in forms and not scheme.positive:
        raise UsageError("write=rate is of findings that are stated or not; say by `states` which values are positive")
    spec = build_candidate(wanted["model"]) if model is None else model
    if not callable(getattr(spec.wrapper, "generate", None)):
        raise UsageError(f"model {spec.name!r} ({spec.wrapper.__name__}) cannot write; name a model with generate()")
    file = Path(str(wanted["reports"])).expanduser()
    columns = {key: None if wanted[key] is None else str(wanted[key]) for key in ("id", "patient")}
    reports = read_reports(file, str(wanted["column"]), columns["id"], columns["patient"])[: wanted["limit"]]
    people = _read_people(wanted, scheme) if wanted["human"] is not None else {}  # refused before a model is asked

    def permitted() -> None:
        permit(_Given(file.name), wanted["may_leave"], "model", spec.name, spec.model, ["reports"])

    with undisturbed():
        labels = label_reports(
            reports,
            scheme,
            spec,
            permitted=permitted,
            accelerator=str(wanted["accelerator"]),
            seed=int(wanted["seed"]),
        )
    folder = Path(str(wanted["out"])).expanduser()
    files = write_labels(labels, folder, forms)
    return Labelled(labels, files, _agreement_sheet(labels, people, wanted) if people else None)


def cost_in_words(labels: ReportLabels) -> str:
    """Sentence on tokens, seconds and price, in total and per report."""
    cost, number = labels.cost(), len(labels.reports)
    parts = []
    for name, words in (("input", "tokens read"), ("output", "tokens written")):
        value = getattr(cost, name)
        parts.append(f"{words} {value:,} ({value / number:,.1f} a report)" if value is not None else f"{words} unknown")
    if cost.seconds is not None:
        parts.append(f"{cost.seconds:,.2f} s ({cost.seconds / number:.3f} a report)")
    if cost.cost is not None:
        parts.append(f"price {cost.cost:,.4f} ({1000 * cost.cost / number:,.3f} for 1,000 reports)")
    return f"Cost of {labels.model} on {number:,} reports: {'; '.join(parts)}."


def _read_people(wanted: Mapping[str, Any], scheme: LabelScheme) -> dict[str, dict[str, str]]:
    from medimg_eval.data.given_reports import read_labels

    named = None if wanted["id"] is None else str(wanted["id"])
    return read_labels(Path(str(wanted["human"])).expanduser(), scheme, named, str(wanted["codes"]))


def _agreement_sheet(labels: ReportLabels, people: Mapping[str, Mapping[str, str]], wanted: Mapping[str, Any]) -> Sheet:
    from medimg_eval.results.agreement import Compared, LabelValues, agreement_with_people

    scheme, file = labels.scheme, Path(str(wanted["human"]))
    judged = [index for index, report in enumerate(labels.reports) if report.id in people]
    if not judged:
        raise UserError(
            f"{file}: labels none of the reports; its ids and those of {wanted['reports']} have none in common"
        )
    read = labels.values()
    values = LabelValues(list(scheme.values), scheme.positive, scheme.values_of("uncertain"), scheme.values_of("blank"))
    unread = sum(not value for index in judged for value in read[index].values())
    notes = [cost_in_words(labels), f"Not read: {unread:,} of {len(judged) * len(scheme.findings):,} labels."]
    return agreement_with_people(
        [people[labels.reports[index].id] for index in judged],
        [read[index] for index in judged],
        values,
        patients=[labels.reports[index].patient for index in judged],
        compared=Compared(file.stem, labels.model, Path(str(wanted["reports"])).name, notes),
        **{key: wanted[key] for key in ("resamples", "level", "seed")},
    )
