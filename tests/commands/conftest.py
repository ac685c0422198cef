"""Where commands are tried: an empty working folder, with a cache of its own."""

import pytest

from tests.helpers.system_chains import run_chain

__all__ = ["run_chain"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "cache"))
    return tmp_path
