"""A package of somebody else's, installed."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def acme(tmp_path_factory):
    """A third party's package, installed as pip installs it, without touching ours."""
    place = tmp_path_factory.mktemp("site")
    source = tmp_path_factory.mktemp("source")
    subprocess.run(["cp", "-r", str(Path(__file__).parents[1] / "third_party" / "acme"), str(source)], check=True)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(place), str(source / "acme")], check=True)
    return place
