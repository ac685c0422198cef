"""LUNGUAGESCORE's arithmetic: by hand, beside a plain reading of its authors' loops, and as properties."""

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.errors import UsageError, UserError
from medimg_eval.metrics.answers.reply import AnsweredQuestion
from medimg_eval.metrics.reports.lunguage import (
    ATTRIBUTES,
    EXACT,
    PHRASE,
    lunguage_of,
    lunguage_precision,
    lunguage_recall,
    lunguage_score,
    lunguage_scores,
    read_rows,
    row_similarity,
    soft_match,
    texts_in,
)

fast = settings(deadline=None, max_examples=25)


def shared(ones, others):
    """The share of words that two texts have in common: 1 for equal ones."""
    sets = [[set(text.split()) for text in texts] for texts in (ones, others)]
    return [[len(one & other) / len(one | other) for other in sets[1]] for one in sets[0]]


EFFUSION = {"entity": "effusion", "dx_status": "positive", "location": "left lung", "severity": "small"}
EDEMA = {"entity": "edema", "dx_status": "negative"}


def test_matches_of_a_table_by_hand():
    # 1.0 + 0.5 are hits; each of two matches lacks 1 - s on both sides.
    assert soft_match([[1.0, 0.2], [0.4, 0.5]]) == (0.75, 0.75, 0.75)
    # The best sum is 0.6 + 0.9, not 0.9 alone with what is left.
    found = soft_match([[0.6, 0.9], [0.1, 0.9]])
    assert found.f1 == pytest.approx(0.75)


def test_rows_that_are_left_over_count_by_what_they_lack_of_their_nearest():
    # Matched: 0.9. Left over is the second prediction, whose nearest is at 0.3.
    found = soft_match([[0.9, 0.3]])
    assert found.precision == pytest.approx(0.9 / (0.9 + 0.1 + 0.7))
    assert found.recall == pytest.approx(0.9)
    assert found.f1 == pytest.approx(2 * 0.9 / 1.7 * 0.9 / (0.9 / 1.7 + 0.9))
    turned = soft_match([[0.9], [0.3]])
    assert (turned.precision, turned.recall) == (found.recall, found.precision)


def test_the_similarity_of_two_rows_by_hand():
    other = {"entity": "effusion", "dx_status": "Positive ", "location": "right lung", "onset": "new"}
    ((found,),) = row_similarity([EFFUSION], [other], shared)
    phrase = 2 / 6  # effusion, left, lung, small; effusion, right, lung, new
    attributes = (0.5 + 0.2 * 1 / 3) / (0.5 + 0.2 + 0.15 + 0.15)  # severity and onset stand on one side alone
    assert found == pytest.approx(phrase * attributes)


def test_a_denied_finding_loses_half_its_attributes():
    ((found,),) = row_similarity([EDEMA], [{**EDEMA, "dx_status": "positive"}], shared)
    assert found == 0
    certain = {**EDEMA, "dx_certainty": "definitive"}
    ((found,),) = row_similarity([certain], [{**certain, "dx_status": "positive"}], shared)
    assert found == pytest.approx(0.1 / 0.6)


def test_rows_without_any_attribute_are_compared_by_their_names():
    assert row_similarity([{"ent": "edema"}], [{"entity": "edema"}], shared).tolist() == [[1.0]]
    assert lunguage_of([{"entity": "edema", "location": float("nan")}], [{"entity": "edema"}], shared).f1 == 1


def test_phrases_may_have_a_similarity_of_their_own():
    found = row_similarity([EFFUSION], [EFFUSION], shared, lambda ones, others: [[0.25]])
    assert found.tolist() == [[pytest.approx(0.25)]]


def test_the_studies_of_a_patient_are_compared_by_group_and_time():
    first = {"entity": "edema", "entity_group": "edema", "dx_status": "positive", "sequence": 1, "episode": 1}
    later = {**first, "sequence": "2.0"}
    assert row_similarity([first], [first], shared, temporal=True).tolist() == [[1.0]]
    assert row_similarity([first], [later], shared, temporal=True).tolist() == [[0.5]]
    assert row_similarity([{**first, "sequence": 2}], [later], shared, temporal=True).tolist() == [[1.0]]
    bare = {"entity": "edema", "dx_status": "positive", "study_id": "s1"}
    assert row_similarity([bare], [{**bare, "study_id": "s2"}], shared, temporal=True).tolist() == [[0.5]]
    assert row_similarity([bare], [{**bare, "study_id": "s2"}], shared).tolist() == [[1.0]]


def test_what_is_missing_scores_nothing_and_is_never_left_out():
    references = {"a": [EFFUSION], "b": [EDEMA], "c": [], "d": []}
    found = lunguage_scores(references, {"a": [EFFUSION], "d": [EDEMA], "other": [EDEMA]}, shared)
    assert list(found) == list("abcd")
    assert found["a"].f1 == 1
    assert found["b"] == (0, 0, 0)
    assert all(map(math.isnan, found["c"]))
    assert found["d"] == (0, 0, 0)


def plain(reference, prediction):
    """The authors' loops on one study; the best matching by trying all."""

    def phrase(row):
        return " ".join([row["entity"], *(row[name] for name in PHRASE if row.get(name))])

    def attributes(one, other):
        worth = norm = 0.0
        for name, weight in ATTRIBUTES.items():
            if not one.get(name) and not other.get(name):
                continue
            norm += weight
            if one.get(name) and other.get(name):
                alike = float(one[name] == other[name]) if name in EXACT else shared([one[name]], [other[name]])[0][0]
                worth += weight * alike
        return worth / norm

    table = np.array(
        [[shared([phrase(one)], [phrase(other)])[0][0] * attributes(one, other) for other in prediction]
         for one in reference]
    )  # fmt: skip
    turned = table.T if len(reference) > len(prediction) else table

    def left_over(chosen):
        return [1 - turned[:, column].max() for column in range(turned.shape[1]) if column not in chosen]

    def worth(chosen):
        return round(sum(turned[row, column] for row, column in enumerate(chosen)), 9), -sum(left_over(chosen))

    best = max(itertools.permutations(range(turned.shape[1]), turned.shape[0]), key=worth)
    hits = [turned[row, column] for row, column in enumerate(best)]
    over = left_over(best)
    lost = sum(1 - hit for hit in hits)
    wrong, missed = (lost, lost + sum(over)) if turned is not table else (lost + sum(over), lost)
    precision = sum(hits) / (sum(hits) + wrong)
    recall = sum(hits) / (sum(hits) + missed)
    return 2 * precision * recall / (precision + recall) if precision + recall else 0


rows = st.lists(
    st.fixed_dictionaries(
        {
            "entity": st.sampled_from(["effusion", "edema", "nodule"]),
            "dx_status": st.sampled_from(["positive", "negative"]),
        },
        optional={
            "location": st.sampled_from(["left lung", "right lung", "left base"]),
            "severity": st.sampled_from(["small", "large"]),
            "dx_certainty": st.sampled_from(["definitive", "tentative"]),
            "comparison": st.sampled_from(["prior study"]),
        },
    ),
    min_size=1,
    max_size=4,
)


@fast
@given(rows, rows)
def test_any_study_is_worth_what_the_plain_loops_say(reference, prediction):
    found = lunguage_of(reference, prediction, shared)
    assert found.f1 == pytest.approx(plain(reference, prediction), abs=1e-9)
    assert all(0 <= one <= 1 for one in found)
    other = lunguage_of(prediction, reference, shared)
    assert (other.f1, other.precision) == (pytest.approx(found.f1), pytest.approx(found.recall))
    turned = lunguage_of(reference[::-1], prediction[::-1], shared)
    assert turned.f1 == pytest.approx(found.f1, abs=1e-9)


@fast
@given(rows, st.randoms())
def test_equal_rows_in_any_order_are_the_best_and_no_rows_the_worst(reference, random):
    turned = random.sample(reference, len(reference))
    assert lunguage_of(reference, turned, shared).f1 == pytest.approx(1)
    assert lunguage_of(reference, [], shared) == (0, 0, 0)
    assert lunguage_of([], reference, shared) == (0, 0, 0)


def test_distinct_texts_are_asked_for_once_and_empty_ones_never():
    asked = []

    def counting(ones, others):
        asked.append((ones, others))
        return shared(ones, others)

    lunguage_of([EFFUSION] * 5, [EFFUSION, {**EFFUSION, "location": " "}], counting)
    assert asked == [
        (["effusion left lung small"], ["effusion left lung small", "effusion small"]),
        (["left lung"], ["left lung"]),
        (["small"], ["small"]),
    ]
    assert texts_in([EFFUSION, EDEMA]) == (["effusion left lung small", "edema"], ["left lung", "small"])


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: row_similarity([{"dx_status": "positive"}], [EDEMA], shared), "to name its finding as `entity`"),
        (lambda: row_similarity([EDEMA], [EDEMA], lambda ones, others: [1.0]), r"of shape \(1, 1\), got \(1,\)"),
        (lambda: soft_match([1.0]), r"got an array of shape \(1,\)"),
    ],
)
def test_what_cannot_be_meant_is_refused(call, complaint):
    with pytest.raises(UsageError, match=complaint):
        call()


def test_rows_are_read_from_a_table_or_from_lines(tmp_path):
    table = tmp_path / "rows.csv"
    table.write_text('study_id,entity,location\ns1,edema,"both\nlungs"\ns1,nodule,\ns2,effusion,left\n')
    found = read_rows(table)
    assert [row["entity"] for row in found["s1"]] == ["edema", "nodule"]
    assert lunguage_scores(found, found, shared)["s1"].f1 == 1
    lines = tmp_path / "rows.jsonl"
    records = [{"study_id": "s1", "rows": [EDEMA]}, {"study_id": 2, "entity": "nodule"}, {"study_id": "s3", "rows": []}]
    lines.write_text("\n".join(map(json.dumps, records)) + "\n\n")
    assert {study: len(some) for study, some in read_rows(lines).items()} == {"s1": 1, "2": 1, "s3": 0}


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("rows.csv", "entity\nedema\n", "rows.csv, line 2: names no study"),
        ("rows.csv", "study_id,entity\nnan,edema\n", "line 2: names no study"),
        ("rows.jsonl", "[1]\n", "line 1: names no study"),
        ("rows.jsonl", "{\n", "cannot be read as rows"),
    ],
)
def test_files_that_hold_no_rows_are_named(tmp_path, name, text, complaint):
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=complaint):
        read_rows(tmp_path / name)
    with pytest.raises(UserError, match="none.csv: cannot be read"):
        read_rows(tmp_path / "none.csv")


def test_the_metrics_take_what_the_annotator_found():
    read = {"f1": 0.5, "precision": 0.4, "recall": 0.6}
    pair = AnsweredQuestion("report", "Edema.", "Edema.", readings={"lunguage": read})
    assert [judge(pair) for judge in (lunguage_score, lunguage_precision, lunguage_recall)] == [0.5, 0.4, 0.6]
    for other in (
        AnsweredQuestion("report", "", "Edema.", readings={"lunguage": None}),
        AnsweredQuestion("report", "", "Edema.", readings={"lunguage": dict.fromkeys(read)}),
        AnsweredQuestion("report", "Edema.", "", readings={"lunguage": read}),
        AnsweredQuestion("choice", "A", "A", options={"A": "x", "B": "y"}),
    ):
        assert math.isnan(lunguage_score(other))
