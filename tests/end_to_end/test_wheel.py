"""What users install: the wheel, alone in an environment, far from the checkout."""

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import medimg_eval
from tests.conftest import environment

pytestmark = pytest.mark.slow

ROOT = Path(medimg_eval.__file__).resolve().parents[1]
JOINED = ("tasks", "models", "metrics", "configs")
PIP = ["-m", "pip", "-q", "--disable-pip-version-check"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, so that nothing stale in the checkout is shipped; without network."""
    place = tmp_path_factory.mktemp("wheel")
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    tracked = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    subprocess.run(["tar", "-cf", str(place / "s.tar"), "-T", "-"], cwd=ROOT, input=tracked, text=True, check=True)
    (place / "source").mkdir()
    subprocess.run(["tar", "-xf", str(place / "s.tar"), "-C", str(place / "source")], check=True)
    build = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(place), str(place / "source")]
    subprocess.run([sys.executable, *build], check=True, capture_output=True)
    (found,) = place.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """A new environment with the wheel in it; its dependencies are lent by the environment of the tests."""
    place = tmp_path_factory.mktemp("env")
    venv.create(place, with_pip=False)
    python = place / "bin" / "python"
    purelib = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    install = ["install", "--no-deps", "--no-index", "--target", purelib, str(wheel)]
    subprocess.run([sys.executable, *PIP, *install], check=True)
    # A path in a .pth file is not searched for .pth files itself, so the editable install stays unseen.
    (Path(purelib) / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def test_the_wheel_holds_medimg_eval_and_nothing_else_at_top_level(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {
        "medimg_eval",
        f"medimg_eval-{medimg_eval.__version__}.dist-info",
    }


def test_the_wheel_holds_every_module_and_every_config_of_the_checkout(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    own = {path.relative_to(ROOT) for path in (ROOT / "medimg_eval").rglob("*.py") if "__pycache__" not in path.parts}
    wanted = {path.as_posix() for path in own}
    for room in JOINED:
        files = [path for suffix in ("py", "yaml") for path in (ROOT / room).rglob(f"*.{suffix}")]
        wanted |= {f"medimg_eval/{path.relative_to(ROOT).as_posix()}" for path in files}
    assert wanted <= names
    assert "medimg_eval/py.typed" in names


def test_the_quickstart_runs_from_the_wheel_even_beside_folders_of_the_same_names(python, tmp_path):
    (tmp_path / "models.py").write_text("raise RuntimeError('a stranger')")
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "__init__.py").write_text("raise RuntimeError('a stranger')")
    done = subprocess.run(
        [python, "-m", "medimg_eval", "test", *(f"~tasks.phantom_{kind}" for kind in ("ct", "mr", "endoscopy"))],
        cwd=tmp_path,
        env={key: value for key, value in environment().items() if key != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "n = 23 cases" in done.stdout
    assert "X-ray phantom" in done.stdout
    where = subprocess.run(
        [python, "-c", "import medimg_eval.tasks as t; print(t.__file__)"],
        cwd="/",
        env={key: value for key, value in environment().items() if key != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert str(python.parents[1]) in where


def test_site_packages_holds_no_folder_of_ours_but_one(python):
    code = "import sysconfig, os; print(*os.listdir(sysconfig.get_path('purelib')))"
    found = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "medimg_eval" in found
    assert not set(found) & {*JOINED, "tests", "benchmarks", "notebooks", "docs"}
