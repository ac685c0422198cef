"""The commands of the published systems, run as they stand on files in the authors' form, with stand-ins for models."""

import json
import re
from functools import cache
from pathlib import Path

import pytest

from medimg_eval.api.listing import published_systems
from medimg_eval.commands.cli import start
from tests.helpers import tiny_vlm
from tests.helpers.catalogue import AGENTS, REPORTS, SAMPLES
from tests.helpers.chat_server import chat_server
from tests.helpers.config_files import config_names
from tests.helpers.samples import ALL
from tests.helpers.system_words import fill_words, named
from tests.models.annotators.test_bertscore import bert
from tests.models.annotators.test_chexbert import weights as chexbert
from tests.models.annotators.test_lunguage import files as lunguage
from tests.models.annotators.test_radgraph import places

assert ALL is not None

FIXTURES = (bert, chexbert, lunguage, places)
"""Fixtures of other tests, which pytest finds by their names here."""

EVERY = {**SAMPLES, **REPORTS, **AGENTS}
TESTS = Path(__file__).parents[1]
COMMANDS = sorted({line for system in published_systems().values() for line in system["commands"]})
ELSEWHERE = {"huggingface_vlm", "openai_compatible", "precomputed_reports"}
"""Models whose stand-in answers questions; of others the fixtures are those of the tests that name their tasks."""

REPORT_FILE = "REPORTS.csv"

MORE = {"temmed_selection": ["task.retriever.by=images"]}
"""Task -> further words: its fixture states a retrieved case of the same patient, which is refused."""


TASKS = sorted({named(line, "task") for line in COMMANDS} - {""})
RUNNABLE = [
    line
    for line in COMMANDS
    if line.startswith("test ") and named(line, "model") in ELSEWHERE and named(line, "task") in EVERY
]


@cache
def texts_of_tests():
    """What all tests say, but for the list of systems' own."""
    return "\n".join(
        path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("*.py")) if "test_system" not in path.name
    )


def has_fixture(name):
    """Whether some test writes files in the form of a task, or in that of its family of sets."""
    family = name.rpartition("_")[0] if name.startswith("gpfm_survival") else name
    return name in EVERY or re.search(rf"[\"'/=_]{family}[\"'/\\s._]", texts_of_tests()) is not None


@pytest.mark.parametrize("name", TASKS)
def test_every_task_that_a_command_names_is_there_and_has_a_fixture(name):
    assert name in config_names("task")
    assert has_fixture(name)


def test_commands_that_are_run_are_a_good_part_of_all():
    assert len(RUNNABLE) >= 60


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return tiny_vlm.save(tmp_path_factory.mktemp("tiny"), context=16_384)


@pytest.fixture(scope="module")
def server():
    with chat_server(replies=[((), "8 7\nScore: 1 [right] yes. The answer is B.")]) as running:
        yield running


@pytest.fixture
def annotators(chexbert, bert, places, lunguage):
    """Annotator -> words that name a tiny model with random weights."""
    encoder, archive = places
    folders = dict(zip(("biolord", "medcpt"), lunguage[1:], strict=True))
    return {
        "chexbert": [
            f"annotators.chexbert.weights={chexbert}/chexbert.pth",
            f"annotators.chexbert.vocabulary={chexbert}",
        ],
        "bertscore": [f"annotators.bertscore.weights={bert}", "annotators.bertscore.layer=2"],
        "radgraph": [f"annotators.radgraph.weights={archive}", f"annotators.radgraph.encoder={encoder}"],
        "lunguage_timeline": [f"annotators.lunguage_timeline.{key}={folder}" for key, folder in folders.items()],
    }


@pytest.mark.long
@pytest.mark.parametrize("line", RUNNABLE)
def test_a_command_runs_on_the_fixture_of_its_task(line, checkpoint, server, tmp_path, monkeypatch, capsys, request):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("medimg_eval.results.statistics.summaries.MOST_RESAMPLES", 20)
    sample = EVERY[named(line, "task")]
    sample.write(tmp_path / "data")
    Path(REPORT_FILE).write_text("id,prediction\n" + "".join(f"{case},Clear lungs.\n" for case in sample.cases))
    Path("LENGTHS.csv").write_text("id,centimetres\n")
    words = fill_words(line, sample, tmp_path / "data", checkpoint, server.url)
    if "model@judge=green" in line:
        words += [f"judge.checkpoint={tiny_vlm.save(tmp_path / 'green', 'qwen2')}", "judge.dtype=float32"]
    if "conditions=" in line:
        words += MORE.get(named(line, "task"), ())
    code, told = start([*words, "runs=made"]), capsys.readouterr().err
    if lacking := sorted(set(re.findall(r"annotator '(\w+)' lacks its weights", told))):
        tiny = request.getfixturevalue("annotators")
        words += [word for name in lacking for word in tiny[name]]
        code, told = start([*words, "runs=made"]), capsys.readouterr().err
    assert code == 0 or "no case has a value" in told, told  # of metrics that nonsense leaves undefined
    manifests = [json.loads(path.read_text()) for path in Path("made").rglob("manifest.json")]
    assert manifests
    assert {manifest["status"] for manifest in manifests} == {"finished"}
