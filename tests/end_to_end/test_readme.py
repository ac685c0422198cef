"""The README's examples, taken from the README."""

import re
from pathlib import Path

import pytest

import medimg_eval
from medimg_eval.metrics import LabelPair, registry

pytestmark = pytest.mark.slow

README = (Path(medimg_eval.__file__).parents[1] / "README.md").read_text()


def block(marker):
    (found,) = (text for text in re.findall(r"```\w*\n(.*?)```", README, re.DOTALL) if marker in text)
    return found


def words(marker):
    (line,) = (line for line in block(marker).splitlines() if marker in line)
    line = line.partition("  #")[0].replace("'", "")
    return line.removeprefix("python -m medimg_eval ").split()


def test_the_examples_are_as_short_as_promised():
    for marker in ("# my_model.py", "# my_configs/task/liver.yaml", "# my_metrics.py"):
        assert len(block(marker).splitlines()) < 15


def test_a_model_is_plugged_in_as_shown(program, tmp_path):
    (tmp_path / "my_model.py").write_text(block("# my_model.py"))
    done = program(*words("my_model.Threshold"))
    assert done.returncode == 0, done.stderr
    assert "Threshold" in done.stdout


def test_a_task_is_added_as_shown(program, write_dataset, tmp_path):
    root = write_dataset(3)
    (root / "images").rename(root / "imagesTs")
    (root / "labels").rename(root / "labelsTs")
    for path in (root / "imagesTs").iterdir():
        path.rename(path.with_name(path.name.replace(".nii.gz", "_0000.nii.gz")))
    (tmp_path / "predictions").symlink_to(root / "labelsTs")
    (tmp_path / "my_configs" / "task").mkdir(parents=True)
    text = block("# my_configs/task/liver.yaml").replace("data/liver", str(root))
    (tmp_path / "my_configs" / "task" / "liver.yaml").write_text(text)
    for marker in ("check --config-dir", "task=liver model=precomputed"):
        done = program(*words(marker))
        assert done.returncode == 0, done.stderr
    assert "1.000" in done.stdout


def test_an_image_is_read_as_shown(tmp_path, monkeypatch, capsys):
    import numpy as np

    from medimg_eval.case import Image
    from medimg_eval.imaging.dicom.writing.images import write_series

    (tmp_path / "study" / "series_3").mkdir(parents=True)
    write_series(tmp_path / "study" / "series_3", Image(np.zeros((1, 5, 4, 3), np.int16), np.eye(4)))
    monkeypatch.chdir(tmp_path)
    exec(block("from medimg_eval.imaging import read"), {})  # noqa: S102 - our own README
    assert "(1, 5, 4, 3)" in capsys.readouterr().out


def test_a_metric_is_added_as_shown(monkeypatch):
    import numpy as np

    monkeypatch.setattr(registry, "_METRICS", dict(registry.available()))
    space = {}
    exec(block("# my_metrics.py"), space)  # noqa: S102 - our own README
    pair = LabelPair(np.ones((2, 2), bool), np.array([[1, 0], [0, 0]], bool), (1.0, 1.0))
    assert space["size_ratio"](pair) == 0.25
    assert registry.get("size_ratio").title == "Size ratio"
