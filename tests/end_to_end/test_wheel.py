"""What users install: the wheel, alone in an environment, far from the checkout."""

import importlib
import json
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import medimg_eval
from tests.conftest import environment
from tests.helpers.browsing import CHROMIUM, chromium, expect, opened

pytestmark = pytest.mark.slow

ROOT = Path(medimg_eval.__file__).resolve().parents[1]
JOINED = ("tasks", "models", "metrics", "configs")
SUFFIXES = (".py", ".pyi", ".yaml", ".html")
VIEWER = [f"medimg_eval/results/report/viewer/{name}" for name in ("niivue.js", "niivue-licences.txt")]
"""What `make viewer` fetched, and git does not track."""
PIP = ["-m", "pip", "-q", "--disable-pip-version-check"]


def copied(place):
    """What the repository holds and the viewer, so that nothing stale in the checkout is shipped."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    tracked = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    present = "\n".join(name for name in [*tracked, *VIEWER] if (ROOT / name).exists())
    subprocess.run(["tar", "-cf", str(place / "s.tar"), "-T", "-"], cwd=ROOT, input=present, text=True, check=True)
    (place / "source").mkdir()
    subprocess.run(["tar", "-xf", str(place / "s.tar"), "-C", str(place / "source")], check=True)
    return place / "source"


def built(source):
    """A wheel, made without network."""
    place = source.parent
    build = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(place), str(source)]
    subprocess.run([sys.executable, *build], check=True, capture_output=True)
    (found,) = place.glob("*.whl")
    return found


def shipped(wheel):
    return {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(SUFFIXES)}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return built(copied(tmp_path_factory.mktemp("wheel")))


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
    lent = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (Path(purelib) / "lent.pth").write_text("\n".join([*lent, ""]))
    return python


def test_the_wheel_holds_medimg_eval_and_nothing_else_at_top_level(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {
        "medimg_eval",
        f"medimg_eval-{medimg_eval.__version__}.dist-info",
    }


def tree():
    """Where modules, stubs and configs of the checkout have to stand in a wheel: all of them, rooms or not."""
    files = [path for suffix in SUFFIXES for path in (ROOT / "medimg_eval").rglob(f"*{suffix}")]
    own = {path.relative_to(ROOT).as_posix() for path in files if path.relative_to(ROOT).parts[1] not in JOINED}
    joined = [path for room in JOINED for suffix in SUFFIXES for path in (ROOT / room).rglob(f"*{suffix}")]
    return own | {f"medimg_eval/{path.relative_to(ROOT).as_posix()}" for path in joined}


def test_the_wheel_holds_the_modules_stubs_and_configs_of_the_checkout_and_no_others(wheel):
    assert shipped(wheel) == tree()
    assert "medimg_eval/py.typed" in zipfile.ZipFile(wheel).namelist()


def test_the_wheel_holds_the_viewer_of_volumes_with_its_licences(wheel):
    if not (ROOT / VIEWER[0]).is_file():
        pytest.skip("make viewer has not fetched it")
    names = zipfile.ZipFile(wheel).namelist()
    assert set(VIEWER) < set(names)
    assert any(name.endswith(f".dist-info/licenses/{VIEWER[1]}") for name in names)


def test_a_checkout_without_symbolic_links_builds_the_same_wheel(wheel, tmp_path):
    source = copied(tmp_path)
    for room in JOINED:
        link = source / "medimg_eval" / room
        target = link.readlink().as_posix()
        link.unlink()
        link.write_text(target)  # what git makes of a link where there are none
    assert shipped(built(source)) == shipped(wheel)


def test_faces_are_the_same_from_the_wheel(python):
    """A lazy face reads its stub when it is imported; rooms of models are opened by the quickstart below."""
    stubs = sorted(name for name in tree() if name.endswith("/__init__.pyi"))
    rooms = [name.removesuffix("/__init__.pyi").replace("/", ".") for name in stubs]
    assert {"medimg_eval.metrics", "medimg_eval.models", "medimg_eval.imaging", "medimg_eval.results"} < set(rooms)
    code = (
        "import importlib, json, sys\n"
        "faces = {}\n"
        "for name in sys.argv[1:]:\n"
        "    room = importlib.import_module(name)\n"
        "    faces[name] = sorted(room.__all__)\n"
        "    if name.split('.')[1] in ('metrics', 'imaging', 'results', 'deid'):\n"
        "        [getattr(room, each) for each in room.__all__]\n"
        "import medimg_eval\n"
        "print(json.dumps([medimg_eval.__file__, faces]))\n"
    )
    clean = {key: value for key, value in environment().items() if key != "PYTHONPATH"}
    done = subprocess.run([python, "-c", code, *rooms], cwd="/", env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    where, faces = json.loads(done.stdout)
    assert str(python.parents[1]) in where
    assert faces == {name: sorted(importlib.import_module(name).__all__) for name in rooms}


def look_at(page):
    """What a reader does with the report of the quickstart: filters, opens a case, and takes an overlay away."""
    page.get_by_role("link", name=re.compile("Brain tissue")).first.click()
    expect(page.locator(".count")).to_have_text("23 of 23 cases")
    page.get_by_role("searchbox").fill("level1")
    expect(page.locator(".count")).not_to_have_text("23 of 23 cases")
    page.goto(page.address + "#task=brain_tissue")
    page.locator(".rows a.line").first.click()
    page.wait_for_selector(".niivue[data-drawn], .planes canvas[data-drawn]")
    if page.locator(".niivue").count():
        page.get_by_role("button", name="Show plain slices").click()
    page.wait_for_selector(".planes canvas[data-drawn]")
    drawn = "document.querySelector('.planes canvas').toDataURL()"
    before = page.evaluate(drawn)
    page.keyboard.press("o")
    assert page.evaluate(drawn) != before
    page.goto(page.address + "#task=phantom_ct")
    expect(page.locator(".rows a.line")).not_to_have_count(0)


def test_the_quickstart_runs_from_the_wheel_and_again_from_its_store_even_beside_folders_of_the_same_names(
    python, tmp_path
):
    (tmp_path / "models.py").write_text("raise RuntimeError('a stranger')")
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "__init__.py").write_text("raise RuntimeError('a stranger')")

    def start(*words):
        command, clean = [python, "-m", "medimg_eval", *words], environment()
        del clean["PYTHONPATH"]
        return subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True, check=False)

    first = start("test")
    assert first.returncode == 0, first.stderr
    assert "GaussianMixture" in first.stdout
    assert re.search(r"Dice ↑.*HD95 \(mm\) ↓.*NSD@1 ↑", first.stdout)
    assert "HD95 (px) ↓" in first.stdout  # of the endoscopy clips, which state no physical size
    assert "n = 23 cases" in first.stdout
    assert "one template brain" in first.stdout.lower()
    tasks = {path.name for path in (tmp_path / "runs").iterdir()}
    assert tasks == {"brain_tissue", *(f"phantom_{kind}" for kind in ("ct", "mr", "xray", "endoscopy", "pathology"))}
    for task in tasks:
        (folder,) = (path.parent for path in (tmp_path / "runs" / task).rglob("manifest.json"))
        names = {path.name for path in folder.iterdir()}
        assert {"manifest.json", "config.yaml", "scores.parquet", "summary.json", "predictions", "run.log"} <= names
        scores = pd.read_parquet(folder / "scores.parquet")
        assert (scores["status"] != "failed").all()
        assert np.isfinite(scores.query("metric == 'hd95'")["value"]).any()
        # Phantoms are called so wherever their numbers are shown.
        assert ("phantom" in json.loads((folder / "manifest.json").read_text())["task_title"]) == ("phantom" in task)
    if CHROMIUM is not None:
        reported = start("report", "out=report", "cases=worst:2", "resamples=100")
        assert reported.returncode == 0, reported.stderr
        with chromium() as browser, opened(browser, tmp_path / "report") as page:
            look_at(page)
    again = start("test")
    assert again.stdout == first.stdout
    assert "loading" not in again.stderr
    assert "every case was answered before" in again.stderr
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
