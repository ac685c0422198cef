"""Trackers: what a scored run reports to TensorBoard, to a real MLflow server, and to what looks like W&B."""

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from types import SimpleNamespace

import pandas as pd
import pytest
from lightning.pytorch.loggers.logger import Logger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import medimg_eval
from medimg_eval.commands.cli import start
from medimg_eval.results import build_table, load_runs
from medimg_eval.results.tracking import tracked_values
from medimg_eval.tasks import QuestionTask
from tests.helpers.asking import Quiz, Says

CSV = (
    "id,reference,prediction\n"
    "a,No effusion.,No effusion.\nb,Mild edema.,There is mild edema.\nc,A nodule.,Clear lungs.\n"
    "d,Clear lungs.,Clear lungs.\ne,Large effusion.,Effusion.\nf,No edema.,No edema.\n"
)
REPORTS = ["reports=mine.csv", "metrics=[rouge_l,unanswered]", "may_leave=yes"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "mine.csv").write_text(CSV)
    return tmp_path


def run_folder(folder):
    (manifest,) = folder.glob("runs/reports/*/manifest.json")
    return manifest.parent


def manifest_of(folder):
    return json.loads((run_folder(folder) / "manifest.json").read_text())


class Remembering(Logger):
    """A tracker that keeps what it is told, or fails."""

    told: list = []  # noqa: RUF012 - shared on purpose: the program makes the object
    failing = False
    name, version = "remembering", "0"

    def __init__(self, save_dir, run_name=""):
        super().__init__()

    def log_hyperparams(self, params):
        self.told.append(params)

    def log_metrics(self, metrics, step=None):
        if self.failing:
            raise ConnectionError("nobody answers")
        self.told.append(metrics)


OWN = f"+logger.mine._target_={__name__}.Remembering"


@pytest.fixture
def remembering(monkeypatch):
    monkeypatch.setattr(Remembering, "told", [])
    monkeypatch.setattr(Remembering, "failing", False)
    return Remembering


def test_tensorboard_holds_means_with_intervals_table_card_and_figures(folder):
    assert start(["score", *REPORTS, "logger=tensorboard"]) == 0
    (events,) = run_folder(folder).glob("logs/tensorboard/events*")
    read = EventAccumulator(str(events))
    read.Reload()
    (run,) = load_runs([run_folder(folder)])
    values = run.scores.loc[run.scores["metric"] == "rouge_l", "value"]
    (mean,), (low,), (high,) = (read.Scalars(f"rouge_l{end}") for end in ("", "/low", "/high"))
    assert mean.value == pytest.approx(values.mean(), abs=1e-6)
    assert low.value < mean.value < high.value
    assert read.Scalars("rouge_l/n")[0].value == 6
    assert "forest-rouge-l" in read.Tags()["images"]
    assert {"table/text_summary", "card/text_summary"} <= set(read.Tags()["tensors"])
    assert {"table.csv", "card.md", "forest-rouge-l.pdf"} <= {
        file.name for file in run_folder(folder).glob("tracked/*")
    }


def test_any_logger_of_lightning_is_told_the_values(folder, remembering):
    assert start(["score", *REPORTS, OWN]) == 0
    facts, values = remembering.told
    assert facts == {"task": "reports", "model": "mine", "seed": "0", "run": manifest_of(folder)["run"]}
    assert values == tracked_values(build_table(load_runs([run_folder(folder)])))
    assert {"rouge_l", "rouge_l/low", "rouge_l/high", "rouge_l/n", "rouge_l/failed"} <= set(values)


def test_a_run_of_test_and_its_score_report_too(tmp_path, remembering):
    quiz = QuestionTask(name="quiz", layout=Quiz(number=8), splits={"test": "test"})
    logger = {"mine": {"_target_": f"{__name__}.Remembering"}}
    run = medimg_eval.test(quiz, Says(), runs=tmp_path, logger=logger, may_leave="yes", num_workers=0)
    (_, values), remembering.told[:] = list(remembering.told), []
    assert values["accuracy"] == 0.25
    medimg_eval.score(run, logger=logger, may_leave="yes")
    assert remembering.told[1] == values


def test_a_tracker_that_fails_loses_nothing_and_is_named_until_it_is_mended(folder, remembering, monkeypatch, capsys):
    monkeypatch.setattr(Remembering, "failing", True)
    assert start(["score", *REPORTS, OWN]) == 1
    printed = capsys.readouterr()
    assert "ROUGE-L" in printed.out
    assert "Remembering did not take the scores (ConnectionError: nobody answers)" in printed.err
    assert f"score run={run_folder(folder).relative_to(folder)}" in printed.err
    assert manifest_of(folder)["untracked"] == {"Remembering": "ConnectionError: nobody answers"}
    assert len(pd.read_parquet(run_folder(folder) / "scores.parquet")) == 12
    monkeypatch.setattr(Remembering, "failing", False)
    assert start(["score", f"run={run_folder(folder)}", OWN, "may_leave=yes"]) == 0
    assert manifest_of(folder)["untracked"] == {}


def test_without_a_tracker_a_former_failure_is_forgotten(folder, remembering, monkeypatch):
    monkeypatch.setattr(Remembering, "failing", True)
    assert start(["score", *REPORTS, OWN]) == 1
    assert start(["score", f"run={run_folder(folder)}"]) == 0
    assert manifest_of(folder)["untracked"] == {}


def test_wandb_gets_numbers_tables_pictures_and_an_artifact(folder, monkeypatch):
    made = SimpleNamespace(logged={}, summary={}, artifacts=[], finished=False)

    class Artifact:
        def __init__(self, name, type):  # noqa: A002 - W&B's own word
            self.name, self.kind, self.folders = name, type, []

        def add_dir(self, place):
            self.folders.append(place)

    class WandbLogger(Remembering):
        def __init__(self, save_dir, name, version):
            super().__init__(save_dir)
            self.experiment = SimpleNamespace(
                id=version,
                log=made.logged.update,
                log_artifact=made.artifacts.append,
                summary=made.summary,
                finish=lambda: setattr(made, "finished", True),
            )
            self._offline = True

    library = SimpleNamespace(Artifact=Artifact, Image=str, Table=lambda dataframe: dataframe)
    monkeypatch.setitem(sys.modules, "wandb", library)
    monkeypatch.setattr(sys.modules[__name__], "WandbLogger", WandbLogger, raising=False)
    assert start(["score", *REPORTS, f"+logger.mine._target_={__name__}.WandbLogger"]) == 0
    assert made.summary == tracked_values(build_table(load_runs([run_folder(folder)])))
    assert set(made.logged) == {"table", "forest-rouge-l", "forest-unanswered"}
    assert set(made.logged["table"]["metric"]) == {"rouge_l", "unanswered"}
    (artifact,) = made.artifacts
    assert (artifact.name, artifact.kind) == (f"{run_folder(folder).name}-results", "results")
    assert artifact.folders == [str(run_folder(folder).relative_to(folder) / "tracked")]
    assert made.finished


def test_scores_do_not_leave_unasked(folder, monkeypatch, capsys):
    class MLFlowLogger(Remembering):
        def __init__(self, **options):
            super().__init__(**options)
            self._tracking_uri = "https://far.example"

    monkeypatch.setattr(sys.modules[__name__], "MLFlowLogger", MLFlowLogger, raising=False)
    assert start(["score", *REPORTS[:2], f"+logger.mine._target_={__name__}.MLFlowLogger"]) == 2
    assert "far.example" in capsys.readouterr().err
    assert not list(folder.glob("runs/**/scores.parquet"))


@pytest.fixture
def mlflow_server(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = ["--backend-store-uri", f"sqlite:///{tmp_path}/ml.db", "--artifacts-destination", str(tmp_path / "kept")]
    words = ["-m", "mlflow", "server", "--port", str(port), "--workers", "1", *store]
    server = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(600):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1)
            break
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    yield f"http://127.0.0.1:{port}"
    server.terminate()
    server.wait()


@pytest.mark.slow
def test_an_mlflow_server_holds_one_run_however_often_it_is_reported(folder, mlflow_server):
    from mlflow.tracking import MlflowClient

    assert start(["score", *REPORTS, "logger=mlflow"]) == 0
    assert start(["score", f"run={run_folder(folder)}", "logger=mlflow"]) == 0
    client = MlflowClient(mlflow_server)
    experiment = client.get_experiment_by_name("medimg_eval").experiment_id
    (run,) = client.search_runs([experiment])
    assert (run.info.run_name, run.info.status) == (run_folder(folder).name, "FINISHED")
    assert run.data.metrics == pytest.approx(tracked_values(build_table(load_runs([run_folder(folder)]))))
    assert run.data.params["model"] == "mine"
    assert {"card.md", "table.csv", "forest-rouge-l.png"} <= {
        file.path for file in client.list_artifacts(run.info.run_id)
    }
