"""What annotators, networks and extractors share: whether they are ready, asking in batches, names in a note."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from medimg_eval.errors import CaseError, UserError

if TYPE_CHECKING:
    from medimg_eval.evaluation.model_spec import ModelSpec

NAMED = 3
"""Cases, or pictures, that a note names."""


def made_as(kinds: tuple[type, ...], group: str, name: str, made: Any) -> Any:
    """Returns what a config makes, under its name; raises UserError if it is of none of the kinds."""
    if not any(isinstance(made, kind) for kind in kinds):
        no = " and ".join(f"no {kind.__name__}" for kind in kinds)
        raise UserError(f"{group}.{name}: {type(made).__name__} is {no}")
    made.name = name
    return made


def ready(
    kinds: tuple[type, ...],
    group: str,
    known: Mapping[str, ModelSpec],
    wanted: Mapping[str, Sequence[str]],
    unable: Callable[[Sequence[str], Any], list[str]] = lambda metrics, made: [],
    also: Sequence[str] = (),
) -> dict[str, str]:
    """Returns the revisions of those that metrics rest on, by name, before a model is loaded.

    Args:
        kinds: one of which each has to be.
        group: of the config: `annotators` or `extractors`.
        known: name -> what it is made of.
        wanted: name -> the metrics that rest on it.
        unable: what such metrics want of one that it cannot do, in sentences.
        also: what metrics lack beside these.

    Raises:
        UserError: something is lacking; the message names all of it, of weights the file, the source and the key.
    """
    revisions: dict[str, str] = {}
    lacks: list[str] = []
    for name, metrics in wanted.items():
        whose = ", ".join(metrics)
        if name not in known:
            mend = f"add {group}.{name}._target_=YOUR.CLASS"
            lacks.append(f"{whose}: there is no {group.removesuffix('s')} {name!r}; {mend}")
            continue
        try:
            made = made_as(kinds, group, name, known[name].load())
            if cannot := unable(metrics, made):
                lacks += cannot
                continue
            made.check_ready()
            revisions[name] = made.revision
        except UserError as error:
            lacks.append(f"{whose}: {error}")
    if lacks := [*lacks, *also]:
        hint = "; python -m medimg_eval check metrics=all lists" if group == "annotators" else ""
        raise UserError("\n".join(lacks) + f"\nor leave such metrics out{hint}")
    return revisions


def one_by_one(
    ask: Callable[[Any], list[Any]], items: Sequence[Any], failed: Callable[[Any, Exception], Any]
) -> list[Any]:
    """Returns what is said of each item; where a batch fails, they are asked about alone, and `failed` stands in.

    Raises:
        UserError: no item would fare better, as with a key that is refused.
    """
    try:
        return ask(items)
    except Exception as error:
        if isinstance(error, UserError) and not isinstance(error, CaseError):
            raise
        if len(items) == 1:
            return [failed(items[0], error)]
    return [said for item in items for said in one_by_one(ask, [item], failed)]


def first_names(names: Sequence[str]) -> str:
    """Returns the first of some names, for a note."""
    return ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
