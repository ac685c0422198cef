"""The catalogue: what there is, and tasks made of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medimg_eval.api.asking import Overrides
from medimg_eval.catalogue import configs_of, searching, usual_places
from medimg_eval.configs.overrides import composed, plain, with_changes
from medimg_eval.errors import UsageError, invalid
from medimg_eval.instantiate import build_task
from medimg_eval.tasks import Task

if TYPE_CHECKING:
    import pandas as pd


def load_task(
    name: str,
    *,
    root: str | Path | None = None,
    overrides: Overrides = (),
    config_dir: str | Path | None = None,
    **settings: Any,
) -> Task:
    """Makes a task of the catalogue.

    Args:
        name: of its config, such as `slake`.
        root: folder of its data, in place of the config's.
        overrides: as for `test`.
        config_dir: as for `test`.
        settings: of the task, such as `metrics=["dice"]`.
    """
    folders = [] if config_dir is None else [str(config_dir)]
    words = [] if isinstance(overrides, Mapping) else list(overrides)
    config = composed("check", [f"task={name}", *words], folders)
    placed = {} if root is None else {"task.layout.root": str(Path(root).expanduser())}
    changes = overrides if isinstance(overrides, Mapping) else {}
    changes = {**changes, **placed, **{f"task.{key}": value for key, value in settings.items()}}
    with searching(usual_places(folders)):
        return build_task(plain(with_changes(config, changes))["task"])


def list_tasks(tag: str = "", *, config_dir: str | Path | None = None) -> pd.DataFrame:
    """Catalogue tasks: `title`, `family`, `description`, `access`, `may_leave`.

    Args:
        tag: only those of a family (`vqa`, `segmentation`, `reports`, ...), or with this word in name or description.
        config_dir: as for `test`.
    """
    import pandas as pd

    from medimg_eval.catalogue import families

    with searching(usual_places([] if config_dir is None else [config_dir])):
        of_family, configs = families("task"), configs_of("task")
    rows = []
    for name, config in sorted(configs.items()):
        card = config.get("card") or {}
        description = str(card.get("description") or config["description"])
        words = f"{name} {config.get('title', '')} {description}".lower()
        if tag != of_family[name] if tag in of_family.values() else tag.lower() not in words:
            continue
        card_facts = {key: str(card.get(key, "")) for key in ("access", "may_leave")}
        rows.append(
            {"task": name, "title": config.get("title", ""), "family": of_family[name], "description": description}
            | card_facts
        )
    if not rows:
        raise UsageError(invalid("family", tag, of_family.values()))
    return pd.DataFrame(rows).set_index("task")


def list_catalogue(
    what: str,
    *,
    family: str | None = None,
    modality: str | None = None,
    access: str | None = None,
    search: str | None = None,
) -> pd.DataFrame:
    """Catalogue entries of a kind, by name, as `list` shows them.

    Args:
        what: `tasks`, `models`, `metrics`, `suites`, `annotators`, `extractors` or `systems` (published ones).
        family: of tasks their folder, of models their room, of metrics their kind, of systems their status.
        modality: such as `ct`, `mri` or `xray`.
        access: of tasks' data, such as `open`.
        search: words that are all in a name, description, title or source.

    Returns:
        `text` and `family`; of tasks `access`, of systems `modalities`, `commands` and what else is known of them.

    Raises:
        UsageError: there is no such kind, or nothing passes the filters.
    """
    import pandas as pd

    from medimg_eval.api.listing import KINDS, chosen_entries, entries_of, nothing_passes

    UsageError.refuse_invalid("what", KINDS, what)
    filters = {"family": family, "modality": modality, "access": access, "search": search}
    entries = entries_of(what)
    entries_ = chosen_entries(entries, filters)
    if not entries_:
        raise nothing_passes(what, entries, filters)
    rows = {}
    for name, entry in entries_.items():
        of_tasks = {"access": entry.access} if what == "tasks" else {}
        rows[name] = {"text": entry.text, "family": entry.family, **of_tasks, **(entry.system or {})}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(what.removesuffix("s"))
