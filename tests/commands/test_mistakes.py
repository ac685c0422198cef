"""What a newcomer mistypes ends in one sentence with its mend: files, quotes, kinds of values, names of one's own."""

import json

import numpy as np
import pytest

from medimg_eval.case import Mask
from medimg_eval.commands import COMMANDS
from medimg_eval.commands.cli import start
from medimg_eval.configs.overrides import composed, plain
from medimg_eval.imaging import write_mask
from medimg_eval.instantiate import build_task

MODULE = """
from medimg_eval.models import Segmenter


class Threshold(Segmenter):
    def segment(self, prompts):
        return [prompt.image.array[0] > 1 for prompt in prompts]
"""


@pytest.fixture
def newcomer(folder, monkeypatch):
    """A folder with predictions of masks, tables, a run's folder, and a module of one's own."""
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")  # which an earlier command in this process has set
    labels = np.zeros((4, 4, 4), np.uint8)
    labels[1:3, 1:3, 1:3] = 1
    for name in ("predictions", "labelsTs", "generated"):
        (folder / name).mkdir()
    for name in ("predictions", "labelsTs"):
        write_mask(folder / name / "a.nii.gz", Mask(labels, np.eye(4)))
    (folder / "answers.jsonl").write_text(json.dumps({"id": 1, "reference": "A", "prediction": "A"}) + "\n")
    (folder / "labels.csv").write_text("case,label\n1,0\n2,1\n")
    (folder / "found.csv").write_text("case,prob\n1,0.2\n2,0.7\n")
    (folder / "runs" / "brain" / "mine-1a2b3c4d").mkdir(parents=True)
    (folder / "runs" / "brain" / "mine-1a2b3c4d" / "manifest.json").write_text("{}")
    (folder / "newcomers_own.py").write_text(MODULE)
    return folder


MASKS = "score masks=predictions references=labelsTs"
TEST = "test task=brain_tissue limit=1"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("score masks=prediction references=labelsTs", "no such folder of label maps; did you mean 'predictions'?"),
        ("score masks=none/a references=labelsTs", "there is no folder none either"),
        ("score masks=predictions/a.nii.gz references=labelsTs", "name the folder that it lies in, predictions"),
        ("score pictures=generatd real=generated", "pictures=generatd: no such folder; did you mean 'generated'?"),
        ("score pictures=generated real=labels.csv", "real=labels.csv: is a file; name the folder"),
        ("score answers=answer.jsonl", "answer.jsonl: no such table; did you mean 'answers.jsonl'?"),
        ("import log=answer.jsonl", "answer.jsonl: no such log; did you mean 'answers.jsonl'?"),
        ("table runs=none checklists=[claims]", "got 'claims'; did you mean 'claim'?"),
        ("score reports=", "reports= is empty; name a file or folder"),
        ("score classes=found.csv references=labels.csv", "(available: case, prob); columns.prediction=NAME names"),
        (f"{MASKS} labels={{a: b}}", "the shell took 'labels={a: b}' apart at its blanks; quote it: 'labels={a: b}'"),
        (f"{MASKS} labels={{a:b}}", "expected integers with their names, such as {1: liver, 2: tumour}"),
        (f"{MASKS} metrics=dice,iou", "several values stand in brackets: 'metrics=[dice,iou]'"),
        (f"{MASKS} by=[sex,site]", "expected by to be one name or path, got ['sex', 'site']"),
        ("score points=labels.csv references=labels.csv spacing=x", "expected spacing to be a number, got 'x'"),
        ("score labels.csv", "expected key=value after 'score', got 'labels.csv'; score --help shows the keys"),
        ("export run=runs/brain to=nnunet", "name one of those below it: runs/brain/mine-1a2b3c4d"),
        ("export run=runs/brain/mine to=nnunet", "did you mean 'mine-1a2b3c4d'?"),
        (f"{TEST} task.layout=null", "task 'brain_tissue': layout is null; add task.layout=VALUE"),
        (f"{TEST} model=newcomers_own.Threshold", "named by model._target_=newcomers_own.Threshold, and what it takes"),
        (f"{TEST} model._target_=newcomers_own.Treshold", "'Treshold'); did you mean 'Threshold'?"),
        (f"{TEST} model._target_=newcomers_own.Threshold model.level=3", "+model.level=VALUE adds one"),
        ("table runs=run", "run is not a folder; did you mean 'runs'?"),
        ("table scores=label.csv", "label.csv: no such table; did you mean 'labels.csv'?"),
        ("table runs=none level=95", "expected level to be a number between 0 and 1, such as 0.95, got 95"),
    ],
)
def test_a_mistake_is_told_with_its_mend(newcomer, capsys, line, sentence):
    assert start(line.split(" ")) in (1, 2)
    told = capsys.readouterr().err
    assert sentence in told
    assert "Traceback" not in told


def test_a_key_that_is_not_there_is_not_called_like_what_holds_it(newcomer, capsys):
    assert start([*TEST.split(), "model._target_=newcomers_own.Threshold", "model.level=3"]) == 2
    assert "did you mean" not in capsys.readouterr().err


def test_a_mapping_that_is_there_is_no_mend_of_itself(newcomer, capsys):
    assert start(["test", "task=brain_tissue", "+model.head={size: 3}", "model.head={wide: 2}"]) == 2
    told = capsys.readouterr().err
    assert "did you mean 'model.head'" not in told


def test_an_empty_mapping_is_filled_with_a_plus(newcomer, capsys):
    words = ["task=brain_tissue", "model=timm_classifier"]
    assert start(["test", *words, "model.preprocess={input_size: [3, 64, 64]}"]) == 2
    assert "model.preprocess is empty; +model.preprocess={...} fills it" in capsys.readouterr().err
    config = composed("test", [*words, "+model.preprocess={input_size: [3, 64, 64]}"])
    assert list(config.model.preprocess.input_size) == [3, 64, 64]


def test_null_takes_a_setting_of_a_task_back_to_its_default():
    task = build_task(plain(composed("test", ["task=brain_tissue", "task.expected=null", "task.card=null"]))["task"])
    assert task.expected == {}
    assert "expected" not in task.config


def test_null_takes_a_part_or_an_expected_number_away():
    words = ["task=crc_100k", "task.splits.validate=null", "task.expected.test=null"]
    task = build_task(plain(composed("test", words))["task"])
    assert "validate" not in task.splits
    assert "test" not in task.expected
    assert "fit" in task.splits


def test_labels_are_also_taken_as_nnunet_has_them(newcomer):
    assert start([*MASKS.split(), "labels={background: 0, liver: 1}", "metrics=[dice]"]) == 0
    (manifest,) = newcomer.glob("runs/masks/*/manifest.json")
    assert json.loads(manifest.read_text())["task_config"]["labels"] == {"1": "liver"}


def test_the_list_of_commands_keeps_names_and_words_apart(capsys):
    assert start(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(f"  {name} " in "\n".join(lines) for name in COMMANDS)
