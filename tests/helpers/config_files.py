"""The configs of the catalogue: where they lie, and what Hydra makes of them."""

from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

import medimg_eval
from medimg_eval.configs.sources import short_names

CONFIGS = Path(medimg_eval.__file__).parent / "configs"


def config_files(*groups: str, pattern: str = "*.yaml") -> list[Path]:
    """The files of groups, in whatever folder they lie, by name."""
    return sorted((path for group in groups for path in (CONFIGS / group).rglob(pattern)), key=lambda path: path.stem)


def config_names(group: str, pattern: str = "*.yaml") -> list[str]:
    """The short names of a group."""
    return [path.stem for path in config_files(group, pattern=pattern)]


def config_file(name: str, group: str = "task") -> Path:
    """The file of the config with a short name."""
    (found,) = config_files(group, pattern=f"{name}.yaml")
    return found


def composed_config(config: str, *overrides: str) -> Any:
    """What Hydra makes of a config and words of the command line, resolved."""
    with short_names(), initialize_config_module("medimg_eval.configs", version_base="1.3"):
        return OmegaConf.to_container(compose(config, [*overrides]), resolve=True)
