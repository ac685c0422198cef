"""Pages of the API reference: a page for each face of a room, from the docstrings of the names that it exports.

The code is read and not imported, which takes a tenth of the time. `pages()` gives them by file name.
"""

from __future__ import annotations

import re
from textwrap import dedent
from typing import Any

import griffe
from catalogue_pages import DOCS, code, plain, prose

WIDTH = 100
"""Signs of a signature that stands on one line."""

HEADINGS = {
    "parameters": "Arguments",
    "other parameters": "Further arguments",
    "returns": "Returns",
    "yields": "Yields",
    "raises": "Raises",
    "attributes": "Attributes",
}

FACES = {
    "The program": ["medimg_eval", "medimg_eval.run_results", "medimg_eval.errors"],
    "Cases, images, answers": ["medimg_eval.case", "medimg_eval.question"],
    "Tasks": ["medimg_eval.tasks", "medimg_eval.tasks.questions", "medimg_eval.codecs"],
    "Models": [
        "medimg_eval.models",
        *(f"medimg_eval.models.{room}" for room in ("annotators", "segmentation")),
        "medimg_eval.models.vision_language",
    ],
    "Metrics": [
        "medimg_eval.metrics",
        *(f"medimg_eval.metrics.{room}" for room in ("segmentation", "measurement", "classification", "calibration")),
        *(
            f"medimg_eval.metrics.{room}"
            for room in ("answers", "vqa", "text", "nlp", "reports", "judges", "agreement")
        ),
        *(f"medimg_eval.metrics.{room}" for room in ("generation", "fidelity", "privacy", "phi", "reconstruction")),
        "medimg_eval.tensors",
    ],
    "Data": [
        "medimg_eval.data.layouts",
        *(f"medimg_eval.data.{room}" for room in ("layouts.report_sets", "layouts.synthesis", "targets", "splits")),
        "medimg_eval.phantoms",
        "medimg_eval.deid",
    ],
    "Imaging": [
        "medimg_eval.imaging",
        *(f"medimg_eval.imaging.{room}" for room in ("dicom", "volumes", "pictures", "slides", "video", "annotations")),
    ],
    "Results": [
        "medimg_eval.results",
        *(f"medimg_eval.results.{room}" for room in ("runs", "statistics", "table", "comparison", "ranking", "items")),
        *(f"medimg_eval.results.{room}" for room in ("figures", "agreement", "published", "utility", "report")),
    ],
}
"""By subject, the modules that others import from."""


def pages() -> dict[str, str]:
    """The pages of the reference, by file name below `docs/api`."""
    package = griffe.load(
        "medimg_eval", search_paths=[DOCS.parent], docstring_parser="google", docstring_options={"warnings": False}
    )
    faces = {
        name: package[name.partition(".")[2]] if "." in name else package for names in FACES.values() for name in names
    }
    made, parts = {}, []
    for subject, names in FACES.items():
        rows = "\n".join(f"- [`{name}`]({name}.md): {prose(_first_line(faces[name]))}" for name in names)
        toc = "\n".join(f"{name.removeprefix('medimg_eval.')} <{name}>" for name in names)
        parts.append(f"## {subject}\n\n{rows}\n\n```{{toctree}}\n:hidden:\n:maxdepth: 1\n\n{toc}\n```\n")
    for name, face in faces.items():
        public = exported(face)
        outer = {other for above, its in faces.items() if name.startswith(f"{above}.") for other in exported(its)}
        here, above = [each for each in public if each not in outer], [each for each in public if each in outer]
        text = [f"# {name}\n\n{_docstring(face)}\n"]
        if above:
            text.append(f"Also here, and described in the room around it: {', '.join(map(code, above))}.\n")
        made[f"{name}.md"] = "\n".join(text + [_entry(each, public[each]) for each in here])
    made["index.md"] = (
        "# API reference\n\nWhat other code may import: the faces of rooms, from their docstrings. What lies deeper is "
        "private. Most users need `medimg_eval` alone: [From Python](../start/python.md).\n\n" + "\n".join(parts)
    )
    return made


def exported(face: griffe.Module) -> dict[str, griffe.Object]:
    """The public names of a module: those that it or its stub exports, or else the classes and functions it defines."""
    listed = [str(each) for each in face.exports or ()]
    if not listed:
        aliases = [each for each, found in face.members.items() if found.is_alias and _ours(found)]
        listed = (
            aliases if face.is_init_module else [each for each, found in face.members.items() if not found.is_alias]
        )
    found = {}
    for name in sorted(listed, key=str.lower):
        if not name.startswith("_") and name in face.members:
            member = face.members[name]
            try:
                held = member.final_target if member.is_alias else member
            except (
                griffe.AliasResolutionError
            ):  # one of several constants that one line assigns, which have no docstring
                continue
            if held.is_class or held.is_function or (held.is_attribute and held.docstring):
                found[name] = held
    return found


def _ours(alias: griffe.Alias) -> bool:
    return alias.target_path.startswith("medimg_eval.")


def _first_line(face: griffe.Module) -> str:
    return face.docstring.value.strip().partition("\n")[0] if face.docstring else ""


def _entry(name: str, found: griffe.Object) -> str:
    """A function, class or constant."""
    text = [f"## {plain(name)}\n", f"```python\n{_signature(name, found)}\n```\n", _docstring(found)]
    if found.is_class:
        for method, defined in found.members.items():
            if not method.startswith("_") and defined.is_function and not defined.is_alias and defined.docstring:
                text.append(f"**{code(f'{name}.{method}')}**\n\n```python\n{_signature(method, defined)}\n```\n")
                text.append(_docstring(defined))
    return "\n".join(text)


def _signature(name: str, found: griffe.Object) -> str:
    """What is written to call it: on one line, or a line for each argument."""
    if found.is_attribute:
        return f"{name}: {found.annotation}" if found.annotation else name
    start, end = ("class ", "") if found.is_class else ("", f" -> {found.returns}" if found.returns else "")
    taken, star = [], False
    for each in found.parameters:
        if each.name in ("self", "cls") and not taken:
            continue
        kind = each.kind.value if each.kind else ""
        star = star or kind == "variadic positional"
        if kind == "keyword-only" and not star:
            taken, star = [*taken, "*"], True
        sign = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
        told = f"{sign}{each.name}" + (f": {each.annotation}" if each.annotation else "")
        spaced = " = " if each.annotation else "="
        taken.append(told + (f"{spaced}{each.default}" if each.default is not None and not sign else ""))
    if found.is_class and not taken:
        fields = {each: its for each, its in found.members.items() if its.is_attribute and its.annotation}
        taken = [f"{each}: {its.annotation}" + (f" = {its.value}" if its.value else "") for each, its in fields.items()]
        if not taken:
            return f"class {name}"
    line = f"{start}{name}({', '.join(taken)}){end}"
    if len(line) <= WIDTH:
        return line
    return f"{start}{name}(\n" + "".join(f"    {each},\n" for each in taken) + f"){end}"


def _docstring(found: griffe.Object) -> str:
    """A docstring as Markdown: its text, arguments, what is returned and raised, examples."""
    if not found.docstring:
        return ""
    text = []
    for section in found.docstring.parsed:
        kind, value = section.kind.value, section.value
        if kind == "text":
            text.append(_paragraphs(value))
        elif kind == "examples":
            text += [
                f"```pycon\n{part}\n```\n" if kind.value == "examples" else _paragraphs(part) for kind, part in value
            ]
        elif kind == "admonition":
            text.append(f"**{plain(section.title)}**\n\n{_paragraphs(value.contents)}")
        elif isinstance(value, list) and kind in HEADINGS:
            rows = "\n".join(f"- {_item(each, kind)}" for each in value)
            text.append(f"**{HEADINGS[kind]}**\n\n{rows}\n")
        else:
            raise ValueError(f"{found.path}: a section of kind {kind} in the docstring has no place in the reference")
    return "\n".join(text)


def _item(item: Any, kind: str) -> str:
    name = getattr(item, "name", "")
    kinds = {"returns": "", "yields": ""}.get(kind, code(name) if name else code(item.annotation))
    return f"{kinds}: {prose(item.description)}" if kinds else prose(item.description)


def _paragraphs(text: str) -> str:
    """Paragraphs, lists and examples of a docstring as Markdown."""
    parts = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        lines = block.splitlines()
        if lines[0].lstrip().startswith(">>>"):
            parts.append(f"```pycon\n{dedent(block)}\n```\n")
        elif all(line.startswith("    ") for line in lines):
            parts.append(f"```text\n{dedent(block)}\n```\n")
        else:
            items = re.split(r"\n(?=\s*[-*] )", block)
            parts.append(
                "\n".join(
                    f"- {prose(item.strip()[2:])}" if re.match(r"\s*[-*] ", item) else prose(item) + "\n"
                    for item in items
                )
                + "\n"
            )
    return "\n".join(parts)
