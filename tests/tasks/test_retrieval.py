"""Retrieval of images and reports: embedded one by one, ranked together, resumed, and judged again."""

import json
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

from medimg_eval.case import Case, Prompt, Text
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.models.base import Embedder
from medimg_eval.question import Key, Message, Question
from medimg_eval.results import build_table, load_runs
from medimg_eval.tasks.retrieval import Embedded, RetrievalTask
from tests.helpers.asking import Known, Painted
from tests.helpers.config_files import composed_config
from tests.helpers.oracle import check_rows
from tests.helpers.running import evaluate, rescore

REPORTS = {"a": "No effusion.", "b": "Large effusion.", "c": "no  effusion.", "d": "A nodule."}
IMAGES = {"a": 1, "b": 2, "c": 3, "d": 4}
"""What is painted; the model below sees image n at the n-th of six corners."""

PLACES = {"No effusion.": 1, "Large effusion.": 4, "no  effusion.": 3, "A nodule.": 2}
"""The corner at which it sees a report."""


class Layout:
    """Four studies, two of which have the same report."""

    def __init__(self, reports=REPORTS):
        self.reports = reports

    def cases(self, split):
        return [
            Case(name, (Painted(IMAGES[name]),), Known(Key(text)), question=Question("Report.", "report"))
            for name, text in self.reports.items()
        ]


class Corners(Embedder):
    """Puts images and reports where the test says, and fails on one image as long as it is told to."""

    file_arguments = ()
    preferred_batch = 3
    broken: int | None = None
    asked: ClassVar[list] = []

    def embed(self, prompts):
        found = []
        for prompt in prompts:
            place = int(prompt.image.array[0, 0, 0]) if prompt.images else PLACES[prompt.text]
            if prompt.images and place == self.broken:
                raise ValueError("the image is odd")
            found.append(np.eye(6, dtype=np.float32)[place])
        Corners.asked += [prompt.case_id for prompt in prompts if prompt.images]
        return found

    def cuts(self, texts):
        return [len(text) > 14 for text in texts]


@pytest.fixture(autouse=True)
def whole(monkeypatch):
    monkeypatch.setattr(Corners, "broken", None)
    monkeypatch.setattr(Corners, "asked", [])


def task(**settings):
    return RetrievalTask(**{"name": "r", "layout": Layout(), "splits": {"test": "test"}, **settings})


def run(tmp_path, made=None):
    settings = Settings(runs=Path(tmp_path), run=None, trainer=lambda **_: None, config={})
    return evaluate(made or task(), ModelSpec("corners", Corners, {}, Corners), settings)


def scores(folder, metric):
    rows = load_runs([folder])[0].scores
    return rows[rows["metric"] == metric].set_index("case")["value"].to_dict()


def test_each_image_is_ranked_among_all_reports_and_each_report_among_all_images(tmp_path):
    folder = run(tmp_path)
    check_rows("retrieval", folder)
    # The reports of b and d have changed places; a and c share one, so that either is right.
    assert scores(folder, "i2t_recall@1") == {"a": 1, "b": 0, "c": 1, "d": 0}
    assert scores(folder, "i2t_recall@5") == dict.fromkeys("abcd", 1)
    assert scores(folder, "i2t_rank") == {"a": 1, "b": 4, "c": 1, "d": 4}
    assert scores(folder, "t2i_mrr") == {"a": 1, "b": 1 / 4, "c": 1, "d": 1 / 4}
    frame = build_table(load_runs([folder])).frame().set_index("metric")
    assert frame.loc[["i2t_median_rank", "t2i_median_rank", "i2t_mrr"], "mean"].tolist() == [2.5, 2.5, 0.625]
    notes = "".join(build_table(load_runs([folder])).footnotes)
    assert "the model read only the beginning of 1 of 4 reports" in notes
    assert "the gallery is the whole split" in notes


def test_what_could_not_be_embedded_is_worth_the_worst_and_is_tried_again_with_all_ranks(tmp_path, monkeypatch):
    monkeypatch.setattr(Corners, "broken", 2)
    folder = run(tmp_path)
    assert scores(folder, "i2t_rank") == {"a": 1, "b": 4, "c": 1, "d": 3}
    assert scores(folder, "i2t_recall@5") == {"a": 1, "b": 0, "c": 1, "d": 1}
    assert "1 of 4 pairs could not be embedded" in "".join(build_table(load_runs([folder])).footnotes)
    monkeypatch.setattr(Corners, "broken", None)
    monkeypatch.setattr(Corners, "asked", [])
    assert run(tmp_path) == folder
    assert Corners.asked == ["b"]
    assert scores(folder, "i2t_rank") == {"a": 1, "b": 4, "c": 1, "d": 4}
    assert "could not be embedded" not in "".join(build_table(load_runs([folder])).footnotes)


def test_a_run_is_judged_again_without_the_model(tmp_path, monkeypatch):
    folder = run(tmp_path)
    before = scores(folder, "i2t_rank")
    monkeypatch.setattr(Corners, "asked", [])
    rescore(folder, task(metrics=["i2t_rank", "t2i_recall@2"]))
    assert scores(folder, "i2t_rank") == before
    assert not Corners.asked
    assert scores(folder, "t2i_recall@2") == {"a": 1, "b": 0, "c": 1, "d": 0}


def test_predictions_are_small_and_lose_nothing(tmp_path):
    vector = np.random.default_rng(0).normal(size=512).astype(np.float32)
    made = task()
    (case, *_) = made.cases("test")
    packed = made.accept(case, (vector, -vector, True)).as_record()
    assert len(json.dumps(packed)) < 6000
    assert packed["cut"] is True
    assert "cut" not in Embedded(vector, vector).as_record()
    made.gather(made.cases("test"))
    made.take({"a": packed, "b": Embedded(-vector, vector).as_record()})
    assert [score.value for score in made.score(case, packed, ["i2t_rank", "t2i_rank"])] == [2, 2]


def test_the_order_of_cases_does_not_matter():
    made, turned = task(), task(layout=Layout(dict(reversed(REPORTS.items()))))
    random = np.random.default_rng(3)
    stored = {name: Embedded(*random.normal(size=(2, 5)).astype(np.float32)).as_record() for name in REPORTS}
    found = []
    for one, order in ((made, stored), (turned, dict(reversed(stored.items())))):
        one.gather(one.cases("test"))
        one.take(order)
        found.append({case.id: one.score(case, stored[case.id]) for case in one.cases("test")})
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ("vector", "expected two vectors"),
        (np.ones(3), "expected two vectors"),
        ((np.ones(3), np.ones(2)), "vectors of 3 and 2 features"),
        ((np.ones(3), np.zeros(3)), "without a direction"),
        ((np.ones(3), np.array([1, np.nan, 0])), "without a direction"),
        ((np.ones((1, 3)), np.ones(3)), r"array of shape \(1, 3\)"),
        ((np.ones(3), "text"), "no vector of numbers"),
    ],
)
def test_answers_that_are_no_vectors_are_refused(answer, complaint):
    made = task()
    with pytest.raises(CaseError, match=f"case 'a': prediction.*{complaint}"):
        made.accept(made.cases("test")[0], answer)


@pytest.mark.parametrize("right", ["", "  \n", [], ["one", "two"], None])
def test_a_case_without_exactly_one_report_fails_alone(right):
    made, case = task(), Case("x", (Painted(1),), Known(Key(right)))
    with pytest.raises(CaseError, match=r"case 'x' has (no|2) reports, expected one"):
        made.prompt(case, (Painted(1).read(),))
    made.gather([case, *made.cases("test")])
    made.take({})
    with pytest.raises(CaseError, match="case 'x' has no rank"):
        made.score(case, {})


def test_a_case_without_an_image_is_nothing_to_find_by():
    made = task()
    with pytest.raises(CaseError, match="shows no image"):
        made.prompt(made.cases("test")[0], ())


def test_texts_are_reports_too():
    made = task()
    (prompt,) = [made.prompt(Case("x", (Painted(1),), Known(Text("Clear."))), (Painted(1).read(),))]
    assert prompt.text == "Clear."


def test_vectors_of_two_models_are_not_compared():
    made = task()
    made.gather(made.cases("test"))
    stored = {name: Embedded(np.ones(size), np.ones(size)).as_record() for name, size in (("a", 2), ("b", 3))}
    with pytest.raises(UserError, match="vectors of 2 and 3 features"):
        made.take(stored)
    with pytest.raises(UserError, match="case 'a': the stored vectors cannot be read"):
        made.take({"a": {"image": "#", "report": "#"}})


def test_metrics_of_something_else_are_refused():
    with pytest.raises(UsageError, match="'bleu@4' does not judge retrieval|does not judge retrieval"):
        task(metrics=["bleu@4"])
    assert task(metrics="i2t_mrr").metrics == ["i2t_mrr"]


def test_a_model_that_cannot_embed_is_refused():
    assert task().serves(Corners)
    assert not task().serves(RetrievalTask)


CONFIG = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 16, "layers": 1, "width": 16, "head_width": 8, "patch_size": 8},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """A tiny model of open_clip with random weights."""
    library = pytest.importorskip("open_clip")
    from medimg_eval.models.vision_language.open_clip import OpenClip

    folder = tmp_path_factory.mktemp("clip")
    (folder / "tiny-retriever.json").write_text(json.dumps(CONFIG))
    library.add_model_config(folder / "tiny-retriever.json")
    torch.manual_seed(0)
    torch.save(library.create_model("tiny-retriever").state_dict(), folder / "weights.bin")
    return OpenClip("tiny-retriever", checkpoint=str(folder / "weights.bin"))


def test_open_clip_embeds_pairs_alike_in_any_batch_and_counts_what_it_cuts(clip):
    made = task()
    long = " ".join(["effusion"] * 40)
    layout = Layout({**REPORTS, "d": long})
    cases = layout.cases("test")
    prompts = [made.prompt(case, made.read_images(case)) for case in cases]
    together = made.ask(clip, prompts)
    apart = [made.ask(clip, [prompt])[0] for prompt in prompts]
    for case, one, other in zip(cases, together, apart, strict=True):
        found, same = made.accept(case, one), made.accept(case, other)
        np.testing.assert_allclose(found.image, same.image, atol=1e-6)
        np.testing.assert_allclose(found.report, same.report, atol=1e-6)
        assert found.image.shape == found.report.shape == (16,)
        assert found.cut == (case.id == "d")
    np.testing.assert_allclose(together[0][1], clip.embed_texts(["No effusion."])[0], atol=1e-6)
    assert clip.cuts([" ".join(["a"] * count) for count in (13, 14, 15)]) == [False, False, True]


def test_a_tokenizer_of_the_hugging_face_library_counts_its_own_marks(clip, monkeypatch):
    class Words:
        context_length = 4

        def clean_fn(self, text):
            return text.strip()

        def tokenizer(self, text, verbose):
            return type("Encoded", (), {"input_ids": ["[CLS]", *text.split(), "[SEP]"]})

    monkeypatch.setattr(clip, "_tokenize", Words())
    assert clip.cuts(["one two ", "one two three"]) == [False, True]


def test_a_model_that_says_nothing_of_length_reads_all():
    class Plain(Embedder):
        def embed(self, prompts):
            return [np.ones(2, np.float32) for _ in prompts]

    prompt = Prompt("x", (Painted(1).read(),), messages=(Message("user", (0, "Clear.")),))
    ((image, report, cut),) = task().ask(Plain(), [prompt])
    assert not cut
    assert image.shape == report.shape


def test_the_catalogues_set_is_read_as_r2gen_writes_it(tmp_path, monkeypatch):
    from PIL import Image as Picture

    from medimg_eval.instantiate import build_task

    monkeypatch.setenv("MEDIMG_EVAL_DATA", str(tmp_path))
    records = {part: [] for part in ("train", "val", "test")}
    for number in range(2):
        paths = [f"CXR{number}/{view}.png" for view in range(2)]
        for path in paths:
            (tmp_path / "iu_xray" / "images" / path).parent.mkdir(parents=True, exist_ok=True)
            Picture.new("L", (8, 8), number).save(tmp_path / "iu_xray" / "images" / path)
        record = {"id": f"CXR{number}", "image_path": paths, "report": f"Report {number}.", "split": "test"}
        records["test"].append(record)
    (tmp_path / "iu_xray" / "annotation.json").write_text(json.dumps(records))
    config = composed_config("task/iu_xray_retrieval")["task"]
    made = build_task({**config, "expected": {}})
    first, second = made.cases("test")
    prompt = made.prompt(second, made.read_images(second))
    assert prompt.text == "Report 1."
    assert [int(image.array.max()) for image in prompt.images] == [1, 1]
    assert first.id == "CXR0"
