"""Arms with retrieved cases: what is shown in which order, how a case is found, and that no patient sees their own."""

import ast
import io
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.case import Case, Condition, Image
from medimg_eval.degradations import DrawKey
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.imaging import SHOWN
from medimg_eval.instantiate import build_task
from medimg_eval.metrics.answers import rules
from medimg_eval.models import VisionLanguageModel
from medimg_eval.question import Key, Question
from medimg_eval.tasks.references import Retriever
from medimg_eval.tasks.references.arms import in_sentence_case
from tests.helpers.authors import require_clone
from tests.helpers.catalogue import config_of, task_of
from tests.helpers.running import evaluate
from tests.helpers.samples import ALL

assert ALL is not None
KEY = DrawKey(0, "")


def asked_under(task, arm, case_id):
    """Parts of the user's turn, and the images, as an arm shows a case."""
    condition = Condition(arm)
    variant = task.variant(0, condition)
    (case,) = [case for case in task.cases("test") if case.id == case_id]
    case = variant.under(case, condition, KEY)
    images = variant.read_images(case)
    return variant.prompt(case, images).messages[-1].parts, images, case


def test_temmed_shows_the_reference_before_the_case(tmp_path):
    task = task_of("temmed_vqa", tmp_path)
    assert {"report", "image_report"} <= task.conditions()
    parts, images, case = asked_under(task, "image_report", "0-0")
    last, current = "\nLast visit image: ", "\nCurrent visit image: "
    assert [part for part in parts if isinstance(part, int)] == [0, 1, 2, 3]
    assert parts[0].endswith(f"current visit image:{last}")
    assert parts[2] == current
    assert parts[4].startswith("\nReport for the current visit image: The effusion has grown. No nodule.\nPlease learn")
    assert parts[4].endswith(f"from another patient:{last}")
    assert parts[6] == current
    assert parts[8].endswith("Question: Has the effusion grown?")
    # Those of the last visit are smaller; the reference's stand first.
    assert [image.array.shape[-1] for image in images] == [16, 32, 16, 32]
    places = [reference.files[0].parts[-3] for reference in case.images]
    assert places == ["patient00005", "patient00005", "patient00001", "patient00001"]
    assert images[0].attributes[SHOWN] == "retrieved: train/patient00005/study9/view1_frontal"
    assert case.patient == "patient00001"


def test_the_text_arm_shows_no_further_image_and_closed_book_nothing(tmp_path):
    task = task_of("temmed_report", tmp_path)
    parts, images, _ = asked_under(task, "report", "1")
    assert [part for part in parts if isinstance(part, int)] == [0, 1]
    assert parts[0].startswith(
        "You are a professional radiologist. You are provided with a reference X-ray image report:"
    )
    assert "\nReport: A nodule is new.\nPlease learn" in parts[0]
    assert images[0].attributes[SHOWN] == "retrieved: train/patient00006/study9/view1_frontal"
    closed = task.cases("test")[1]
    assert not closed.related
    assert SHOWN not in task.read_images(closed)[0].attributes
    assert "closed book" in task.signature()
    assert "arm report, retrieved by stated" in task.variant(0, Condition("report")).signature()


def test_a_stated_case_of_the_own_patient_fails_and_says_so(tmp_path):
    task = task_of("temmed_selection", tmp_path)
    parts, _, _ = asked_under(task, "image_report", "0")
    assert [part for part in parts if isinstance(part, int)] == list(range(8))
    assert "\nReport: The effusion has grown. No nodule." in parts[4]
    condition = Condition("image_report")
    variant = task.variant(0, condition)
    case = variant.under(task.cases("test")[1], condition, KEY)
    with pytest.raises(CaseError, match=r"retrieved case '0' is of its own patient, patient00001"):
        variant.read_images(case)


@pytest.mark.parametrize(("by", "found"), [("images", "train/patient00005/study9/view1_frontal"), ("random", None)])
def test_nobody_is_shown_their_own_visits(tmp_path, by, found):
    task_of("temmed_vqa", tmp_path)
    config = config_of("temmed_vqa", tmp_path)
    task = build_task(config | {"retriever": {**config["retriever"], "by": by}})
    for case_id in ("0-0", "0-1", "1-0"):
        _, _, case = asked_under(task, "report", case_id)
        assert case.related["retrieved"].patient != case.patient
        # The images of patient 1 lie in the corpus, too; of others those of patient 2 are nearest to patient 5's.
        if found and case_id == "1-0":
            assert case.related["retrieved"].id == found


def test_an_arm_may_be_asked_alone_and_makes_another_run(tmp_path):
    closed = task_of("temmed_vqa", tmp_path)
    alone = build_task(config_of("temmed_vqa", tmp_path) | {"arm": "image_report"})
    assert len(alone.cases("test")[0].images) == 4
    assert "report" not in alone.conditions()
    assert alone.asked.keys() - closed.asked.keys() == {"corpus"}
    with pytest.raises(UsageError, match=r"task.arm is .*image_report"):
        replace(closed, arm="image_reports")


class CountsImages(VisionLanguageModel):
    """Says yes where it sees four images."""

    uses_torch = False

    def generate(self, prompts, decoding):
        return ["Yes" if len(prompt.images) == 4 else "No" for prompt in prompts]


def test_three_arms_are_one_run_and_a_table_by_condition(tmp_path):
    task = task_of("temmed_vqa", tmp_path / "data")
    asked = Settings(
        runs=tmp_path / "runs", config={}, score_workers=0, conditions=(Condition("report"), Condition("image_report"))
    )
    run = evaluate(task, ModelSpec("counts", CountsImages, {"name": "counts"}, load=CountsImages), asked)
    scores = pd.read_parquet(run / "scores.parquet")
    right = scores[scores.metric == "accuracy"].groupby(scores.condition.fillna(""))["value"].mean().to_dict()
    assert right == {"": 0.5, "report": 0.5, "image_report": 0.5}
    lines = [json.loads(line) for path in run.rglob("*.jsonl") for line in path.read_text().splitlines()]
    shown = [line["shown"][0] for line in lines if "shown" in line]
    assert len(shown) == 8  # four questions in two arms
    assert set(shown) == {f"retrieved: train/patient0000{number}/study9/view1_frontal" for number in (5, 6)}


def held(name, patient, text, pixels):
    """A case of a corpus whose image is read from memory."""

    class Shown:
        files = ()

        def read(self):
            return Image(np.asarray(pixels, np.uint8)[None], np.eye(4), units="pixel")

    class Said:
        files = ()

        def read(self):
            return Key(text)

    return Case(name, (Shown(),), Said(), patient, {}, Question(text, "open"))


def painted(seed):
    return np.random.default_rng(seed).integers(0, 255, (16, 16))


def test_texts_are_found_by_their_words_and_draws_depend_on_seed_and_case_alone():
    corpus = [
        held(str(k), f"p{k}", text, painted(k)) for k, text in enumerate(["a tube is in", "new nodule", "oedema"])
    ]
    asked = held("q", "p9", "Is there a new nodule?", painted(1))
    assert Retriever(corpus=corpus, by="text").find(asked).id == "1"
    assert Retriever(corpus=corpus, by="images").find(asked).id == "1"
    own = held("q", "p1", "Is there a new nodule?", painted(1))
    assert Retriever(corpus=corpus, by="text").find(own).id != "1"
    drawn = {seed: Retriever(corpus=corpus, by="random", seed=seed).find(asked).id for seed in range(20)}
    assert len(set(drawn.values())) == 3
    assert drawn == {seed: Retriever(corpus=corpus, by="random", seed=seed).find(asked).id for seed in range(20)}
    with pytest.raises(CaseError, match="all 1 cases of the corpus are of its own patients"):
        Retriever(corpus=corpus[1:2], by="random").find(own)
    with pytest.raises(UsageError, match="holds no case"):
        Retriever(corpus=[])


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=8),
    st.sampled_from("abc"),
    st.sampled_from(["images", "text", "random"]),
)
def test_whatever_the_way_the_patient_is_another(patients, own, by):
    corpus = [held(str(k), patient, f"word{k % 3}", painted(k % 3)) for k, patient in enumerate(patients)]
    asked = held("q", own, "word0", painted(0))
    if set(patients) == {own}:
        with pytest.raises(CaseError):
            Retriever(corpus=corpus, by=by).find(asked)
    else:
        assert Retriever(corpus=corpus, by=by).find(asked).patient != own


def test_features_are_kept_from_run_to_run(tmp_path):
    class Counted:
        name = "counted"
        asked = 0

        def embed_images(self, images):
            self.asked += len(images)
            return np.stack([image.array.reshape(-1)[:4] for image in images]).astype(np.float32)

    from tests.helpers.benchmark_files import picture

    class OnDisk:
        def __init__(self, path):
            self.files = (path,)

        def read(self):
            from medimg_eval.imaging import ImageFile

            return ImageFile(self.files[0]).read()

    def stored(name):
        path = picture(tmp_path / f"{name}.png", painted(int(name)))
        made = held(name, f"p{name}", "x", painted(0))
        return Case(made.id, (OnDisk(path),), made.target, made.patient, {}, made.question)

    corpus, asked = [stored("1"), stored("2")], stored("3")
    encoder = Counted()
    first = Retriever(corpus=corpus, by="images", encoder=encoder, store=str(tmp_path / "kept")).find(asked)
    seen = encoder.asked
    again = Retriever(corpus=corpus, by="images", encoder=encoder, store=str(tmp_path / "kept")).find(asked)
    assert first.id == again.id
    assert encoder.asked == seen + 1  # the example alone, whose length the store has to fit


def test_sentences_begin_with_a_capital():
    assert in_sentence_case("LARGER  EFFUSION. 2. TUBE IN!\nok?") == "Larger effusion. 2. Tube in! Ok?"
    assert in_sentence_case("") == ""


def authors_prompt(script, **known):
    """What a script of the authors says to the model, images as `<image>`; its own variables are given."""
    (loop,) = [node for node in ast.parse(script.read_text()).body if isinstance(node, ast.For)]
    wanted = [
        node
        for node in loop.body
        if isinstance(node, ast.Assign) and str(getattr(node.targets[0], "id", "")).startswith(("Text", "messages"))
    ]
    images = {node.id: "" for node in ast.walk(loop) if isinstance(node, ast.Name) and ("base64" in node.id)}
    said = images | known
    exec(compile(ast.Module(wanted, []), str(script), "exec"), said)  # noqa: S102
    content = said["messages"][0]["content"]
    return "".join(part["text"] if part["type"] == "text" else "<image>" for part in content)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task_name", "case_id", "arm", "script"),
    [
        ("temmed_vqa", "0-0", "report", "VQA_GPT_RAG_Report"),
        ("temmed_vqa", "0-0", "image_report", "VQA_GPT_RAG_imgReport"),
        ("temmed_report", "0", "report", "Report_GPT_RAG_Report"),
        ("temmed_report", "0", "image_report", "Report_GPT_RAG_imgReport"),
        ("temmed_selection", "0", "image_report", "ImgPairSelection_GPT_RAGimgReport"),
    ],
)
def test_arms_are_put_as_the_authors_scripts_put_them(tmp_path, task_name, case_id, arm, script):
    clone = require_clone("Levi-ZJY/TemMed-Bench")
    parts, _, _ = asked_under(task_of(task_name, tmp_path), arm, case_id)
    ours = "".join("<image>" if isinstance(part, int) else part for part in parts)
    report = "The effusion has grown. No nodule."
    known = {"REF_report": report, "RAG_report": report, "VQA_question": "Has the effusion grown?"}
    known |= {"condition_change": "The effusion has grown."}
    assert ours == authors_prompt(clone / f"Eval/{script}.py", **known)


YES_NO = ["Yes", "yes, it has.", "YES", "No", "no.", "NO change", "No. Yes"]
PAIRS = ["My answer is A", "my answer is **b**", "So: My answer is **C.**", "A or B? My answer is c.", "MY ANSWER IS B"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("notebook", "name", "replies", "answers"),
    [("VQA", "temmed_yes_no", YES_NO, "no yes"), ("ImgPairSelection", "temmed_selection", PAIRS, " A B C")],
)
def test_replies_are_read_as_by_the_authors_notebooks(notebook, name, replies, answers, tmp_path, monkeypatch):
    clone = require_clone("Levi-ZJY/TemMed-Bench")
    cells = json.loads((clone / f"Eval/metrics/{notebook}_eval.ipynb").read_text())["cells"]
    program = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    names, rng = answers.split(" "), np.random.default_rng(0)
    right = [str(rng.choice([name for name in names if name])) for _ in replies]
    rows = [
        {"answer": text, "answer_vqa": text, "label": label, "label_answer_vqa": label.capitalize()}
        for text, label in zip(replies, right, strict=True)
    ]
    lines = "\n".join(map(json.dumps, rows))
    theirs = {"open": lambda *given, **more: io.StringIO(lines), "print": lambda *given: None}
    exec(program, theirs)  # noqa: S102
    options = {} if notebook == "VQA" else dict.fromkeys("ABC", "")
    taken = [rules()[name].function(text, options, "", {}) for text in replies]
    assert [names[number] for number in theirs["answer_list"]] == taken
    assert theirs["acc"] == pytest.approx(np.mean(np.array(taken) == right))
