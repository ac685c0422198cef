"""A small dataset of ellipsoids on disk, a task and a model made for it, and the program as users start it."""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from medimg_eval.case import Mask
from medimg_eval.data.layouts import Volumes
from medimg_eval.imaging import write_mask
from medimg_eval.tasks import SegmentationTask
from tests.helpers.started import Starter

SHAPE = (16, 14, 10)
AFFINE = np.array([[-1.0, 0, 0, 30], [0, 1, 0, -20], [0, 0, 2, 5], [0, 0, 0, 1]])
LABELS = {1: "core", 2: "rim"}
HELPERS = Path(__file__).parent / "helpers"
CACHE = pytest.StashKey[str]()
LONG = "MEDIMG_EVAL_LONG_TESTS"
"""Variable that says whether all slow and long tests are run, or some."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--long` runs all tests that are slow or long, and not those alone whose turn it is."""
    parser.addoption("--long", action="store_true", help="run all tests marked slow or long, and not some of them")


def pytest_configure(config: pytest.Config) -> None:
    """Phantoms are written once for all tests, in a cache that is not the user's."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        named = config.args_source is not pytest.Config.ArgsSource.TESTPATHS
        os.environ[LONG] = "all" if named or config.getoption("--long") else "some"
        os.environ["MEDIMG_EVAL_CACHE"] = config.stash[CACHE] = tempfile.mkdtemp(prefix="medimg_eval-tests-")
        salt = Path(config.stash[CACHE], "salt")
        salt.write_text("of the tests, and no user's")
        os.environ["MEDIMG_EVAL_SALT"] = str(salt)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the whole suite's slow tests every fourth is run, of the long ones every sixth.

    Which, follows from the change log, hence from what is landed.
    """
    if os.environ[LONG] == "all":
        return
    state = (HELPERS.parents[1] / "CHANGELOG.md").read_bytes()
    long = [item for item in items if item.get_closest_marker("long")]
    slow = [item for item in items if item.get_closest_marker("slow") and not item.get_closest_marker("long")]
    for found, parts in ((long, 6), (slow, 4)):
        found.sort(key=lambda item: hashlib.sha256(state + item.nodeid.encode()).digest())
        for item in found[math.ceil(len(found) / parts) :]:
            item.add_marker(pytest.mark.skip(reason="slow, and not its turn: pytest --long runs all"))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Takes the cache away again."""
    shutil.rmtree(config.stash.get(CACHE, ""), ignore_errors=True)


def ellipsoid(seed: int, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    """A core (1) inside a rim (2), somewhere about the middle."""
    rng = np.random.default_rng(seed)
    centre = np.array(shape) / 2 + rng.uniform(-1, 1, 3)
    grid = np.indices(shape).reshape(3, -1).T
    radius = np.linalg.norm((grid - centre) / (np.array(shape) / 2.4), axis=1).reshape(shape)
    return np.select([radius < 0.5, radius < 0.9], [1, 2], 0).astype(np.uint8)


@pytest.fixture
def write_dataset(tmp_path: Path) -> Callable[..., Path]:
    """Writes `count` cases, two to a patient, as images/, labels/ and cases.csv."""
    import nibabel as nib

    def write(count: int = 7, *, fit: int = 0, validate: int = 0, folder: str = "data") -> Path:
        root = tmp_path / folder
        for name in ("images", "labels"):
            (root / name).mkdir(parents=True, exist_ok=True)
        lines = ["case,patient,split,site"]
        splits = ["test"] * count + ["fit"] * fit + ["validate"] * validate
        for index, split in enumerate(splits):
            case = f"case{index:02d}"
            labels = ellipsoid(index)
            noise = np.random.default_rng(index).normal(0, 3, SHAPE)
            pixels = np.choose(labels, [0, 100, 200]) + np.where(labels > 0, noise, 0)
            nib.save(nib.Nifti1Image(pixels.astype(np.int16), AFFINE), root / "images" / f"{case}.nii.gz")
            write_mask(root / "labels" / f"{case}.nii.gz", Mask(labels, AFFINE))
            lines.append(f"{case},{split}-p{index // 2},{split},{'north' if index % 2 else 'south'}")
        (root / "cases.csv").write_text("\n".join(lines) + "\n")
        return root

    return write


def ellipsoids(root: Path, **settings: object) -> SegmentationTask:
    """The task of that dataset."""
    layout = Volumes(
        root=str(root), image="images/{case}.nii.gz", mask="labels/{case}.nii.gz", table="cases.csv", modality="MR"
    )
    arguments = {"metrics": ["dice", "hd95", "nsd@1"]} | settings
    return SegmentationTask(name="ellipsoids", layout=layout, labels=LABELS, **arguments)


@pytest.fixture
def config_dir(tmp_path: Path) -> Callable[[Path], Path]:
    """Writes the same task as a user's own YAML and returns the folder for --config-dir."""

    def write(root: Path) -> Path:
        folder = tmp_path / "my_configs" / "task"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "ellipsoids.yaml").write_text(
            f"""
_target_: medimg_eval.tasks.SegmentationTask
name: ellipsoids
title: Ellipsoids
labels: {{1: core, 2: rim}}
metrics: [dice, hd95, nsd@1]
layout:
  _target_: medimg_eval.data.layouts.Volumes
  root: {root}
  image: images/{{case}}.nii.gz
  mask: labels/{{case}}.nii.gz
  table: cases.csv
card:
  description: Ellipsoids made by the tests.
"""
        )
        return folder.parent

    return write


Program = Callable[..., "subprocess.CompletedProcess[str]"]


def environment(*paths: Path) -> dict[str, str]:
    """The environment of a user's shell, with folders put before PYTHONPATH."""
    shown = {key: value for key, value in os.environ.items() if key not in ("HYDRA_FULL_ERROR", "LOCAL_RANK")}
    return shown | {"PYTHONPATH": os.pathsep.join(str(path) for path in paths)}


@pytest.fixture(scope="session")
def starter() -> Iterator[Starter]:
    """A process that starts the program without importing torch and Lightning each time."""
    made = Starter()
    yield made
    made.close()


@pytest.fixture
def program(starter: Starter, tmp_path: Path) -> Program:
    """Runs `python -m medimg_eval` in an empty folder, with the tests' helpers importable."""

    def run(*words: str, cwd: Path | None = None, paths: Sequence[Path] = (HELPERS,), timeout: int = 300):
        return starter.run(words, cwd or tmp_path, environment(*paths), timeout)

    return run
