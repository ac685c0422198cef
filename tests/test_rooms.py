"""What keeps the house in order: rooms of a readable size, and no way into a room but through its face."""

import ast
import importlib
import subprocess
from collections import Counter
from pathlib import Path

import pytest

import medimg_eval

ROOT = Path(medimg_eval.__file__).parents[1]
TOPS = ("medimg_eval", "tasks", "models", "metrics")
FLOORS = ("metrics", "models", "imaging", "results")
"""What is divided into rooms that are entered through their faces alone."""

FRIENDS = {"medimg_eval.tensors": "medimg_eval.metrics.segmentation"}
"""Who may look behind a face: the metrics on tensors share the arithmetic of those on arrays."""


def files():
    return [path for top in TOPS for path in (ROOT / top).rglob("*.py") if not path.is_symlink()]


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "medimg_eval" else ("medimg_eval", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in files()}
ROOMS = [
    name
    for name, path in MODULES.items()
    if path.name == "__init__.py" and name.count(".") == 2 and name.split(".")[1] in FLOORS
]


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_stay_short_enough_to_read(path):
    assert len(path.read_text().splitlines()) <= 600, f"{path} is long: part it by subject"


def test_a_run_reads_as_one_screen_and_no_stage_of_it_hides_a_longer_function():
    evaluation = ROOT / "medimg_eval" / "evaluation"
    assert len((evaluation / "pipeline.py").read_text().splitlines()) <= 120
    long = [
        f"{path.name}: {node.name}"
        for path in evaluation.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno - node.lineno >= 60
    ]
    assert not long


def test_rooms_stay_small_enough_to_find_things_in():
    sizes = Counter(path.parent.relative_to(ROOT).as_posix() for path in files())
    crowded = {room: size for room, size in sizes.items() if size > (30 if room == "medimg_eval/commands" else 20)}
    assert not crowded, f"part these rooms by subject: {crowded}"


def test_modules_are_private_by_position_and_not_by_an_underscore():
    private = [name for name in MODULES if name.rpartition(".")[2].startswith("_")]
    assert [name for name in private if not name.startswith(("medimg_eval.tensors.", "medimg_eval.__main__"))] == []


@pytest.mark.parametrize("room", ROOMS)
def test_a_face_keeps_its_promises_and_shadows_no_module(room):
    face = importlib.import_module(room)
    promised = set(getattr(face, "__all__", ()))
    assert all(hasattr(face, name) for name in promised)
    inside = {name.split(".")[3] for name in MODULES if name.startswith(f"{room}.")}
    assert not promised & inside, "a module is called like what the face exports: importing it hides that"


def test_rooms_are_entered_through_their_faces():
    trespasses = []
    for name, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or not node.module:
                continue
            room = ".".join(node.module.split(".")[:3])
            if room not in ROOMS or node.module == room or f"{name}.".startswith(f"{room}."):
                continue
            if not any(name.startswith(friend) and room == shared for friend, shared in FRIENDS.items()):
                trespasses.append(f"{name} imports from {node.module}; let {room} export it")
    assert not trespasses, "\n".join(trespasses)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the history")
@pytest.mark.parametrize("path", ["metrics/segmentation/overlap.py", "models/vision_language/openai/client.py"])
def test_moved_files_keep_their_history(path):
    command = ["git", "log", "--follow", "--format=%H", "--", path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    if (ROOT / ".git" / "shallow").exists():
        pytest.skip("a shallow clone has no history")
    assert len(done.stdout.split()) > 1
