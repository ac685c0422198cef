"""Cases on disk: the same as those that were stored, whole or not there, and nothing but cases."""

import io
import multiprocessing
import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medimg_eval.case import Case, Trial
from medimg_eval.case_index import (
    CannotStoreError,
    EachCase,
    StoredCases,
    any_images,
    any_patients,
    by_id,
    cases_of,
    held,
    ids_of,
    in_order,
    most_repeats,
    open_cases,
    remembered,
    repeated_id,
    write_cases,
)
from medimg_eval.data.questions.answers import KeyOf
from medimg_eval.data.questions.indexing import ALLOWED
from medimg_eval.data.questions.pictures import FilePicture
from medimg_eval.data.questions.records import Record
from medimg_eval.errors import UserError
from medimg_eval.question import Question

TABLE = Path("table.jsonl")


def case(name, number=0, **more):
    key = KeyOf("AB"[number % 2], Record(TABLE, f"line {number + 1}", {}, {}))
    question = Question(f"What is {number}?", "choice", {"A": "liver", "B": "spleen"})
    return Case(name, (), key, question=question, **more)


def stored(path, cases, key="k"):
    write_cases(path, cases, key, ALLOWED, [TABLE])
    return open_cases(path, key, ALLOWED)


NAMES = st.lists(st.text(st.sampled_from("ab#~ é☃\ud800"), max_size=6), unique=True, max_size=20)


@given(NAMES)
def test_stored_cases_are_those_that_were_given(tmp_path_factory, names):
    path = tmp_path_factory.mktemp("index") / "x.index"
    cases = [case(name, number) for number, name in enumerate(names)]
    index = stored(path, cases)
    assert len(index) == len(cases)
    assert list(map(repr, index)) == list(map(repr, cases))
    assert list(index.ids) == names
    assert [index.ids.place(name) for name in names] == list(range(len(names)))
    assert "not one of them" not in index.ids
    assert index.ids[1:3] == names[1:3]
    assert index.ids[::-2] == names[::-2]
    assert [found.id for found in index[3:1:-1]] == names[3:1:-1]


def test_cases_of_several_blocks_are_found_by_place_and_id(tmp_path):
    cases = [case(f"c{number}", number) for number in range(1000)]
    index = stored(tmp_path / "x.index", cases)
    for place in (0, 255, 256, 700, 999, -1):
        assert index[place].question == cases[place].question
        assert index[place].target.record.place == cases[place].target.record.place
    assert by_id(index)["c513"].question.text == "What is 513?"
    assert list(by_id(index)) == ids_of(cases)
    with pytest.raises(KeyError):
        by_id(index)["c1000"]
    with pytest.raises(IndexError):
        index[1000]


def test_facts_of_all_cases_are_those_of_a_list(tmp_path):
    picture = FilePicture(Path("x.png"), None, "", {}, "table, line 1")
    for number, cases in enumerate(
        [[case("a")], [case("a"), case("b", patient="p")], [Case("a", (picture,), case("a").target)], []]
    ):
        index = stored(tmp_path / f"{number}.index", cases)
        assert any_images(index) == any_images(cases)
        assert any_patients(index) == any_patients(cases)
        assert index.from_sources == all(set(item.files) == {TABLE} for item in cases)
        assert repeated_id(index) is None
        assert held(index) is index


def test_two_cases_of_one_id_are_not_stored(tmp_path):
    with pytest.raises(CannotStoreError, match="two cases are called 'a'"):
        stored(tmp_path / "x.index", [case("a"), case("b"), case("a", 1)])
    assert not list(tmp_path.iterdir())


def test_things_of_other_classes_are_not_stored(tmp_path):
    strange = Case("a", (), io.BytesIO())
    with pytest.raises(CannotStoreError, match=r"_io\.BytesIO is no part of a case"):
        stored(tmp_path / "x.index", [strange])
    assert not list(tmp_path.iterdir())


def test_an_index_that_names_other_classes_is_refused(tmp_path):
    index = stored(tmp_path / "x.index", [case("a")])
    index._allowed = {name: kind for name, kind in ALLOWED.items() if kind is not Question}
    with pytest.raises(UserError, match=r"damaged \(it holds medimg_eval.question.Question\); delete the file"):
        index[0]


@pytest.mark.parametrize("keep", [0, 10, 0.5, -1])
def test_a_torn_index_is_none(tmp_path, keep):
    path = tmp_path / "x.index"
    stored(path, [case(f"c{number}", number) for number in range(300)])
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep) if isinstance(keep, float) else keep])
    assert open_cases(path, "k", ALLOWED) is None


@pytest.mark.parametrize("share", [0.01, 0.3, 0.6, 0.9])
def test_an_index_with_a_changed_byte_is_none(tmp_path, share):
    path = tmp_path / "x.index"
    stored(path, [case(f"c{number}", number) for number in range(300)])
    content = bytearray(path.read_bytes())
    content[int(len(content) * share)] ^= 1
    path.write_bytes(content)
    assert open_cases(path, "k", ALLOWED) is None


def test_an_index_of_something_else_is_none(tmp_path):
    stored(tmp_path / "x.index", [case("a")])
    assert open_cases(tmp_path / "x.index", "another", ALLOWED) is None
    assert open_cases(tmp_path / "y.index", "k", ALLOWED) is None


def test_an_open_index_stays_as_it_was_when_it_is_replaced(tmp_path):
    path = tmp_path / "x.index"
    before = stored(path, [case(f"c{number}", number) for number in range(600)])
    stored(path, [case("other")], key="new")
    assert before[599].question.text == "What is 599?"
    assert before.ids[300] == "c300"


def _write(path, start):
    start.wait()
    write_cases(path, [case(f"c{number}", number) for number in range(2000)], "k", ALLOWED, [TABLE])


def test_several_processes_may_build_one_index_at_once(tmp_path):
    context, path = multiprocessing.get_context("fork"), tmp_path / "x.index"
    start = context.Event()
    processes = [context.Process(target=_write, args=(path, start)) for _ in range(4)]
    for process in processes:
        process.start()
    start.set()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    assert len(open_cases(path, "k", ALLOWED)) == 2000
    assert [file.name for file in tmp_path.iterdir()] == ["x.index"]


def test_stored_cases_are_sent_to_other_processes_by_their_file(tmp_path):
    index = stored(tmp_path / "x.index", [case("a"), case("b", 1)])
    sent = pickle.dumps(index)
    assert isinstance(pickle.loads(sent), StoredCases)
    assert [item.id for item in pickle.loads(sent)] == ["a", "b"]
    (tmp_path / "x.index").unlink()
    with pytest.raises(UserError, match="the index is gone"):
        pickle.loads(sent)


def test_what_is_found_of_all_cases_is_remembered_until_they_change(tmp_path):
    path, calls = tmp_path / "x.index", []

    def count():
        calls.append(1)
        return {"accuracy": 1 / 3}

    index = stored(path, [case("a")])
    assert remembered(index, "n", count) == remembered(open_cases(path, "k", ALLOWED), "n", count) == count()
    assert len(calls) == 2
    other = stored(path, [case("b")], key="k2")
    remembered(other, "n", count)
    assert len(calls) == 3
    (tmp_path / "x.json").write_text("{torn")
    remembered(other, "n", count)
    assert len(calls) == 4
    remembered([case("a")], "n", count)
    assert len(calls) == 5


def test_what_rests_on_further_files_is_found_each_time(tmp_path):
    picture = FilePicture(Path("x.png"), None, "", {}, "table, line 1")
    index, calls = stored(tmp_path / "x.index", [Case("a", (picture,), case("a").target)]), []
    for _ in range(2):
        remembered(index, "n", lambda: calls.append(1), of_files=True)
    assert len(calls) == 2


def test_notes_that_cannot_be_written_are_found_again(tmp_path, monkeypatch):
    index = stored(tmp_path / "x.index", [case("a")])
    monkeypatch.setattr(Path, "write_text", lambda *_, **__: (_ for _ in ()).throw(OSError("read-only")))
    assert remembered(index, "n", lambda: 7) == 7


# Trials


def listed(every, wanted, further=()):
    """The same of trials that are all made, as the rule says it."""
    places = {case.id: place for place, case in enumerate(every)}
    trials = [*wanted, *further]
    order = list(dict.fromkeys(trial.condition for trial in trials))
    valid = {trial for trial in trials if trial.case in places}
    return sorted(valid, key=lambda trial: (order.index(trial.condition), trial.repeat, places[trial.case]))


TRIALS = st.builds(Trial, st.sampled_from(["a", "b", "c", "gone"]), st.integers(0, 1), st.sampled_from(["", "blur-3"]))


@given(st.lists(TRIALS, max_size=6), st.integers(0, 3))
def test_trials_are_in_the_order_of_the_rule(tmp_path_factory, further, limit):
    every = [case("a"), case("b"), case("c")]
    index = stored(tmp_path_factory.mktemp("index") / "x.index", every)
    asked = ["a", "b", "c"][:limit]
    expected = listed(every, map(Trial, asked), further)
    for cases in (every, index):
        trials = in_order(cases, EachCase(ids_of(cases)[:limit]), further)
        assert list(trials) == expected
        named = {trial.case for trial in expected}
        assert [item.id for item in cases_of(cases, trials)] == [item.id for item in every if item.id in named]
        assert most_repeats(trials) == 1 + max((trial.repeat for trial in expected), default=0)


def test_each_case_makes_its_trials_as_they_are_asked_for():
    trials = EachCase(["a", "b", "c"])
    assert trials[1] == Trial("b")
    assert trials[1:] == [Trial("b"), Trial("c")]
    assert list(trials) == [Trial("a"), Trial("b"), Trial("c")]
    assert Trial("b") in trials
    for other in (Trial("d"), Trial("b", 1), Trial("b", 0, "grey"), "b"):
        assert other not in trials


def test_a_trial_that_is_called_as_another_case_is_refused(tmp_path):
    every = [case("a"), case("a#1")]
    index = stored(tmp_path / "x.index", every)
    for cases in (every, index):
        with pytest.raises(UserError, match=re.escape("case 'a#1' is called as a repeat")):
            in_order(cases, [Trial("a"), Trial("a", 1), Trial("a#1")])
