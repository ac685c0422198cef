"""Taxonomies of labels: which there are, what sets of them papers average over, and how a name chooses among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.metrics.reports.labels.f1 import AVERAGES, Uncertain, positive_states
from medimg_eval.metrics.reports.labels.pet_uptake import uptake_names

CHEXPERT_13 = (
    "Enlarged Cardiomediastinum",
    "Cardiomegaly",
    "Lung Opacity",
    "Lung Lesion",
    "Edema",
    "Consolidation",
    "Pneumonia",
    "Atelectasis",
    "Pneumothorax",
    "Pleural Effusion",
    "Pleural Other",
    "Fracture",
    "Support Devices",
)
"""CheXpert's observations without No Finding."""

CHEXPERT_14 = (*CHEXPERT_13, "No Finding")
"""CheXpert's observations, in CheXbert's order; that of CheXpert's own labeler differs, so join by name."""

CHEXPERT_5 = ("Cardiomegaly", "Edema", "Consolidation", "Atelectasis", "Pleural Effusion")
"""The five that CheXpert's competition was scored on."""

ALL = "all"


@dataclass(frozen=True)
class Choice:
    """Parameter of a metric of labels, behind the "@": `micro-14+`, `macro-5`, `Edema+`.

    Attributes:
        average: "micro", "macro", "weighted" or "samples"; "micro" of one label.
        labels: which are judged.
        uncertain: what an uncertain one counts as.
    """

    average: str
    labels: tuple[str, ...]
    uncertain: Uncertain

    @property
    def positive(self) -> tuple[int, ...]:
        """The states that count as positive."""
        return positive_states(self.uncertain)


@dataclass(frozen=True)
class Taxonomy:
    """Labels that a labeller gives to reports.

    Attributes:
        labels: all of them.
        sets: name -> some of them that are averaged over, such as "5"; all of them are "all", and their number.
        source: where the list comes from.
        words: of a labeller that knows words alone, as `uptake_labels` does.
    """

    labels: tuple[str, ...]
    sets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    source: str = ""
    words: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuses sets that name other labels."""
        for name, some in self.sets.items():
            UsageError.refuse_unknown(f"set {name!r} of labels names", self.labels, *some)

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Taxonomy:
        """Taxonomy of a config with `labels`, optional `sets`, `source`, `words`.

        Raises:
            UsageError: a key is unknown, there are no labels, one stands twice, or a set names another.
        """
        odd = next((key for key in config if key not in ("labels", "sets", "source", "words")), None)
        if odd is not None:
            raise UsageError(f"a taxonomy has no key {odd!r} (available: labels, sets, source, words)")
        words = config.get("words") or {}
        uptake, grouped = uptake_names(words) if words else ((), {})
        labels = tuple(str(label) for label in config.get("labels") or uptake)
        if not labels or len(set(labels)) < len(labels):
            raise UsageError(f"expected `labels` of a taxonomy to be names, each once, got {list(labels)}")
        sets = {str(name): tuple(map(str, some)) for name, some in (config.get("sets") or {}).items()}
        return cls(labels, {**grouped, **sets}, str(config.get("source", "")), words)

    @classmethod
    def load(cls, place: str | Path) -> Taxonomy:
        """Taxonomy of a YAML file or `configs/class_lists` name.

        Raises:
            UserError: there is no such file, or it cannot be read as YAML; also as in `of`.
        """
        import yaml

        text = str(place)
        shipped = files("medimg_eval.configs") / "class_lists" / f"{text}.yaml"
        file: Any = Path(text) if text.endswith((".yaml", ".yml")) else shipped
        if not file.is_file():
            raise UserError(f"{file}: there is no such taxonomy of labels")
        with UserError.about(file, "cannot be read as YAML", yaml.YAMLError, UnicodeDecodeError):
            # The parser in C, where PyYAML was built with it.
            loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
            content = yaml.load(file.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506 - it is a safe one
        if not isinstance(content, Mapping):
            raise UserError(f"{file}: expected keys such as `labels`, got {type(content).__name__}")
        return cls.of(content)

    @property
    def averaged(self) -> dict[str, tuple[str, ...]]:
        """The sets there are to average over."""
        return {ALL: self.labels, str(len(self.labels)): self.labels, **self.sets}

    def choice(self, text: str, metric: str) -> Choice:
        """Takes what stands after the "@" apart.

        Raises:
            UsageError: it names no average, set or label.
        """
        average, _, remaining = text.partition("-")
        if average in AVERAGES:
            return Choice(average, *self._some(remaining, metric, text))
        name, uncertain = _without_plus(text)
        if name not in self.labels:
            options = [f"{average}-{some}" for average in AVERAGES for some in self.averaged] + list(self.labels)
            raise UsageError(
                f"Metric {metric!r} has no choice {text!r}{nearest(name, options)}; with + after it an uncertain label "
                "counts as positive"
            )
        return Choice("micro", (name,), uncertain)

    def some(self, text: str, metric: str) -> Choice:
        """Label set of `14+` for single reports; UsageError as `choice`."""
        return Choice("micro", *self._some(text, metric, text))

    def _some(self, text: str, metric: str, whole: str) -> tuple[tuple[str, ...], Uncertain]:
        name, uncertain = _without_plus(text)
        if name not in self.averaged:
            raise UsageError(
                f"Metric {metric!r} has no set of labels {name!r} (in {whole!r}){nearest(name, self.averaged)}"
            )
        return self.averaged[name], uncertain


CHEXPERT = Taxonomy(CHEXPERT_14, {"13": CHEXPERT_13, "5": CHEXPERT_5}, "Irvin et al. 2019; CheXbert, Smit et al. 2020")


@cache
def loaded(place: str) -> Taxonomy:
    """Returns what `Taxonomy.load` does, once read."""
    return Taxonomy.load(place)


def labels_of(states: Mapping[str, Any], labels: Sequence[str], who: str) -> dict[str, int]:
    """Returns all labels' states; unnamed ones are 0.

    `cut` among its states says that the text was longer than what was read.

    Raises:
        UserError: it names a label that there is not, or a state that is none of the four.
    """
    odd = next((name for name in states if name not in labels and name != "cut"), None)
    if odd is not None:
        raise UserError(f"{who} gives the label {odd!r}, which its taxonomy lacks{nearest(odd, labels)}")
    labels_ = {name: states.get(name, 0) for name in labels}
    wrong = next((name for name, state in labels_.items() if state not in range(4)), None)
    if wrong is not None:
        raise UserError(f"{who} gives {wrong!r} the state {labels_[wrong]!r}; expected 0, 1, 2 or 3")
    return {name: int(state) for name, state in labels_.items()}


def _without_plus(text: str) -> tuple[str, Uncertain]:
    return (text[:-1], "positive") if text.endswith("+") else (text, "negative")
