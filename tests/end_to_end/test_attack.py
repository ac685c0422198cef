"""A question set under attack by one command: files, both models, table."""

import json
import re
from pathlib import Path

import pytest

from medimg_eval.commands.cli import start
from tests.helpers.catalogue import SAMPLES
from tests.helpers.samples import ALL

assert ALL is not None

MODELS = '''
import re

from medimg_eval.models import VisionLanguageModel


class Examinee(VisionLanguageModel):
    """Says C until it is told of a twin."""

    file_arguments = ()

    def generate(self, prompts, decoding):
        return ["The answer is " + ("A" if "twin" in prompt.text else "C") for prompt in prompts]


class Attacker(VisionLanguageModel):
    """Tells of a twin in its second edit."""

    file_arguments = ()

    def generate(self, prompts, decoding):
        assert all("Right answer: " in prompt.messages[0].text for prompt in prompts)
        return [f"<question>He has a {'twin' if len(prompt.messages) > 1 else 'dog'}.</question>" for prompt in prompts]
'''


@pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`")
@pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec")
def test_medqa_is_attacked_by_one_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("attack_models.py").write_text(MODELS)
    SAMPLES["medqa"].write(tmp_path / "data")
    models = ["model._target_=attack_models.Examinee", "+task.attacker._target_=attack_models.Attacker"]
    code = start(["test", "task=medqa_attacked", f"task.layout.root={tmp_path / 'data'}", *models, "runs=made"])
    told = capsys.readouterr()
    assert code == 0, told.err
    assert "Attack success" in told.out
    # One of two questions is right at first, and no longer after the second edit.
    assert re.search(r"0\.500 \[.*0\.000 \[.*1\.000", told.out)
    (manifest,) = (json.loads(path.read_text()) for path in Path("made").rglob("manifest.json"))
    assert manifest["status"] == "finished"
