"""How Hydra finds configs that lie in folders by their short names, wherever one is named.

Names stand on the command line, in sweeps, in suites and in the defaults of other configs, and Hydra asks its sources
for all of them: so it is the sources that learn it. Of several places that hold a name, the first that Hydra looks in
is the one, as it is for any config.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import yaml
from hydra._internal.core_plugins import file_config_source, importlib_resources_config_source
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult
from omegaconf import OmegaConf
from omegaconf._utils import get_yaml_loader
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from medimg_eval.configs.names import IN_FOLDERS, path_meant, paths_of, shortest_names

if TYPE_CHECKING:
    Source = file_config_source.FileConfigSource
else:
    Source = object  # each class below brings its own


class InFolders(Source):
    """Finds configs of some groups in folders, too; where a config goes does not depend on its folder."""

    def load_config(self, config_path: str) -> ConfigResult:
        """Loads what a path or a short name means.

        Raises:
            UsageError: several configs have that name.
        """
        group, _, name = config_path.partition("/")
        if not super().is_config(config_path) and group in IN_FOLDERS:
            path = path_meant(group, name.removesuffix(".yaml"), self._paths(group))
            config_path = f"{group}/{path or name}"
        return super().load_config(config_path)

    def is_config(self, config_path: str) -> bool:
        """Whether a path or a short name means something, be it one config or several."""
        if super().is_config(config_path):
            return True
        group, _, name = config_path.partition("/")
        ending = f"/{name.removesuffix('.yaml')}"
        return group in IN_FOLDERS and any(path.endswith(ending) for path in self._paths(group))

    def list(self, config_path: str, results_filter: ObjectType | None) -> builtins.list[str]:
        """The shortest names of a group, whose folders are no groups of their own."""
        if config_path not in IN_FOLDERS:
            return super().list(config_path, results_filter)
        return [] if results_filter == ObjectType.GROUP else sorted(shortest_names(self._paths(config_path)))

    def _paths(self, group: str) -> builtins.list[str]:
        known: dict[str, builtins.list[str]] = self.__dict__.setdefault("_known", {})
        if group not in known:
            known[group] = paths_of(self._root(), group) if self.is_group(group) else []
        return known[group]

    def _root(self) -> Traversable:
        return Path(self.path)


# Called like Hydra's own: in a process that a launcher has sent a job to, its registry keeps these where names agree.
class FileConfigSource(InFolders, file_config_source.FileConfigSource):
    """Such configs in a folder of the user's own."""


class ImportlibResourcesConfigSource(InFolders, importlib_resources_config_source.ImportlibResourcesConfigSource):
    """Such configs in a package: this one, or one that is installed beside it."""

    def _root(self) -> Traversable:
        return files(self.path)

    def _read_config(self, res: Traversable) -> ConfigResult:
        """Reads a config of a package, which does not change while the program runs, once."""
        text = res.read_text(encoding="utf-8")
        config = OmegaConf.create(_parsed(text))
        return ConfigResult(self.provider, f"{self.scheme()}://{self.path}", config, self._get_header_dict(text))


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Any:
    """Values of a YAML text by OmegaConf's rules; {} for an empty one."""
    found = yaml.load(text, Loader=_loader())  # noqa: S506 - no less safe than OmegaConf's own, which it extends
    return {} if found is None else found


@cache
def _loader() -> type:
    """OmegaConf's loader upon the parser in C, which is ten times as fast, where PyYAML has it."""
    rules: Any = get_yaml_loader()
    parser: Any = getattr(yaml, "CParser", None)
    if parser is None:
        return cast("type", rules)

    class Loader(parser, rules):  # type: ignore[misc]
        def __init__(self, stream: str) -> None:
            parser.__init__(self, stream)
            SafeConstructor.__init__(self)
            Resolver.__init__(self)

    return Loader


@contextmanager
def short_names() -> Iterator[None]:
    """Lets Hydra find configs that lie in folders by their short names, for as long as this lasts."""
    Plugins.instance()  # it registers Hydra's own sources, once
    known = SourcesRegistry.instance().types
    before = dict(known)
    known.update({source.scheme(): source for source in (FileConfigSource, ImportlibResourcesConfigSource)})
    try:
        yield
    finally:
        known.update(before)
