"""Keys and numbers as authors ship them, in tables of their layout that we made."""

import pytest

from medimg_eval.data.layouts import Questions
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.instantiate import build_task
from tests.helpers.catalogue import base64_png, config_of, stored_picture, write_parquet
from tests.helpers.samples.k1 import write_table

COLUMNS = ["index", "question", "A", "B", "C", "D", "answer", "correct_option", "split", "image"]


@pytest.fixture
def israel(tmp_path):
    """Two questions of one country have the index 84, in both languages."""
    for language in ("english", "local"):
        write_table(
            tmp_path / f"israel_{language}_processed.tsv",
            COLUMNS,
            [83, "Which nerve?", "Ulnar", "Median", "Radial", "Axillary", None, "D", "test", base64_png(1)],
            [84, "Which lung disease?", "Fibrosis", "Asbestosis", "Asthma", "Cancer", None, "A", "test", base64_png(2)],
            [84, "Which treatment?", "Adenosine", "Blocker", "Ablation", "None", None, "C", "test", base64_png(3)],
        )
    return tmp_path


def test_two_questions_of_one_index_are_two_cases_each_paired_with_its_other_language(israel):
    cases = {case.id: case for case in build_task(config_of("worldmedqa_v", israel)).cases("test")}
    assert {name: case.target.read().value for name, case in cases.items() if "84" in name} == {
        "israel-84-english": "A",
        "israel-84-local": "A",
        "israel-84-english#2": "C",
        "israel-84-local#2": "C",
    }
    assert {name: case.attributes["set"] for name, case in cases.items() if "84" in name} == {
        "israel-84-english": "israel-84",
        "israel-84-local": "israel-84",
        "israel-84-english#2": "israel-84#2",
        "israel-84-local#2": "israel-84#2",
    }
    assert len({case.patient for case in cases.values()}) == 3


def test_an_id_that_is_given_twice_fails_where_the_layout_does_not_number_it(israel):
    config = config_of("worldmedqa_v", israel)
    task = build_task(config | {"layout": config["layout"] | {"repeated_id": "refuse"}})
    again = {case.id: case for case in task.cases("test")}["israel-84-english#2"]
    with pytest.raises(CaseError, match="the id 'israel-84-english' is that of"):
        again.target.read()
    with pytest.raises(UsageError, match="expected refuse or number"):
        Questions(root=str(israel), records="*.tsv", repeated_id="count")


@pytest.mark.parametrize(
    ("answer", "letter"), [("B", "B"), ("b", "B"), ("gray fox", "B"), ("Gray Fox", "B"), ("Z", None), ("wolf", None)]
)
def test_a_key_of_mmevalpro_is_a_letter_or_the_text_of_an_option_and_else_fails_alone(answer, letter, tmp_path):
    rows = [
        {
            "index": number,
            "triplet_id": 1,
            "question": "Which animal?",
            "choices": ["red fox", "gray fox"],
            "answer": key,
            "image": stored_picture(number),
            "source": "ScienceQA",
            "question_category": "biology",
            "eval_type": "Origin",
        }
        for number, key in enumerate(["A", answer])
    ]
    write_parquet(tmp_path / "data" / "test-00000-of-00001.parquet", rows)
    first, second = build_task(config_of("mmevalpro", tmp_path)).cases("test")
    assert first.target.read().value == "A"
    if letter:
        assert second.target.read().value == letter
    else:
        with pytest.raises(CaseError, match="is not among the options"):
            second.target.read()
