"""What a plain installation lacks is named in one sentence, with what to paste: extras, devices, data."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

from medimg_eval.api import load_task
from medimg_eval.data.layouts import Questions, Volumes
from medimg_eval.errors import EXTRAS, MissingDataError, UserError, import_optional
from medimg_eval.instantiate import build
from medimg_eval.models.text_encoders import device_of
from medimg_eval.settings import refuse_absent_device
from medimg_eval.tasks import QuestionTask, SegmentationTask
from tests.conftest import environment

ROOT = Path(__file__).parents[1]

BLOCKER = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {libraries}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""

CARD = ("monai", "torch", "torchvision", "pydicom", "nibabel", "SimpleITK", "timm", "open_clip_torch", "lightning")


def declared():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def names(requirements):
    return {re.split(r"[\[<>=; ]", one)[0] for one in requirements}


def test_a_plain_installation_brings_what_the_card_names():
    plain = declared()["dependencies"]
    assert names(plain) >= set(CARD)
    (torch,) = (one for one in plain if re.match(r"torch\b", one) and not one.startswith("torchvision"))
    assert torch == "torch>=2.6"


@pytest.mark.parametrize("library", sorted(EXTRAS))
def test_a_library_of_an_extra_is_asked_for_in_one_sentence(library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UserError) as caught:
        import_optional(library)
    said = str(caught.value)
    assert f"needs the library {library}, " in said
    assert said.endswith(f": pip install 'medimg-eval[{EXTRAS[library]}]'")
    assert "\n" not in said


def test_the_extras_hold_what_is_said_of_them():
    extras = declared()["optional-dependencies"]
    for library, extra in EXTRAS.items():
        held = names(extras[extra])
        assert {"openjpeg": "pylibjpeg", "cv2": "opencv-python-headless"}.get(library, library) in held


def test_libraries_of_extras_are_imported_in_one_way():
    theirs = re.compile(rf"^\s*(?:import|from)\s+({'|'.join(EXTRAS)})\b", re.MULTILINE)
    caught = {"slides/backends.py"}  # goes on to the next library, and names all that it lacks
    # Behind a first `import_optional`.
    late = re.compile(r"vision_language/huggingface/|report_generation/|radgraph/network|bertscore|text_encoders")
    for folder in ("medimg_eval", "models", "metrics", "tasks"):
        for path in (ROOT / folder).rglob("*.py"):
            if "/".join(path.parts[-2:]) not in caught and not late.search(path.as_posix()):
                assert not theirs.findall(path.read_text()), path


def test_hydra_makes_the_same_sentence_of_what_it_was_to_make(monkeypatch):
    with pytest.raises(UserError, match=r"needs the library mlflow, .*: pip install 'medimg-eval\[tracking\]'"):
        build({"_target_": "tests.test_extras.in_need_of", "words": "Try `pip install -U 'mlflow>=1.0.0'`"})
    with pytest.raises(ModuleNotFoundError, match="theirs"):  # of code of the user's own, as it is
        build({"_target_": "tests.test_extras.in_need_of", "words": "No module named 'theirs'"})


def in_need_of(words):
    raise ModuleNotFoundError(words)


@pytest.fixture
def bare(tmp_path):
    """Runs the program where only the plain installation is."""

    def run(*words):
        (tmp_path / "sitecustomize.py").write_text(BLOCKER.format(libraries=sorted(EXTRAS)))
        command = [sys.executable, "-m", "medimg_eval", *words]
        shown = environment(tmp_path)
        return subprocess.run(command, check=False, cwd=tmp_path, env=shown, capture_output=True, text=True)

    return run


@pytest.mark.slow
def test_the_command_of_the_readme_ends_in_one_sentence_without_extra_and_data(bare):
    (readme,) = re.findall(
        r"^python -m medimg_eval (test task=slake .*)$", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    done = bare(*readme.split())
    assert done.returncode == 1
    (said,) = done.stderr.splitlines()
    assert "data/slake: no such folder" in said
    assert said.endswith("python -m medimg_eval download task=slake root=data/slake")
    done = bare("test", "task=phantom_reports", "model=huggingface_vlm", "model.checkpoint=owner/name")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].endswith(": pip install 'medimg-eval[vlm]'")


@pytest.mark.parametrize(
    ("card", "told"),
    [
        ({}, "lies"),
        ({"source": "example.org", "access": "gated"}, "lies; it is had from example.org (gated)"),
        ({"download": ["Ask."]}, "lies; the steps by which it is got: python -m medimg_eval download task=none"),
        (
            {"download": {"hub": "a/b", "files": ["x"]}},
            "lies; fetch it by: python -m medimg_eval download task=none root='{root}'",
        ),
    ],
)
def test_missing_data_are_had_by_the_line_that_is_said(tmp_path, card, told):
    root = tmp_path / "not here"
    layout = Volumes(root=str(root), image="{case}.nii.gz", mask="{case}.nii.gz")
    task = SegmentationTask(name="none", layout=layout, metrics=["dice"], labels={1: "a"}, card=card)
    with pytest.raises(MissingDataError) as caught:
        task.cases("test")
    assert str(caught.value).endswith(told.format(root=root))


def test_a_missing_file_of_records_is_missing_data_too(tmp_path):
    layout = Questions(root=str(tmp_path), records={"test": "test.json"}, question="q", answer={"value": "a"})
    task = QuestionTask(name="none", layout=layout, card={"source": "example.org"})
    with pytest.raises(MissingDataError, match=r"test\.json: no such file; .*; it is had from example\.org"):
        task.cases("test")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_an_absent_device_is_named_with_what_mends_it():
    with pytest.raises(UserError, match=r"device=cuda is not to be had here \(.*\); set it to cpu, or to auto"):
        device_of("cuda")
    assert device_of("auto") == device_of("cpu") == "cpu"
    with pytest.raises(UserError, match=r"trainer\.accelerator=gpu: torch sees no GPU here; set it to cpu"):
        refuse_absent_device("gpu")
    refuse_absent_device("auto")


def test_a_device_that_torch_does_not_know_is_refused():
    with pytest.raises(UserError, match="device=warp is not to be had here"):
        device_of("warp")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("amos22_ct", r"dataset\.json: no such file; it is had from "),  # of nnU-Net's list
        ("medmnist_derma", r"dermamnist\.npz: no such file; "),  # of an array
        ("vqa_rad", r"fetch it by: python -m medimg_eval download task=vqa_rad root="),
    ],
)
def test_a_folder_that_is_still_empty_is_missing_data_too(tmp_path, name, told):
    with pytest.raises(MissingDataError, match=told):
        load_task(name, root=tmp_path).cases("test")
