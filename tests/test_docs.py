"""What pages and rooms say of the code: names that exist, by the name that users are meant to import."""

import ast
import importlib
import json
import pkgutil
import re
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

import medimg_eval

ROOT = Path(medimg_eval.__file__).parents[1]
GENERATED = tuple(ROOT / "docs" / name for name in ("_build", "api", "catalogue"))
"""What `make docs` writes: `test_site.py` looks at it."""

PAGES = [
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if not any(map(page.is_relative_to, GENERATED))),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
]
NOTEBOOKS = sorted((ROOT / "docs" / "gallery").glob("*.ipynb"))
DIVIDED = ("metrics", "models", "imaging", "results")
"""Floors whose rooms are entered through their faces alone."""

FLOORS = (*DIVIDED, "tasks", "deid", "viewer", "evaluation", "tensors")


def prose(page):
    """The text of a page; of a notebook, that of its cells."""
    if page.suffix != ".ipynb":
        return page.read_text()
    return "\n".join("".join(cell["source"]) for cell in json.loads(page.read_text())["cells"])


def programs(page):
    """The code that a page or notebook tells its readers to write."""
    if page.suffix != ".ipynb":
        return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    cells = json.loads(page.read_text())["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return [source for source in sources if not source.startswith("%%")]


def told(page):
    """The dotted names of ours on a page, those of its imports among them."""
    text = re.sub(r"\]\([^)]*\)", "]", prose(page))  # a link names a file
    names = set(re.findall(r"medimg_eval(?:\.[A-Za-z_]\w*)+", text))
    for program in programs(page):
        for node in ast.walk(ast.parse(program)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("medimg_eval"):
                names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


NAMES = sorted({name for page in [*PAGES, *NOTEBOOKS] for name in told(page)})


def resolved(name):
    try:
        return pkgutil.resolve_name(name)
    except ModuleNotFoundError as error:
        if (error.name or "medimg_eval").partition(".")[0] == "medimg_eval":
            raise
        pytest.skip(f"needs {error.name}, which an extra brings")


def faces(name):
    """The packages that hold a dotted name, from the outermost in."""
    parts = name.split(".")
    for end in range(2, len(parts)):
        try:
            module = importlib.import_module(".".join(parts[:end]))
        except ImportError:
            return
        if hasattr(module, "__path__"):
            yield module


@pytest.mark.parametrize("name", NAMES)
def test_names_in_the_docs_exist(name):
    resolved(name)


@pytest.mark.parametrize("name", NAMES)
def test_names_in_the_docs_are_those_of_the_faces(name):
    last = name.rpartition(".")[2]
    shorter = [f"{face.__name__}.{last}" for face in faces(name) if last in getattr(face, "__all__", ())]
    assert not shorter or name in shorter, f"users write {shorter[0]}; what lies deeper is private"
    parts = name.split(".")
    room = ".".join(parts[:3])
    if parts[1] in DIVIDED and len(parts) > 3 and hasattr(resolved(room), "__path__"):
        assert parts[3] in resolved(room).__all__, (
            f"{'.'.join(parts[:4])} is private: let {room} export what users need"
        )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_in_the_docs_are_whole(page):
    names = re.findall(rf"`((?:{'|'.join(FLOORS)})(?:\.[a-z_]\w*)+)[(`]", prose(page))
    cut = [name for name in names if not re.search(r"\.(md|py|csv|json|jsonl|yaml|txt|parquet)$", name)]
    assert not cut, "write medimg_eval. before these, so that they can be copied and are held by a test"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_of_the_repository_that_the_docs_name_exist(page):
    """Of folders that we have; `models/model.pt` may be in somebody's bundle. An example names the file it makes."""
    named = re.findall(
        r"(?<![\w/.:~$-])(?:benchmarks|configs|docs|medimg_eval|metrics|models|tasks|tests)/[\w/.-]*\w", prose(page)
    )
    examples = set(re.findall(r"^# (\S+)$", prose(page), flags=re.MULTILINE))
    ours = [name for name in named if name not in examples and (ROOT / "/".join(name.split("/")[:2])).is_dir()]
    made = [name for name in ours if any(map((ROOT / name).is_relative_to, GENERATED))]
    assert [name for name in ours if name not in made and not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", [*PAGES, *NOTEBOOKS], ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    assert [link for link, target, _ in links(page) if not target.exists() and not generated(target)] == []


@pytest.mark.parametrize("page", [*PAGES, *NOTEBOOKS], ids=lambda page: page.name)
def test_links_to_headings_lead_to_headings(page):
    lost = [
        link
        for link, target, heading in links(page)
        if heading and target.suffix == ".md" and not generated(target) and heading not in headings(target)
    ]
    assert lost == []


def links(page):
    """The links of a page to others: as they are written, the file, the heading."""
    found = re.findall(r"\]\((([^)#:\s]+)(?:#([^)\s]*))?)\)", prose(page))
    return [(link, (page.parent / path).resolve(), heading) for link, path, heading in found]


def generated(target):
    return any(map(target.is_relative_to, GENERATED))


def headings(page):
    """The names by which forges and Sphinx know the headings of a page."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.M), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def rooms():
    tops = ("medimg_eval", "tasks", "models", "metrics", "configs")
    return sorted(path.parent for top in tops for path in (ROOT / top).rglob("__init__.py"))


@pytest.mark.parametrize("room", rooms(), ids=lambda room: str(room.relative_to(ROOT)))
def test_rooms_say_what_they_are_for(room):
    words = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
    assert len(words.partition("\n")[0]) > 20, "begin with a line that says what the room is for"
    assert len(words.splitlines()) <= 14, "a few lines will do: each module says the rest of itself"
    listed = [name for line in words.splitlines() if line.startswith("- ") for name in re.findall(r"`(\w+)`", line)]
    assert [name for name in listed if not (room / f"{name}.py").exists() and not (room / name).is_dir()] == []


@pytest.mark.slow
def test_the_examples_of_the_page_on_python_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("nnunet", "mine", "labelsTs"):
        Path(folder).mkdir()
        for number in range(3):
            mask = np.zeros((8, 8, 8), np.uint8)
            mask[2:6, 2:6, 2 + number * (folder == "mine") : 6] = 1
            nib.save(nib.Nifti1Image(mask, np.eye(4)), f"{folder}/case{number}.nii.gz")
    told: dict[str, object] = {"__name__": "__main__"}
    for program in programs(ROOT / "docs" / "start" / "python.md"):
        exec(compile(program, "docs/start/python.md", "exec"), told)  # noqa: S102
    assert len(told["table"].rows) == 2
