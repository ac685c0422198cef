"""Baselines of reports: the most frequent one, a normal one, the one of the most similar study."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest

import medimg_eval as me
from medimg_eval.case import Case, Geometry, Image, Prompt
from medimg_eval.errors import CaseError, UserError
from medimg_eval.models.base import Embedder, VisionLanguageModel
from medimg_eval.models.baselines.reports import NORMAL, MostFrequentReport, NearestReport, NormalReport
from medimg_eval.question import Decoding, Key, Message, Question
from medimg_eval.tasks import ReportTask
from tests.helpers.asking import Known

GREEDY = Decoding()


class Grey:
    """A picture of one value; of a negative one, a file that cannot be read."""

    files = ()

    def __init__(self, value):
        self.value = value

    def read(self):
        if self.value < 0:
            raise CaseError("lost.png: no such file")
        return Image(np.full((1, 4, 4), self.value, np.uint8), np.eye(4))

    def geometry(self):
        return Geometry((4, 4), np.eye(4))


class Angles(Embedder):
    """Turns the mean grey value into a direction, and counts what it embeds."""

    def __init__(self):
        self.seen = 0

    def embed(self, prompts):
        self.seen += len(prompts)
        turns = [np.mean([image.array.mean() for image in prompt.images]) / 100 for prompt in prompts]
        return [np.array([np.cos(turn), np.sin(turn)], np.float32) * 5 for turn in turns]


def case(name, text, *values, patient=None):
    images = tuple(Grey(value) for value in values)
    return Case(name, images, Known(Key(text)), patient, question=Question("Report.", "report"))


def prompt(name, *values):
    return Prompt(name, tuple(Grey(value).read() for value in values))


CASES = [
    case("a", "Left effusion.", 10, patient="1"),
    case("b", "Clear lungs.", 60, patient="2"),
    case("c", "clear  lungs.", 100, patient="3"),
    case("d", "Large nodule.", 30, 50, patient="4"),
]


def test_the_most_frequent_report_is_counted_whatever_its_case_and_blanks():
    model = MostFrequentReport()
    model.study(CASES)
    assert model.generate([prompt("x"), prompt("y")], GREEDY) == ["Clear lungs."] * 2
    assert not model.reads_images


def test_of_reports_that_occur_once_the_one_with_the_words_of_most_is_taken():
    texts = ["no edema and no effusion", "edema seen today", "no effusion and no edema either", "fracture"]
    model = MostFrequentReport()
    model.study([case(str(n), text) for n, text in enumerate(texts)])
    words = [set(text.split()) for text in texts]
    mean = {word: sum(word in some for some in words) for word in set.union(*words)}
    cosines = [sum(mean[word] for word in some) / np.sqrt(len(some)) for some in words]
    assert model.generate([prompt("x")], GREEDY) == [texts[int(np.argmax(cosines))]]


def test_several_right_reports_of_a_case_count_each_and_none_is_refused():
    model = MostFrequentReport()
    model.study([case("a", ["One.", "Two."]), case("b", "Two."), case("c", "")])
    assert model.generate([prompt("x")], GREEDY) == ["Two."]
    for one in (MostFrequentReport(), NearestReport(Angles())):
        with pytest.raises(UserError, match="none of 1 cases has a report"):
            one.study([case("c", " ")])
        with pytest.raises(UserError, match="knows no reports"):
            one.generate([prompt("x", 3)], GREEDY)


def test_a_normal_report_is_the_same_for_all():
    assert NormalReport().generate([prompt("x"), prompt("y")], GREEDY) == [NORMAL] * 2
    assert NormalReport("Normal.").generate([prompt("x")], GREEDY) == ["Normal."]


@pytest.mark.parametrize("batch", [1, 3])
def test_the_nearest_report_is_that_of_the_most_similar_images_each_embedded_once(batch):
    embedder = Angles()
    model = NearestReport(embedder, batch)
    model.study([*CASES, case("e", "Lost.", -1)])
    asked = [prompt("x", 12), prompt("y", 42), prompt("z"), prompt("a", 10)]
    assert model.generate(asked, GREEDY) == ["Left effusion.", "Large nodule.", "", "Left effusion."]
    assert [model.generate([one], GREEDY)[0] for one in asked] == list(model.generate(asked, GREEDY))
    assert embedder.seen == len(CASES) + 3 * 3


def test_images_of_the_last_turn_alone_are_compared():
    model = NearestReport(Angles())
    model.study(CASES)
    shown = prompt("x", 100, 11)
    turns = (Message("user", (0, "Compare.")), Message("assistant", ("Yes.",)), Message("user", (1, "Report.")))
    assert model.generate([Prompt("x", shown.images, messages=turns)], GREEDY) == ["Left effusion."]


def test_no_readable_image_to_learn_from_is_said():
    model = NearestReport(Angles())
    model.study([case("e", "Lost.", -1), case("f", "No image.")])
    with pytest.raises(UserError, match="no image of the cases to learn from can be read"):
        model.generate([prompt("x", 1)], GREEDY)


def test_an_open_clip_model_is_an_embedder_and_must_have_weights():
    library = pytest.importorskip("medimg_eval.models.vision_language.open_clip")
    model = NearestReport(library.OpenClip(model_name="ViT-B-32"))
    with pytest.raises(UserError, match="has no weights"):
        model.check_ready()


@dataclass
class Layout:
    """Two reports to fit on and two to test."""

    def cases(self, split):
        return {"fit": CASES[1:3], "test": [CASES[0], CASES[3]]}[split]


class Writer(VisionLanguageModel):
    """Writes how many images it sees."""

    def generate(self, prompts, decoding):
        return [f"{len(prompt.images)} images" for prompt in prompts]


def test_reports_have_baselines_of_their_own_beside_the_model_blind(tmp_path):
    task = ReportTask(
        name="r",
        layout=Layout(),
        template={"user": "{question}"},
        metrics=["rouge_l"],
        splits={"fit": "fit", "test": "test"},
    )
    trainer = {"accelerator": "cpu", "logger": False}
    run = me.test(task, Writer(), runs=tmp_path, baselines=True, trainer=trainer, score_workers=0, num_workers=0)
    assert run.manifest["conditions"] == {"no_image": {"name": "no_image", "severity": 0, "settings": {}}}
    assert {trial.id: said["texts"] for trial, said in run.predictions.items()} == {
        "a": ["1 images"],
        "d": ["2 images"],
        "a~no_image": ["0 images"],
        "d~no_image": ["0 images"],
    }
    assert [row.name for row in run.table.rows] == ["Writer", "Writer (blind)"]
    assert len(run.summary) == 1
    summary = json.loads((run.folder / "summary.json").read_text())
    assert [one["model"] for one in summary["metrics"]] == ["Writer"]
    assert [one.manifest["model"] for one in run.baselines] == ["Most frequent report", "Normal report"]
    assert all(one.manifest["baseline"] for one in run.baselines)
    answers = "".join(path.read_text() for path in run.baselines[0].folder.glob("predictions*.jsonl"))
    assert answers.count("Clear lungs.") == 2
    reopened = me.load_run(run.folder)
    assert [row.name for row in reopened.table.rows] == ["Writer", "Writer (blind)"]
    assert reopened.usage == run.usage
