"""The index of large files of questions: cases, runs and errors are those of files that are read whole."""

import csv
import json
import logging
import os
import time
from dataclasses import replace
from functools import partial

import lightning.pytorch as pl
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from asking import Says
from PIL import Image as Pillow

from medimg_eval.case_index import StoredCases
from medimg_eval.data.layouts import Questions
from medimg_eval.data.prompts import PromptBatches
from medimg_eval.data.questions import indexing
from medimg_eval.errors import CaseError, UserError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.evaluation.shards import Shard
from medimg_eval.tasks import QuestionTask
from tests.helpers.running import evaluate, rescore

LAYOUT = {"id": "id", "question": "question", "options": {"columns": ["A", "B"]}, "answer": {"letter": "answer"}}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of its own, and an index of files of any size."""
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(indexing, "LEAST", 0)
    return tmp_path / "cache" / "questions"


def rows(number=600):
    fixed = {"A": "liver", "B": "spleen"}
    return [
        {"id": f"q{n}", "question": f"Which is {n}?", **fixed, "answer": "AB"[n % 2], "group": f"g{n // 3}"}
        for n in range(number)
    ]


def write(root, records, kind="jsonl"):
    path = root / f"test.{kind}"
    root.mkdir(exist_ok=True)
    if kind == "jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    elif kind == "json":
        path.write_text(json.dumps(records))
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pylist(records), path, row_group_size=100)
    else:
        with path.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, records[0], delimiter="\t" if kind == "tsv" else ",")
            writer.writeheader()
            writer.writerows(records)
    return path


def whole(layout, monkeypatch, split="test"):
    """The cases, read without an index."""
    with monkeypatch.context() as patch:
        patch.setattr(indexing, "LEAST", 1 << 40)
        cases = layout.cases(split)
    assert isinstance(cases, list)
    return cases


def facts(case):
    """All that is known of a case; of a wrong one, what its key says."""
    try:
        key = case.target.read()
    except CaseError as error:
        key = str(error)
    return case.id, case.images, key, case.patient, dict(case.attributes), case.question, case.files


def assert_equal(layout, monkeypatch):
    """Twice: as the index is made, and as it is found."""
    expected, left_out = list(map(facts, whole(layout, monkeypatch))), layout.left_out()
    for _ in range(2):
        cases = layout.cases("test")
        assert isinstance(cases, StoredCases)
        assert list(map(facts, cases)) == expected
        assert layout.left_out() == left_out
    return cases


@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "tsv", "parquet"])
def test_cases_of_each_format_are_those_that_are_read_whole(tmp_path, monkeypatch, kind):
    path = write(tmp_path / "data", rows(), kind)
    cases = assert_equal(Questions(root=str(path.parent), records=path.name, **LAYOUT), monkeypatch)
    assert len(cases) == 600
    assert cases.from_sources


@pytest.mark.parametrize(
    "more",
    [
        {"set": "group"},
        {"patient": "group"},
        {"expand": ["rotate_options"]},
        {"expand": [{"filter": {"answer": "A"}}, {"shuffle": 3}]},
        {"only": "q1"},
        {"answer": {"letter": "answer", "absent": "leave_out"}},
        {"fields": {"g": "group"}, "attributes": {"group": "group"}, "more": {"g": "group"}},
    ],
)
def test_cases_of_all_settings_are_those_that_are_read_whole(tmp_path, monkeypatch, more):
    records = rows()
    records[7]["answer"] = ""
    path = write(tmp_path / "data", records)
    assert_equal(Questions(root=str(path.parent), records=path.name, **LAYOUT | more), monkeypatch)


def test_wrong_records_are_named_as_before(tmp_path, monkeypatch):
    records = rows(300)
    records[5]["answer"], records[6]["question"], records[280]["A"] = "F", "", ""
    path = write(tmp_path / "data", records)
    with path.open("a") as stream:
        stream.write('{"id": "torn"\n')
    cases = assert_equal(Questions(root=str(path.parent), records=path.name, **LAYOUT), monkeypatch)
    with pytest.raises(CaseError, match=r"test\.jsonl, line 6: "):
        cases[5].target.read()
    with pytest.raises(CaseError, match=r"test\.jsonl, line 301: is no JSON"):
        cases[300].target.read()


def test_pictures_are_found(tmp_path, monkeypatch):
    root = tmp_path / "data"
    records = rows(20)
    for number, record in enumerate(records):
        record["image"] = f"{number // 2}.png"
    path = write(root, records)
    for number in range(10):
        Pillow.fromarray(np.full((4, 6), number, np.uint8)).save(root / f"{number}.png")
    layout = Questions(root=str(root), records=path.name, images="image", max_side=3, **LAYOUT)
    cases = assert_equal(layout, monkeypatch)
    assert cases.has_images
    assert not cases.from_sources
    assert cases[7].images[0].read().array.max() == 3


def test_ids_that_occur_twice_are_read_whole(tmp_path, monkeypatch, cache):
    path = write(tmp_path / "data", [*rows(5), *rows(2)])
    layout = Questions(root=str(path.parent), records=path.name, **LAYOUT)
    expected = list(map(facts, whole(layout, monkeypatch)))
    cases = layout.cases("test")
    assert list(map(facts, cases)) == expected
    assert [case.id for case in cases][-2:] == ["q0#2", "q1#2"]
    assert not list(cache.glob(".*"))


def test_a_small_file_and_one_that_needs_others_have_no_index(tmp_path, monkeypatch, cache):
    path = write(tmp_path / "data", rows(5))
    write(tmp_path / "data", rows(5), "csv")
    join = {"join": "test.csv", "on": "id"}
    for more in ({"min_side": 2}, {"expand": [join]}):
        layout = Questions(root=str(path.parent), records=path.name, **LAYOUT, **more)
        assert isinstance(layout.cases("test"), list)
    monkeypatch.setattr(indexing, "LEAST", 1 << 20)
    assert isinstance(Questions(root=str(path.parent), records=path.name, **LAYOUT).cases("test"), list)
    assert not cache.exists()


def test_a_changed_file_is_indexed_again_in_the_same_place(tmp_path, monkeypatch, cache):
    path = write(tmp_path / "data", rows(300))
    layout = Questions(root=str(path.parent), records=path.name, **LAYOUT)
    before = layout.cases("test")
    content = path.read_text().replace("Which is 7?", "Where is 7?")
    stat = path.stat()
    path.write_text(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # as large, and as old: what it holds counts
    after = layout.cases("test")
    assert (before[7].question.text, after[7].question.text) == ("Which is 7?", "Where is 7?")
    assert_equal(layout, monkeypatch)
    assert len(list(cache.glob("*.index"))) == 1


def test_other_settings_and_other_code_are_another_index(tmp_path, monkeypatch):
    path = write(tmp_path / "data", rows(30))
    layout = Questions(root=str(path.parent), records=path.name, **LAYOUT)
    assert len(layout.cases("test")) == 30
    assert len(replace(layout, only="q2").cases("test")) == 11
    key = layout.cases("test").key
    monkeypatch.setattr(indexing, "_code", lambda: "changed")
    assert layout.cases("test").key != key


def test_a_torn_index_is_made_again(tmp_path, monkeypatch, cache):
    path = write(tmp_path / "data", rows(300))
    layout = Questions(root=str(path.parent), records=path.name, **LAYOUT)
    layout.cases("test")
    (index,) = cache.glob("*.index")
    index.write_bytes(index.read_bytes()[:-100])
    assert_equal(layout, monkeypatch)


def test_a_cache_that_cannot_be_written_is_told_in_a_sentence(tmp_path, monkeypatch, cache, caplog):
    cache.parent.mkdir()
    cache.write_text("a file where the folder should be")
    path = write(tmp_path / "data", rows(10))
    with caplog.at_level(logging.WARNING):
        cases = Questions(root=str(path.parent), records=path.name, **LAYOUT).cases("test")
    assert len(cases) == 10
    (record,) = caplog.records
    assert f"{cache}: no index of {path} can be written" in record.getMessage()
    assert "MEDIMG_EVAL_CACHE" in record.getMessage()


def test_what_is_wrong_with_the_table_is_told_as_before(tmp_path):
    path = write(tmp_path / "data", rows(10))
    with pytest.raises(UserError, match="no record has the field 'qestion' of task.layout.question"):
        Questions(root=str(path.parent), records=path.name, **LAYOUT | {"question": "qestion"}).cases("test")


# Runs


def task(path, **more):
    layout = Questions(root=str(path.parent), records=path.name, **LAYOUT)
    return QuestionTask(
        name="quiz",
        layout=layout,
        template={"user": "{question}\n{options}"},
        splits={"test": "test"},
        card={"description": "made up"},
        config={"name": "quiz"},
        **more,
    )


@pytest.fixture
def settings(tmp_path):
    trainer = partial(pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False)
    return Settings(runs=tmp_path / "runs", trainer=trainer, score_workers=0, config={})


def candidate(batch=1):
    return ModelSpec("Says", Says, {"default": "A"}, load=lambda: Says(default="A", batch=batch))


def outcome(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    same = ("run", "data_fingerprint", "cases", "predicted", "resampled", "partial", "chance", "leaks", "status")
    return folder.name, (folder / "scores.parquet").read_bytes(), {key: manifest.get(key) for key in same}


def test_a_run_on_an_index_is_the_run_on_the_file(tmp_path, settings, monkeypatch):
    path = write(tmp_path / "data", rows(300))
    with monkeypatch.context() as patch:
        patch.setattr(indexing, "LEAST", 1 << 40)
        expected = outcome(evaluate(task(path), candidate(4), replace(settings, runs=tmp_path / "whole")))
    for name in ("first", "again"):
        folder = evaluate(task(path), candidate(4), replace(settings, runs=tmp_path / name))
        assert outcome(folder) == expected
        lines = (tmp_path / "whole" / "quiz" / folder.name / "predictions-0.jsonl").read_text()
        assert (folder / "predictions-0.jsonl").read_text() == lines
    rescore(folder, task(path))
    assert outcome(folder) == expected


def test_parts_of_a_run_on_an_index_make_the_whole(tmp_path, settings):
    path = write(tmp_path / "data", rows(60))
    expected = outcome(evaluate(task(path), candidate(), replace(settings, runs=tmp_path / "whole")))
    parts = replace(settings, runs=tmp_path / "parts")
    folder = evaluate(task(path), candidate(), replace(parts, limit=7))
    assert outcome(folder)[2]["partial"] == "the first 7 of 60 cases"
    folder = evaluate(task(path), candidate(), replace(parts, only=["q50", "q3"]))
    assert outcome(folder)[2]["cases"] == 8
    for number in (2, 1):
        folder = evaluate(task(path), candidate(), replace(parts, shard=Shard(number, 2)))
    assert outcome(folder) == expected


def test_a_case_that_is_unknown_has_its_nearest_named(tmp_path, settings):
    path = write(tmp_path / "data", rows(60))
    with pytest.raises(UserError, match=r"no case 'q61'; the nearest of 60 are q6"):
        evaluate(task(path), candidate(), replace(settings, only=["q61"]))


@pytest.mark.parametrize(("batch", "place"), [(1, (0, 1)), (4, (0, 1)), (4, (1, 3)), (1, (2, 3))])
def test_prompts_come_in_the_order_of_a_list(tmp_path, monkeypatch, batch, place):
    records = rows(300)
    for number, record in enumerate(records):
        record["question"] = "Which? " + "x" * (number * 7 % 31)
    quiz = task(write(tmp_path / "data", records))
    cases, skip = whole(quiz.layout, monkeypatch), frozenset({"q3", "q200"})
    for skipped in (frozenset(), skip):
        orders = []
        for sequence in (cases, quiz.cases("test")):
            batches = PromptBatches(quiz, sequence, batch_size=batch, place=place, skip=skipped, read_images=False)
            orders.append([[prepared.case.id for prepared in some] for some in batches])
            assert len(batches) == len(orders[-1])
        assert orders[0] == orders[1]


@pytest.mark.slow
def test_a_start_on_an_index_takes_no_time_that_grows_with_the_cases(tmp_path):
    path = write(tmp_path / "data", rows(60_000))
    taken = []
    for _ in range(2):
        began = time.process_time()
        quiz = task(path)
        cases = quiz.cases("test")
        assert quiz.reference_lines(cases) == {"accuracy": 0.5}
        next(iter(PromptBatches(quiz, cases, batch_size=8, read_images=False)))
        taken.append(time.process_time() - began)
    assert taken[1] < taken[0] / 5
