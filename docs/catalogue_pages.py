"""Pages of the catalogue, made from the registries, the configs and the cards of tasks: no line of them is hand-written.

`pages()` gives them by file name. Imports no torch.
"""

from __future__ import annotations

import io
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import fields
from importlib import import_module
from importlib.resources import files
from itertools import takewhile
from pathlib import Path
from typing import Any

from medimg_eval.api.listing import model_rooms, published_systems
from medimg_eval.arguments import as_list
from medimg_eval.catalogue import configs_of, families, searching, usual_places, with_parents
from medimg_eval.commands import COMMANDS
from medimg_eval.commands.cli import start
from medimg_eval.metrics import available
from medimg_eval.metrics.aliases import ALIASES
from medimg_eval.metrics.registry import Metric
from medimg_eval.metrics.segmentation.empty_masks import PRESETS as EMPTY_POLICIES
from medimg_eval.metrics.segmentation.matching_rules import LESION_RULES, LesionRule
from medimg_eval.published_numbers import published_numbers

DOCS = Path(__file__).resolve().parent
RUN = "python -m medimg_eval"
STATUS = {
    "released": "Files that the authors released were read and scored here.",
    "script": "The authors' own scorer or analysis ran beside ours, and the numbers agree.",
    "fixture": "Tests read made-up files in the form that the authors' files, code or pages state.",
    "inferred": "The form of files, or a rule, is taken from a paper or from others' code.",
    "missing": "A main part has no command yet; the page says which, and the commands run the rest.",
}
FAMILIES = {
    "classification": "Classification",
    "classification/gpfm": "Classification: GPFM's slides",
    "detection": "Detection",
    "expression": "Expression of genes",
    "landmarks": "Landmarks",
    "measurement": "Measurement",
    "quickstart": "Quickstart and phantoms",
    "reconstruction": "Reconstruction",
    "registration": "Registration",
    "reports": "Reports",
    "retrieval": "Retrieval",
    "segmentation": "Segmentation",
    "segmentation/msd": "Segmentation: Decathlon (MSD)",
    "segmentation/ubench": "Segmentation: U-Bench",
    "survival": "Survival",
    "survival/gpfm": "Survival: GPFM's slides",
    "synthesis": "Synthesis",
    "text_qa": "Questions without images",
    "vqa": "Questions about images",
    "vqa/endoscopy": "Questions about endoscopy",
    "vqa/videos": "Questions about videos",
    "vqa/volumes": "Questions about volumes",
}
MODELS = {
    "QuestionTask": "model=huggingface_vlm model.checkpoint=VLM",
    "ReportTask": "model=huggingface_vlm model.checkpoint=VLM",
    "ClassificationTask": "model=precomputed_classes model.root=PREDICTIONS",
    "ReconstructionTask": "model=precomputed_reconstructions model.root=PREDICTIONS",
    "SynthesisTask": "model=precomputed_images model.root=PREDICTIONS",
    "DetectionTask": "model=precomputed_boxes model.root=PREDICTIONS",
    "LandmarkTask": "model=precomputed_points model.root=PREDICTIONS",
    "MeasurementTask": "model=precomputed_numbers model.root=PREDICTIONS",
    "RegistrationTask": "model=precomputed_transforms model.root=TRANSFORMS",
    "RegressionTask": "model=precomputed_values model.root=PREDICTIONS",
    "SurvivalTask": "model=precomputed_risks model.root=PREDICTIONS",
    "RetrievalTask": "model=open_clip",
}
"""By the class of a task, a model that it can be tested with."""
ROOMS = {
    "agreement": "Agreement of readers and methods",
    "calibration": "Calibration and abstention",
    "classification": "Classes of images",
    "coco": "Detection as COCO scores it",
    "conditions": "Conditions: what changes when the image does",
    "detection": "Boxes and candidates",
    "efficiency": "Efficiency",
    "fairness": "Fairness",
    "generation": "Generated images",
    "judges": "Judges",
    "measurement": "Landmarks and measurements",
    "phi": "Patients in generated texts",
    "reconstruction": "Images against a reference",
    "registration": "Registration",
    "repeats": "Repeats",
    "reports": "Reports",
    "retrieval": "Retrieval",
    "segmentation": "Masks and probabilities",
    "text": "Words",
    "vqa": "Answers to questions",
}


def write(folder: Path, made: Mapping[str, str]) -> None:
    """Writes pages below a folder; what is as it was keeps its time, and what is no page any more goes."""
    for path in folder.rglob("*.md"):
        if path.relative_to(folder).as_posix() not in made:
            path.unlink()
    for name, text in made.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """The pages of the catalogue, by file name below `docs/catalogue`."""
    with searching(usual_places()):  # looked for once, and not for each config
        return _pages()


def _pages() -> dict[str, str]:
    systems, tasks, metrics = published_systems(), task_configs(), available()
    models, suites = configs_of("model"), configs_of("suite")
    made = {
        "commands.md": _commands(),
        "models.md": _models(models),
        "systems.md": _systems(systems),
        "suites.md": _suites(suites),
        "providers.md": _providers(),
        "layouts.md": _layouts(),
        "settings.md": _settings(),
        **_metrics(metrics),
        **_tasks(tasks),
    }
    doors = [
        ("Tasks", "tasks/index", f"{len(tasks)} benchmarks: data, licence, split, metrics, published numbers, command"),
        ("Metrics", "metrics/index", f"{len(metrics)} metrics: definition, unit, direction, range, aliases, source"),
        ("Models", "models", f"{len(models)} models by name, and what each reads"),
        ("Systems", "systems", f"{len(systems)} published systems, and the command that runs each"),
        ("Suites", "suites", f"{len(suites)} sets of tasks that one command runs"),
        ("Annotators, extractors, judges", "providers", "networks that metrics ask, with the weights they need"),
        ("Layouts and targets", "layouts", "how data lie on disk, and how the truth is written down"),
        ("Settings", "settings", "presets for empty masks and lesions, protocols, class lists, trainers, loggers"),
        ("Commands", "commands", f"{len(COMMANDS)} commands with every key and its default"),
    ]
    cards = "\n".join(
        f":::{{grid-item-card}} {name}\n:link: {to}\n:link-type: doc\n{text}\n:::" for name, to, text in doors
    )
    toc = "\n".join(to for _, to, _ in doors)
    made["index.md"] = (
        "# Catalogue\n\nWhat there is, by name. These pages are made from the code and the cards of tasks each time the "
        f"site is built; `{RUN} list` prints the same.\n\n::::{{grid}} 1 2 2 3\n:gutter: 3\n\n{cards}\n::::\n\n"
        f"```{{toctree}}\n:hidden:\n:maxdepth: 1\n\n{toc}\n```\n"
    )
    return made


def task_configs() -> dict[str, dict[str, Any]]:
    """The config of every task, with those it builds on."""
    return {name: with_parents(config) for name, config in configs_of("task").items()}


# Text ------------------------------------------------------------------------------------------------------------


def plain(text: object) -> str:
    """Text whose signs mean nothing to Markdown, on one line."""
    return _escaped(" ".join(str(text).split()))


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>|$#~^])", r"\\\1", text).replace("--", "-\\-")


def prose(text: object) -> str:
    """Text in which backticks enclose code, and all else is plain."""
    parts = re.split(r"(`[^`]+`)", " ".join(str(text).split()))
    return "".join(
        code(part.strip("`")) if part.startswith("`") and len(part) > 2 else _escaped(part) for part in parts
    )


def code(text: object) -> str:
    """Text as code, which may also stand in a cell of a table."""
    return "`" + str(text).replace("|", "\\|") + "`"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of cells that are Markdown."""
    columns = list(head)
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def shell(*lines: str) -> str:
    """A block of commands."""
    return "```sh\n" + "\n".join(f"{RUN} {line}" for line in lines) + "\n```\n"


def summary_of(found: object) -> str:
    """The first sentence of a docstring."""
    first = (getattr(found, "__doc__", "") or "").strip().partition("\n\n")[0]
    return prose(first)


# Tasks -----------------------------------------------------------------------------------------------------------


def _tasks(tasks: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    folders = families("task")
    by_family: dict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
    for name in sorted(tasks):
        by_family[folders[name] or "others"][name] = tasks[name]
    made, counts = {}, []
    for family, members in sorted(by_family.items()):
        title = FAMILIES.get(family, family.replace("_", " ").replace("/", ": ").capitalize())
        counts.append(
            [
                f"[{title}]({family}.md)",
                str(len(members)),
                ", ".join(f"[{plain(name)}](#task-{name})" for name in members),
            ]
        )
        rows = [
            [
                f"[{code(name)}](#task-{name})",
                plain(_card(config).get("description", "")),
                plain(_card(config).get("access", "")),
                plain(_card(config).get("licence", "")),
            ]
            for name, config in members.items()
        ]
        overview = table(["Task", "What it is", "Access", "Licence"], rows)
        entries = "\n".join(_task(name, config) for name, config in members.items())
        made[f"tasks/{family}.md"] = f"# {title}\n\n{overview}\n{entries}"
    toc = "\n".join(sorted(by_family))
    made["tasks/index.md"] = (
        "# Tasks\n\nA task is data, what is asked of a model, and how its answer is judged. Each has a card: where its data "
        f"come from, under which licence, how they were split.\n\n{shell('list tasks modality=ct access=open search=liver')}\n"
        f"{table(['Family', 'Tasks', 'Names'], counts)}\n```{{toctree}}\n:hidden:\n:maxdepth: 1\n\n{toc}\n```\n"
    )
    return made


CARD = ("source", "licence", "access", "may_leave", "split")
"""Headings that every card has, in this order; its other ones come below."""


def _card(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return config.get("card") or {"description": config.get("description", "")}


def _task(name: str, config: Mapping[str, Any]) -> str:
    card = dict(_card(config))
    kind = str(config.get("_target_", "")).rpartition(".")[2]
    stated, described = card.pop("published", None), card.pop("description", "")
    numbers = published_numbers(stated, name)
    fetched = card.pop("download", None)
    order = [*(key for key in CARD if key in card), *(key for key in card if key not in CARD)]
    rows = [[plain(key.replace("_", " ").capitalize()), plain(_told(card[key]))] for key in order]
    rows.append(["Metrics", ", ".join(_metric_link(metric) for metric in as_list(config.get("metrics")))])
    if labels := config.get("labels"):
        shown = list(labels.values()) if isinstance(labels, Mapping) else as_list(labels)
        rows.append(
            [
                "Labels",
                plain(", ".join(map(str, shown[:20]))) + (f" and {len(shown) - 20} more" if len(shown) > 20 else ""),
            ]
        )
    if stated and not numbers:
        rows.append(["Published", plain(_told(stated))])
    rows += [["Published", plain(number)] for number in numbers]
    title = f" — {plain(config['title'])}" if config.get("title") else ""
    lines = [f"test task={name} {MODELS.get(kind, 'model=precomputed model.root=PREDICTIONS')}"]
    if fetched:
        lines.insert(0, f"download task={name}")
    return f"(task-{name})=\n## {plain(name)}{title}\n\n{plain(described)}\n\n{table(['', ''], rows)}\n{shell(*lines)}"


def _told(value: Any) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{key}: {_told(inner)}" for key, inner in value.items())
    return ", ".join(map(_told, value)) if isinstance(value, list) else str(value)


def _metric_link(name: str) -> str:
    base = str(name).partition("@")[0]
    return f"[{code(name)}](#metric-{base})" if base in available() else code(name)


# Metrics ---------------------------------------------------------------------------------------------------------


def _metrics(metrics: Mapping[str, Metric]) -> dict[str, str]:
    by_room: dict[str, list[Metric]] = defaultdict(list)
    for _, metric in sorted(metrics.items()):
        parts = metric.function.__module__.split(".")
        by_room[parts[2] if parts[:2] == ["medimg_eval", "metrics"] else "others"].append(metric)
    defined, also = _definition_pages(), _aliases()
    made, counts = {}, []
    for room, members in sorted(by_room.items()):
        title = ROOMS.get(room, room.capitalize())
        places = sorted({defined[metric.name] for metric in members if metric.name in defined})
        links = ", ".join(f"[{heading}](../../definitions/{page})" for heading, page in places)
        rows = [_metric(metric, also[metric.name]) for metric in members]
        made[f"metrics/{room}.md"] = (
            f"# {title}\n\n{f'Formulas, examples and edge cases: {links}.' if links else ''}\n\n"
            + table(["Metric", "Definition", "Unit, better, best to worst", "Source"], rows)
        )
        counts.append([f"[{title}]({room}.md)", str(len(members)), links])
    made["metrics/index.md"] = (
        "# Metrics\n\n`@` stands before a parameter: `nsd@2` is NSD at a tolerance of 2 mm. Names of papers (`DSC`, `HD95`, "
        "`FID`) are understood in any case. A metric of a *run* is computed from all cases at once, the others case by case.\n\n"
        f"{shell('list metrics family=mask', 'list metrics search=calibration')}\n{table(['Subject', 'Metrics', 'Definitions'], counts)}\n"
        "```{toctree}\n:hidden:\n:maxdepth: 1\n\n" + "\n".join(sorted(by_room)) + "\n```\n"
    )
    return made


def _metric(metric: Metric, aliases: Iterable[str]) -> list[str]:
    also = ", ".join(map(code, sorted(set(aliases) - {metric.name})))
    better = {True: "higher", False: "lower", None: "neither"}[metric.higher_is_better]
    settings = f"<br>*Settings:* {prose(metric.settings)}" if metric.settings else ""
    parameter = (
        f"<br>*Parameter:* {prose(metric.parameter)}{', may be left out' if metric.parameter_optional else ''}"
        if metric.parameter
        else ""
    )
    worst = metric.worst if isinstance(metric.worst, str) else format(metric.worst, "g")
    ends = " to ".join(end for end in (format(metric.best, "g"), worst) if end != "nan")  # some have no best or worst
    return [
        f"[{code(metric.name)}]{{#metric-{metric.name}}}<br>{plain(metric.title)}"
        + (f"<br>also {also}" if also else ""),
        prose(metric.definition) + parameter + settings,
        ", ".join(filter(None, [plain(metric.unit), better, ends, f"of a {metric.kind}"])),
        plain(metric.source),
    ]


def _definition_pages() -> dict[str, tuple[str, str]]:
    """By metric, the title and file name of the page that defines it: the first that has a row for it."""
    found: dict[str, tuple[str, str]] = {}
    others = ("image_sets.md", "peers.md", "index.md")  # which name metrics without defining them
    for path in sorted(path for path in (DOCS / "definitions").glob("*.md") if path.name not in others):
        text = path.read_text(encoding="utf-8")
        heading = text.partition("\n")[0].removeprefix("# ").replace("`", "")
        for row in re.findall(r"^\| `(\w+)[^|]*\|", text, re.MULTILINE):
            found.setdefault(row, (heading, path.name))
    return found


def _aliases() -> dict[str, set[str]]:
    known: dict[str, set[str]] = defaultdict(set)
    for alias, stands in ALIASES.items():
        for metric in stands.metrics:
            known[metric.partition("@")[0]].add(alias)
    for name, metric in available().items():
        known[name] |= set(metric.aliases)
    return known


# Models, suites, systems, providers --------------------------------------------------------------------------------


def _models(models: Mapping[str, Mapping[str, Any]]) -> str:
    rooms, by_room = model_rooms(), defaultdict(list)
    for name, config in sorted(models.items()):
        kind = str(config.get("_target_", "")).rpartition(".")[2]
        needed = [key for key, value in config.items() if value == "???"]
        row = [
            f"[{code(name)}]{{#model-{name}}}",
            plain(config["description"]),
            code(kind),
            " ".join(code(f"model.{key}=") for key in needed),
        ]
        by_room[rooms.get(kind, "others")].append(row)
    parts = [
        f"## {plain(room.replace('_', ' ').capitalize())}\n\n{table(['Model', 'What it is', 'Class', 'You give'], rows)}"
        for room, rows in sorted(by_room.items())
    ]
    return (
        "# Models\n\n`model=NAME` on the command line, `model.KEY=VALUE` for a setting of it; the classes are those of "
        "`medimg_eval.models`. How they are used: [Models](../evaluate/models.md), [Questions](../evaluate/vqa.md); "
        f"one of your own: [Add a model](../extend/model.md).\n\n{shell('test task=brain_tissue model=gaussian_mixture')}\n"
        + "\n".join(parts)
    )


def _suites(suites: Mapping[str, Mapping[str, Any]]) -> str:
    parts = []
    for name, config in sorted(suites.items()):
        names = [
            str(task)
            for default in as_list(config.get("defaults"))
            if isinstance(default, Mapping)
            for task in default.values()
        ]
        links = ", ".join(f"[{code(task)}](#task-{task.rpartition('/')[2]})" for task in names)
        parts.append(
            f"(suite-{name})=\n## {plain(name)}\n\n{plain(config['description'])}\n\n{links}\n\n{shell(f'test suite={name} model=MODEL')}"
        )
    return "# Suites\n\nA suite is tasks that one command runs, in one table.\n\n" + "\n".join(parts)


def _systems(systems: Mapping[str, Mapping[str, Any]]) -> str:
    by_status: dict[str, list[str]] = {status: [] for status in STATUS}
    for name, system in systems.items():
        by_status[system["status"]].append(name)
    counts = table(
        ["Status", "Means", "Systems"],
        ([f"[{status}](#{status})", STATUS[status], str(len(names))] for status, names in by_status.items()),
    )
    parts = []
    for status, names in by_status.items():
        parts.append(f"## {status.capitalize()}\n\n{STATUS[status]}\n")
        parts += [_system(name, systems[name]) for name in names]
    return (
        "# Published systems\n\nBenchmarks, models and metrics that others published, the commands that run each here, and how these "
        f"are known to be right. Names in capitals are yours.\n\n{counts}\n" + "\n".join(parts)
    )


def _system(name: str, system: Mapping[str, Any]) -> str:
    lines = [f"### {plain(name)}\n\n{plain(system['what'])} *{plain(', '.join(as_list(system['modalities'])))}*\n"]
    if commands := as_list(system["commands"]):
        lines.append(shell(*commands))
    for key in ("released", "evidence", "lacks"):
        if told := system.get(key):
            lines.append(f"**{key.capitalize()}:** {plain(_told(told))}\n")
    return "\n".join(lines)


def _providers() -> str:
    parts = [
        "# Annotators, extractors, judges\n\nNetworks that metrics ask about answers, reports and pictures. `check metrics=all` says which "
        "are there, `download annotator=NAME` or `extractor=NAME` fetches weights.\n"
    ]
    for group, title, how in (
        ("annotator", "Annotators of texts and pictures", "annotators.NAME.weights=PATH"),
        ("extractor", "Extractors of features", "extractors.NAME.weights=PATH"),
        ("judging", "Questions to judges", "model@judge=openai_compatible judge.model=NAME"),
    ):
        rows = [
            [f"[{code(name)}]{{#{group}-{name}}}", plain(config["description"])]
            for name, config in sorted(configs_of(group).items())
        ]
        parts.append(f"## {title}\n\nGiven as {code(how)}.\n\n{table(['Name', 'What it is'], rows)}")
    return "\n".join(parts)


# Layouts, settings, commands ---------------------------------------------------------------------------------------


def _layouts() -> str:
    parts = [
        "# Layouts and targets\n\nA layout turns a folder into cases, a target says how the truth is written down. Presets, keys and examples: [Layouts](../data/layouts.md).\n"
    ]
    for module, title in (
        ("medimg_eval.data.layouts", "Layouts"),
        ("medimg_eval.data.targets", "Targets"),
        ("medimg_eval.data.splits", "Splits"),
    ):
        face = import_module(module)
        names = getattr(face, "__all__", None) or [
            name for name, found in vars(face).items() if isinstance(found, type) and found.__module__ == module
        ]
        rows = [
            [code(f"{module}.{name}"), summary_of(getattr(face, name))]
            for name in sorted(names)
            if isinstance(getattr(face, name), type)
        ]
        parts.append(f"## {title}\n\n{table(['Class', 'What it reads'], rows)}")
    return "\n".join(parts)


def _settings() -> str:
    told = [f"{field.name}" for field in fields(LesionRule) if field.name not in ("name", "join_through")]
    rules = [[code(name), *(plain(_told(getattr(rule, key))) for key in told)] for name, rule in LESION_RULES.items()]
    parts = [
        "# Settings by name\n",
        "## Policies for empty masks\n\n`task.empty=NAME`: what a label is worth that one side lacks, or each. What each of "
        "them does: [Metrics](../definitions/segmentation.md).\n\n" + ", ".join(map(code, EMPTY_POLICIES)) + "\n",
        "## Rules of lesions\n\n`task.lesions=NAME`: which parts of a mask are lesions, and when two match. What each key "
        "means: [Lesions](../definitions/lesions.md).\n\n" + table(["Rules", *map(code, told)], rules),
    ]
    for group, title, how in (
        ("protocol", "Protocols that tasks build on", "`defaults: [/protocol@_here_: NAME]` in the config of a task."),
        ("class_lists", "Lists of classes", "Names of classes by the number that a program gives them."),
        ("trainer", "Trainers", "`trainer=NAME` with `test` and `fit`."),
        ("logger", "Trackers", "`logger=NAME` with `test`, `score` and `fit`."),
    ):
        rows = [[code(name), plain(_first_comment(group, name))] for name in sorted(configs_of(group))]
        parts.append(f"## {title}\n\n{how}\n\n{table(['Name', 'What it is'], rows)}")
    return "\n".join(parts)


def _first_comment(group: str, name: str) -> str:
    """The first sentence of a config's comments."""
    text = (files("medimg_eval.configs") / group / f"{name}.yaml").read_text(encoding="utf-8")
    lines = takewhile(lambda line: line.startswith("#"), text.splitlines())
    told = " ".join(line.lstrip("# ").removeprefix("description: ") for line in lines)
    return re.split(r"(?<=[.!?]) ", told)[0]


def _commands() -> str:
    parts = [
        f"# Commands\n\n`{RUN} COMMAND [key=value ...]`. All of it is Hydra: `-m` runs every combination of values with commas "
        "between them, `--cfg job` prints the config, `--config-dir DIR` adds configs of yours. Below is what `COMMAND --help` "
        "prints.\n"
    ]
    for command, purpose in COMMANDS.items():
        shown = io.StringIO()
        with redirect_stdout(shown):
            start([command, "--help"])
        keys = shown.getvalue().partition("\n--- ")[2].partition("\n--- base.yaml")[0]
        first, *shared = re.split(r"\n--- [\w.]+\n", "\n" + keys.partition("\n")[2])
        parts.append(f"## {plain(command)}\n\n{plain(purpose[0].upper() + purpose[1:])}.\n\n" + _yaml(first))
        parts += [f"Shared with other commands:\n\n{_yaml(text)}" for text in shared]
    return "\n".join(parts)


def _yaml(text: str) -> str:
    """The keys of a config: what it says of Hydra is nothing for a reader."""
    text = re.sub(r"^defaults:\n(?:  .*\n)+\n?", "", text.strip() + "\n", flags=re.MULTILINE).strip()
    return f"```yaml\n{text}\n```\n" if text else ""
