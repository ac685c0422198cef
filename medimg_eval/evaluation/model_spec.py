"""Models that are loaded only once they are needed. Imports no torch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from medimg_eval.arguments import OWN, path_of, without_defaults
from medimg_eval.data.former_names import as_hashed
from medimg_eval.evaluation.identity import code_identity, model_identity
from medimg_eval.models.base import Model
from medimg_eval.store import digest

log = logging.getLogger(__name__)


ADDED = frozenset({"explain"})
"""Arguments that models have got since: where they are None, runs keep the ids that they had."""


@dataclass
class ModelSpec:
    """A model that is loaded only once it is needed, and then once.

    Attributes:
        name: what tables call it.
        wrapper: its class.
        config: the arguments it is made of, resolved.
        load: makes it.
        baseline: whether it is there to be compared with, beside those that tables are about.
        spelled: arguments that identify a run even where they equal their default.
        identified: whether another start can know it again; a run of one that it cannot is never gone on with.
        training: of a checkpoint among others of a training: `series`, their common name, and its `step` or `epoch`.
        of_folds: the model of each fold by its number, where each was fitted by itself; none where this one serves all.
    """

    name: str
    wrapper: type
    config: Mapping[str, Any]
    load: Callable[[], Model]
    baseline: bool = False
    spelled: frozenset[str] = frozenset()
    identified: bool = True
    training: Mapping[str, Any] = field(default_factory=dict)
    of_folds: Mapping[int, ModelSpec] = field(default_factory=dict)

    @cached_property
    def model(self) -> Model:
        """The loaded model."""
        log.info("loading %s", self.name)
        return self.load()

    def unload(self) -> None:
        """Lets go of the model, which is loaded again when it is needed."""
        self.__dict__.pop("model", None)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Settings, file content, and a foreign wrapper's code."""
        return self._identity_of(self.config)

    @cached_property
    def settled_identity(self) -> dict[str, Any]:
        """Identity without default arguments, equal for configs and objects."""
        settled = without_defaults(self.config, self.wrapper, self.spelled)
        if self.wrapper.__module__.partition(".")[0] != OWN and "_target_" in settled:
            settled["_target_"] = path_of(self.wrapper)
        return self._identity_of(settled)

    def _identity_of(self, config: Mapping[str, Any]) -> dict[str, Any]:
        files = getattr(self.wrapper, "file_arguments", Model.file_arguments)
        return model_identity(as_hashed(config), files, self._pace) | {"code": code_identity(self.wrapper)}

    @property
    def settings(self) -> str:
        """Hash of the settings that decide answers, distinguishing equal names."""
        return digest({key: value for key, value in as_hashed(self.config).items() if key not in self._pace})

    @property
    def _pace(self) -> Sequence[str]:
        unset = (key for key in ADDED if self.config.get(key) is None)
        return (*getattr(self.wrapper, "pace_arguments", Model.pace_arguments), *unset)
