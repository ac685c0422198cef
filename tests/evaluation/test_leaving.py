"""What may leave this machine: every card value, with and without the user's word, by every kind of remote model."""

import itertools
import json
from functools import partial
from types import SimpleNamespace

import pytest
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.loggers.logger import Logger
from torch import nn

from medimg_eval.case import Case
from medimg_eval.commands.cli import start
from medimg_eval.errors import LeaveError, UsageError
from medimg_eval.evaluation.fitting.fit import Recipe, fit
from medimg_eval.evaluation.leaving import permit, permit_providers, permitted_by
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.instantiate import build_task
from medimg_eval.metrics.registry import Requirement
from medimg_eval.metrics.reports.labeler.labeler import label_report
from medimg_eval.models.annotators.base import TextAnnotator
from medimg_eval.models.base import Segmenter
from medimg_eval.models.segmentation.ensemble import Vote
from medimg_eval.models.vision_language.openai.model import OpenAICompatible
from medimg_eval.question import Key, Question
from medimg_eval.settings import _refuse_other_card
from medimg_eval.tasks import QuestionTask, ReportTask, Task
from medimg_eval.tasks.questions.consultation import ConsultationQuestionTask
from tests.conftest import ellipsoids
from tests.helpers.asking import Known, Quiz, Says
from tests.helpers.chat_server import chat_server
from tests.helpers.running import evaluate, rescore

ABSENT = object()
CARDS = {"yes": "yes", "no": "no", "ask": "ask", True: "yes", False: "no", None: "ask", ABSENT: "ask"}
"""What a card may hold -> what it means; YAML reads yes, Yes, no and No as booleans."""

GARBAGE = ("Yes", "NO", "Ask", "credentialed", "must not leave", "", "true", 0, 1, ["yes"])

SAYS = ("yes", "no", "ask", True, False, None)


def called(value):
    return "absent" if value is ABSENT else str(value)


def card(value):
    return {} if value is ABSENT else {"may_leave": value}


def expected(value, said):
    """Who permits it."""
    said = {True: "yes", False: "no", None: "ask"}.get(said, said)
    if "no" in (CARDS[value], said):
        return ""
    return "card" if CARDS[value] == "yes" else "command line" if said == "yes" else ""


class Far(OpenAICompatible):
    """A server that is at hand, and counts as one elsewhere."""

    remote = True


class Wandb(Logger):
    """Looks like W&B's logger, which needs its package."""

    def __init__(self, offline=False, **options):
        self._offline, self._wandb_init = offline, options

    name, version = "w", "0"

    def log_hyperparams(self, *_, **__):
        """Logs nothing."""

    log_metrics = log_hyperparams


WandbLogger = type("WandbLogger", (Wandb,), {})
StrangeLogger = type("StrangeLogger", (Wandb,), {})


def mlflow_logger(uri):
    made = type("MLFlowLogger", (Wandb,), {})()
    made._tracking_uri = uri
    return made


def server(url):
    return OpenAICompatible("m", url, api_key_env=None, cache=False)


ELSEWHERE = "https://api.example.org/v1"
HERE = "http://127.0.0.1:8000/v1"

ASKED = {
    "server": server,
    "part of another": lambda url: Vote([SimpleNamespace(reads_images=True), Part(server(url))]),
    "deep in lists": lambda url: Part([{"one": (Part(server(url)),)}]),
    "among layers": lambda url: Part(nn.Sequential(Layer(server(url)))),
    "tracker (MLflow)": mlflow_logger,
}


class Part(Segmenter):
    """A segmenter that asks a server."""

    def __init__(self, asked):
        self.asked = asked

    def segment(self, prompts):
        """Is never asked."""


class Layer(nn.Module, Part):
    """The same, known to torch."""

    def __init__(self, asked):
        super().__init__()
        self.asked = asked


@pytest.mark.parametrize("role", ["model", "judge", "patient", "annotator", "extractor", "tracker"])
@pytest.mark.parametrize("kind", ASKED)
def test_one_function_decides_by_card_and_word_whatever_is_asked(kind, role):
    for value, said in itertools.product(CARDS, SAYS):
        task = quiz(value)
        by = expected(value, said)
        assert permitted_by(task.may_leave, {True: "yes", False: "no", None: "ask"}.get(said, said)) == by
        assert permit(task, said, role, "m", ASKED[kind](HERE), ["images"]) == []
        if by:
            (sent,) = permit(task, said, role, "m", ASKED[kind](ELSEWHERE), ["images"])
            assert sent == {
                "to": "api.example.org", "role": role, "name": "m", "what": ["images"], "permission": by,
            }  # fmt: skip
            continue
        with pytest.raises(LeaveError, match=f"'quiz'.*{role} 'm' would send images to api.example.org") as caught:
            permit(task, said, role, "m", ASKED[kind](ELSEWHERE), ["images"])
        asks = CARDS[value] == "ask" and said in ("ask", None)
        assert caught.value.mend == ("may_leave=yes" if asks else "")


@pytest.mark.parametrize("value", GARBAGE, ids=repr)
def test_another_word_is_refused_when_the_task_is_made_or_the_word_is_said(value):
    config = {"_target_": "medimg_eval.tasks.QuestionTask", "name": "mine", "layout": {"_target_": "builtins.dict"}}
    config |= {"metrics": ["accuracy"], "template": {"user": "{question}"}}
    assert build_task(config).may_leave == "ask"
    with pytest.raises(UsageError, match=r"task 'mine': card.may_leave is .*; expected yes, no or ask"):
        build_task(config | {"card": {"may_leave": value}})
    with pytest.raises(UsageError, match="may_leave is .*; expected yes, no or ask"):
        permit(quiz("yes"), value, "model", "m", server(ELSEWHERE), ["images"])
    assert build_task(config | {"card": None}).may_leave == "ask"
    for strange in ("may_leave: yes", ["may_leave"]):
        with pytest.raises(UsageError, match=r"task 'mine': its card is .*; expected keys with values"):
            build_task(config | {"card": strange})


def test_a_tracker_stays_here_only_where_that_is_known(monkeypatch, tmp_path):
    def goes(logger):
        return [one["to"] for one in permit(quiz("yes"), None, "tracker", "t", logger, ["scores"])]

    for name in ("WANDB_MODE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    assert goes(CSVLogger(tmp_path)) == []
    assert goes(WandbLogger()) == ["api.wandb.ai"]
    assert goes(WandbLogger(offline=True)) == goes(WandbLogger(mode="disabled")) == []
    assert goes(StrangeLogger()) == ["StrangeLogger"]
    assert goes(mlflow_logger("file:/runs")) == goes(mlflow_logger("sqlite:///a.db")) == []
    assert goes(mlflow_logger("databricks")) == ["databricks"]
    monkeypatch.setenv("WANDB_BASE_URL", "http://localhost:8080")
    assert goes(WandbLogger()) == []
    monkeypatch.setenv("WANDB_BASE_URL", "http://10.0.0.7:8080")
    assert goes(WandbLogger()) == ["10.0.0.7"]
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert goes(WandbLogger()) == []


def test_pictures_go_to_extractors_and_networks_by_the_same_rule():
    for value, said in itertools.product(CARDS, SAYS):
        for kind, role in (("features", "extractor"), ("distance", "annotator")):
            needs = (Requirement(kind, "seen"),)
            task = SimpleNamespace(
                name="t", may_leave=CARDS[value], requirements=partial(tuple, needs), shows=partial(Task.shows, None)
            )
            known = {"seen": ModelSpec("seen", OpenAICompatible, {}, partial(server, ELSEWHERE))}
            if expected(value, said):
                (sent,) = permit_providers(task, said, known)
                assert (sent["role"], sent["what"][0]) == (role, "images")
                continue
            with pytest.raises(LeaveError):
                permit_providers(task, said, known)


# Every kind, from the task to the server


@pytest.fixture(scope="module")
def chat():
    with chat_server() as running:
        yield running


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "cache"))
    return Settings(runs=tmp_path / "runs", run=None, trainer=lambda **_: None, config={}, score_workers=0)


def candidate(model, name="m"):
    return ModelSpec(name, type(model), {"name": name}, load=lambda: model)


def quiz(value, **more):
    settings = {"metrics": ["accuracy"], "card": card(value)} | more
    return QuestionTask(name="quiz", layout=Quiz(number=2), splits={"test": "test"}, **settings)


class Reads(TextAnnotator):
    """Stands in CheXbert's place, as if it asked a server."""

    def __init__(self, asked):
        self.asked = asked

    def annotate(self, texts):
        TOLD.extend(texts)
        return [label_report(text) for text in texts]


TOLD = []


class Reports:
    """One report."""

    def cases(self, split):
        return [Case("a", (), Known(Key("Edema.")), question=Question("Report 1.", "report"))]


def asking_model(value, asked, settings):
    return evaluate(quiz(value), candidate(asked), settings)


def asking_judge(value, asked, settings):
    grade = {"prompt": {"user": "{output} 1"}, "pattern": r"(\d)", "values": {"1": 1}}
    settings.judge = candidate(asked, f"j {settings.config}")  # replies are kept by its name
    return evaluate(quiz(value, metrics=["judged@grade"], judge={"grade": grade}), candidate(Says()), settings)


def asking_patient(value, asked, settings):
    ill = {"id": "ill", "text": "My arm itches.", "options": {"A": "hives", "B": "eczema"}, "right": "A", "images": []}
    task = ConsultationQuestionTask(
        name="talk", layout=Quiz([ill]), splits={"test": "test"}, metrics=["accuracy"], script="Say 1.", turns=1,
        patient=asked, card=card(value),
    )  # fmt: skip
    return evaluate(task, candidate(Says(default="A 1")), settings)


def reporting(value):
    return ReportTask(name="r", layout=Reports(), template={"user": "{question}"}, splits={"test": "test"},
                      metrics=["chexbert_f1@micro-all"], card=card(value))  # fmt: skip


def asking_annotator(value, asked, settings):
    settings.annotators = {"chexbert": ModelSpec("chexbert", Reads, {}, lambda: Reads(asked))}
    return evaluate(reporting(value), candidate(Says(default="Edema.")), settings)


KINDS = {"model": asking_model, "judge": asking_judge, "patient": asking_patient, "annotator": asking_annotator}


@pytest.mark.parametrize("value", [one for one in CARDS if not isinstance(one, bool)], ids=called)
@pytest.mark.parametrize("place", [OpenAICompatible, Far])
@pytest.mark.parametrize("role", KINDS)
def test_a_server_is_told_nothing_that_may_not_leave_and_the_manifest_says_what_it_was_told(
    role, place, value, settings, chat
):
    asked = place("m", chat.url, api_key_env=None, cache=False, retries=0)

    def told():
        return sum(chat.counts()["asked"].values()) + len(TOLD)

    for said in (None, "yes"):
        settings.config = {"may_leave": said}
        settings.run = settings.runs / f"{role}-{said}"
        before, by = told(), expected(value, said)
        if place is Far and not by:
            with pytest.raises(LeaveError, match=f"{role} .* would send .*answers|{role} .* would send .*questions"):
                KINDS[role](value, asked, settings)
            assert told() == before
            continue
        manifest = json.loads((KINDS[role](value, asked, settings) / "manifest.json").read_text())
        assert told() > before or role == "annotator"  # whose readings are kept for other runs
        if place is OpenAICompatible:
            assert "sent" not in manifest
            continue
        (sent,) = manifest["sent"]
        assert (sent["to"], sent["role"], sent["permission"]) == ("127.0.0.1", role, by)
        assert sent["trials"] == (1 if role in ("patient", "annotator") else 2)
        what = {"model": ["images", "questions"], "annotator": ["answers"]}
        assert sent["what"] == what.get(role, ["questions", "answers"])


def test_what_is_scored_again_obeys_too(settings, chat):
    here = server(chat.url)
    folder = asking_annotator("ask", here, settings)
    far = {"chexbert": ModelSpec("chexbert", Reads, {}, lambda: Reads(Far("m", chat.url, api_key_env=None)))}
    with pytest.raises(LeaveError, match="add may_leave=yes"):
        rescore(folder, reporting("ask"), annotators=far)
    with pytest.raises(LeaveError, match="may_leave: no in its card"):
        rescore(folder, reporting("no"), annotators=far, may_leave="yes")
    for _ in range(2):
        rescore(folder, reporting("ask"), annotators=far, may_leave="yes")
    (sent,) = json.loads((folder / "manifest.json").read_text())["sent"]
    assert (sent["role"], sent["name"], sent["permission"]) == ("annotator", "chexbert", "command line")


@pytest.mark.parametrize("value", CARDS, ids=called)
def test_a_fit_sends_its_scores_to_no_tracker_that_it_may_not(value, settings, write_dataset, monkeypatch):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setattr("medimg_eval.evaluation.fitting.fit_over_epochs.train_over_epochs", lambda *_: 0.5)
    root = write_dataset(1, fit=1, validate=1)
    for said in (None, "yes"):
        settings.config, settings.run = {"may_leave": said}, settings.runs / str(said)
        task = ellipsoids(root, card=card(value))
        begin = partial(fit, task, candidate(Part(None)), Recipe(), settings, lambda _: [WandbLogger()])
        if not (by := expected(value, said)):
            with pytest.raises(LeaveError, match="tracker 'WandbLogger' would send scores, command line, console to"):
                begin()
            assert not (settings.run / "manifest.json").exists()
            continue
        (sent,) = json.loads((begin() / "manifest.json").read_text())["sent"]
        assert (sent["to"], sent["permission"], sent["trials"]) == ("api.wandb.ai", by, 2)


@pytest.mark.parametrize(
    "word", ["task.card.may_leave=yes", "++task.card.may_leave=yes", "~task.card", "task.card={may_leave: yes}",
             "+task={card:{may_leave:yes}}", "tasks.slake.card.may_leave=yes"]
)  # fmt: skip
def test_the_command_line_changes_no_card(word):
    with pytest.raises(UsageError, match="say may_leave=yes"):
        _refuse_other_card(["model=unet", word])


def test_other_words_are_no_change_of_a_card():
    _refuse_other_card(["may_leave=yes", "task=slake", "task.card.download.revision=1a2b", "run=may_leave", "+card=x"])


def test_a_tasks_own_card_cannot_be_talked_out_of_no(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["test", "task=phantom_xray", "task.card.may_leave=yes"]
    assert start(words) == 2
    assert "what may leave this machine stands in the card's file alone" in capsys.readouterr().err
