"""Answers from tables and logs that other programs wrote."""

import json

import pytest

from medimg_eval.case import Prompt
from medimg_eval.errors import CaseError, UserError
from medimg_eval.models.precomputed.texts import PrecomputedReports
from medimg_eval.question import Decoding


@pytest.fixture
def log(tmp_path):
    """Writes a log of samples as lmms-eval does: answers of a question in a list, or in a list of lists."""

    def write(*answers, **changed):
        lines = [
            {
                "doc_id": place,
                "doc": {"qid": place, "question": "Where?"},
                "target": "left",
                "resps": [[answer]],
                "filtered_resps": [answer],
                "exact_match": 1.0,
                **changed,
            }
            for place, answer in enumerate(answers)
        ]
        path = tmp_path / "samples_slake.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return str(path)

    return write


@pytest.mark.parametrize("column", ["resps", "filtered_resps"])
def test_a_log_of_lmms_eval_is_read(log, column):
    assert PrecomputedReports(log("left", "", "on the right"), "doc_id", column).texts == {
        "0": "left",
        "1": "",
        "2": "on the right",
    }


@pytest.mark.parametrize(
    ("columns", "changed", "said"),
    [
        (("doc_id", "doc"), {}, "record 1 holds 2 values in 'doc', expected one text"),
        (("doc_id", "resps"), {"resps": [["a", "b"]]}, "record 1 holds 2 values in 'resps'"),
        (("doc_id", "resps"), {"resps": []}, "record 1 holds 0 values in 'resps'"),
        (("doc_id", "resps"), {"resps": [["left"], ["right"]]}, "record 1 holds 2 values in 'resps'"),
        (("doc", "resps"), {}, "record 1 holds 2 values in 'doc'"),
        (("id", "prediction"), {}, "has no column 'id'"),
    ],
)
def test_a_cell_that_is_no_single_text_is_refused_in_a_sentence(log, columns, changed, said):
    with pytest.raises(UserError, match=said):
        _ = PrecomputedReports(log("left", "right", **changed), *columns).texts


def test_a_row_that_stands_there_twice_counts_once_and_one_with_several_texts_fails_alone(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("id,prediction\na,1\na,1\nb,\n")
    assert PrecomputedReports(str(path)).texts == {"a": "1", "b": ""}
    path.write_text("id,prediction\na,1\nb,3\na,2\n")
    model = PrecomputedReports(str(path))
    assert model.generate([Prompt("b", ())], Decoding()) == ["3"]
    with pytest.raises(CaseError, match="id 'a' stands there with several texts; keep one"):
        model.generate([Prompt("b", ()), Prompt("a", ())], Decoding())
