"""Published numbers computed again, on small files in the layouts that the authors released; all values are made up."""

import json
import math
from dataclasses import replace

import pandas as pd
import pytest

from medimg_eval.catalogue import configs_of
from medimg_eval.errors import UsageError, UserError
from medimg_eval.published_numbers import published_numbers
from medimg_eval.results.published import (
    READERS,
    Benchmark,
    Number,
    classify,
    declared,
    declared_names,
    find_clone,
    published_sheet,
    reproduce,
)
from medimg_eval.results.published.declaration import from_mapping
from medimg_eval.results.table import Settings
from tests.helpers.samples.reports_factchexcker import write_tubes

SETTINGS = Settings(50, 0.95, 0)


def number(**changed):
    plain = {"model": "m", "path": "f", "reader": "jury", "metric": "accuracy", "published": "0.5", "source": "f"}
    return Number(**{**plain, **changed})


def compute(tmp_path, **changed):
    made = Benchmark("set", "owner/name", "c" * 40, "VQA", "", (number(**changed),))
    return reproduce(made, tmp_path, SETTINGS)[0]


def write_json(path, rows):
    path.write_text(json.dumps(rows), encoding="utf-8")


def write_workbook(path, replies):
    options = {"A": "lung", "B": "liver", "C": "spleen", "D": "brain"}
    rows = [{"index": 7, **options, "correct_option": "B", "prediction": text, "hit": hit} for text, hit in replies]
    pd.DataFrame(rows).to_excel(path, index=False)


def test_replies_of_a_workbook_are_read_by_our_rules_and_a_repeated_index_is_two_cases(tmp_path):
    write_workbook(tmp_path / "f.xlsx", [("The answer is B.", 1), ("A", 0)])
    found = compute(tmp_path, path="f.xlsx", reader="worldmedqa", published="0.5")
    assert (found.ours, found.kind, found.cases) == (0.5, "equal", 2)


def test_where_the_authors_marks_give_their_number_the_difference_is_one_of_extraction(tmp_path):
    # Of the second reply nobody can say what it chose; a matcher said B, which is right.
    write_workbook(tmp_path / "f.xlsx", [("B", 1), ("I would rather not say.", 1)])
    found = compute(tmp_path, path="f.xlsx", reader="worldmedqa", published="1.0")
    assert (found.ours, found.kind, found.ids) == (0.5, "extraction", ("7/line 3",))
    assert found.why == "1 of 2 replies are read differently"


def triplet(name, source, outputs):
    kinds = ("Origin", "Perception", "Knowledge")
    return [
        {"triplet_id": name, "model_output": output, "answer": "A", "source": source, "eval_type": kind, "index": "0"}
        for output, kind in zip(outputs, kinds, strict=True)
    ]


def test_a_triplet_counts_when_its_three_questions_are_right(tmp_path):
    # MMMU: AAA and AAB by turns, so 10 of 20 triplets; another source's triplet does not count.
    rows = [*triplet("1", "MathVista", "BBB")]
    for place in range(20):
        rows += triplet(str(place), "MMMU", "AAB" if place % 2 else "AAA")
    write_json(tmp_path / "f", rows)
    wanted = {"reader": "mmevalpro", "scale": 100, "options": {"letters": "AB"}}
    found = compute(tmp_path, metric="group_accuracy", published="50.00", where={"source": "MMMU"}, **wanted)
    assert (found.ours, found.kind) == (50, "equal")
    assert 20 < found.low < 50 < found.high < 80  # whole triplets are drawn: single questions would leave none whole
    # Questions: 10 x 3 + 10 x 2 + 0 of 63 are right, 79.37 in percent when rounded.
    assert compute(tmp_path, published="79.37", **wanted).kind == "rounding"


def test_boxes_are_taken_from_replies_and_compared_by_our_iou(tmp_path):
    # (0, 0, 10, 10) against (0, 0, 10, 5): 50 / 100; the last record is the authors' summary.
    reply = '```json\n[{"bbox_2d": [0, 0, 10, 10], "label": "x"}]\n```'
    record = {"answer": reply, "filter_answer": [0.0, 0.0, 10.0, 10.0], "iou": 0.5, "groundtruth": [0, 0, 10, 5]}
    write_json(tmp_path / "f", [record, {"referring": {"AVE_IOU": 0.5}}])
    for metric, value in (("box_iou", 0.5), ("iou_at@0.5", 1), ("iou_at@0.7", 0)):
        found = compute(tmp_path, reader="medsg_referring", metric=metric, published=str(value))
        assert (found.ours, found.kind) == (pytest.approx(value), "equal")


def test_texts_are_scored_in_lower_case_where_the_authors_did(tmp_path):
    lines = [{"prediction": "No Mass In The Lung", "answer": "no mass in the lung"}, {"prediction": "x", "answer": " "}]
    (tmp_path / "f").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    wanted = {"reader": "answered_texts", "metric": "bleu_13a_exp@4", "scale": 100}
    assert compute(tmp_path, published="100", options={"lower": True}, **wanted).kind == "equal"
    assert compute(tmp_path, published="100", **wanted).kind == "unexplained"


def test_two_of_three_judges_decide_and_questions_without_verdicts_are_left_out(tmp_path):
    (tmp_path / "f").write_text("question_id,a,b\n1,1.00,0\n2,0.66,0\n3,0.33,0\n4,,0\n", encoding="utf-8")
    found = compute(tmp_path, options={"model": "a"}, published="0.6667")
    assert (found.ours, found.kind, found.cases) == (pytest.approx(2 / 3), "rounding", 3)


def test_the_mean_over_classes_skips_those_without_a_value(tmp_path):
    (tmp_path / "f").write_text('Evaluation,Liver,"Lung\n",Spleen\nbase,0.5,,0.75\n', encoding="utf-8")
    found = compute(tmp_path, reader="class_means", metric="dice", options={"model": "base"}, published="0.6250")
    assert (found.ours, found.kind) == (0.625, "equal")


def test_radcliq_of_rounded_means_differs_within_their_rounding(tmp_path):
    head = "Rank,Model Name,BLEU,BertScore,SembScore,RadGraph,RadCliQ-v0,RadCliQ-v1\n"
    # At the means of the authors' data RadCliQ v1 is its intercept, 0.
    (tmp_path / "f").write_text(head + "1,m,0.447,0.6176,0.7648,0.5379,0,0\n", encoding="utf-8")
    wanted = {"reader": "rexrank", "metric": "radcliq_v1", "options": {"model": "m", "version": "v1"}}
    assert compute(tmp_path, published="0.000", **wanted).kind == "rounding"
    known = {"deviation": "rounded means", "at_most": 0.0025}
    assert compute(tmp_path, published="0.002", **wanted, **known).kind == "definition"
    assert compute(tmp_path, published="0.003", **wanted, **known).kind == "unexplained"
    assert compute(tmp_path, published="0.002", **wanted).kind == "unexplained"


def test_groups_count_by_their_numbers_of_questions(tmp_path):
    (tmp_path / "f").write_text("model,mode,recog,meas\nm,direct,100,50\n", encoding="utf-8")
    sizes = "subtype_name,task_group,n_benchmark\na,Recognition,1\nb,Measurement,2\nc,Measurement,1\n"
    (tmp_path / "sizes.csv").write_text(sizes, encoding="utf-8")
    groups = {"recog": "Recognition", "meas": "Measurement"}
    options = {"row": {"model": "m"}, "sizes": "sizes.csv", "groups": groups}
    # 1 x 100 and 3 x 50.
    found = compute(tmp_path, reader="weighted_groups", options=options, published="62.5", scale=100)
    assert (found.ours, found.kind, found.cases) == (62.5, "equal", 4)


def test_a_row_of_a_table_is_found_by_its_first_cell(tmp_path):
    table = "| Model | A | B | Mean |\n|--|--|--|--|\n| **[UNI](https://x)** | **0.2** | _0.4_ | 0.3 |\n\nend\n"
    (tmp_path / "f").write_text(table, encoding="utf-8")
    wanted = {"reader": "table_row", "metric": "mean_pearson", "published": "0.3"}
    assert compute(tmp_path, options={"model": "UNI", "columns": ["A", "B"]}, **wanted).kind == "equal"
    (tmp_path / "f.csv").write_text("model,A,B\na_uni,0.2,0.4\n")
    assert compute(tmp_path, path="f.csv", options={"model": "a_uni", "columns": ["A", "B"]}, **wanted).kind == "equal"
    with pytest.raises(UserError, match="no table row 'none'"):
        compute(tmp_path, options={"model": "none", "columns": ["A", "B"]}, **wanted)


@pytest.mark.parametrize(
    ("published", "ours", "kind"),
    [
        ("17.11", 17.11 + 9e-7, "equal"),
        ("17.11", 17.1149, "rounding"),
        ("17.11", 17.115, "rounding"),  # half of the last digit is within
        ("17.11", 17.1151, "unexplained"),
        ("92", 92.5, "rounding"),
        ("92", 91.4, "unexplained"),
        ("1e-3", 0.0014, "rounding"),
        ("0.5", math.nan, "unexplained"),
    ],
)
def test_the_last_digit_decides_what_is_rounding(published, ours, kind):
    assert classify(number(published=published), ours) == kind


def test_the_authors_marks_explain_a_difference_only_if_they_give_the_published_number():
    assert classify(number(published="0.50"), 0.4, authors=0.504) == "extraction"
    assert classify(number(published="0.50"), 0.4, authors=0.51) == "unexplained"


def test_a_file_that_lacks_is_absent_and_a_file_that_is_odd_is_named(tmp_path):
    assert compute(tmp_path).kind == "absent"
    write_json(tmp_path / "f", [{"groundtruth": [0, 0, 1, 1]}])
    with pytest.raises(UserError, match="medsg_referring cannot read it"):
        compute(tmp_path, reader="medsg_referring", metric="box_iou")
    with pytest.raises(UserError, match="got 'jurry'"):
        compute(tmp_path, reader="jurry")


def test_clones_are_found_by_both_names(tmp_path):
    assert find_clone("owner/name", tmp_path) is None
    (tmp_path / "name").mkdir()
    assert find_clone("owner/name", tmp_path) == tmp_path / "name"
    (tmp_path / "owner+name").mkdir()
    assert find_clone("owner/name", tmp_path) == tmp_path / "owner+name"


def test_the_sheet_says_why_and_counts_the_kinds(tmp_path):
    (tmp_path / "f").write_text("question_id,a\n1,1.00\n", encoding="utf-8")
    wanted = {"options": {"model": "a"}, "deviation": "named", "at_most": 0.6}
    found = [compute(tmp_path, **wanted), compute(tmp_path, path="no")]
    sheet = published_sheet(found, 0.95)
    assert [one[0].text for one in sheet.layout().lines[0].cells][:5] == [
        "accuracy",
        "0.5",
        "1.00",
        "+0.5",
        "definition",
    ]
    assert sheet.layout().footnotes[:3:2] == ["set, m, accuracy: named", "1 definition, 1 absent"]
    assert sheet.frame()["class"].tolist() == ["definition", "absent"]


def test_what_is_declared_is_complete():
    made = [declared(name) for name in declared_names()]
    numbers = [one for benchmark in made for one in benchmark.numbers]
    assert len(numbers) >= 20
    assert len({one.repository for one in made}) >= 8
    assert len({one.family for one in made}) >= 5
    for benchmark in made:
        assert len(benchmark.commit) == 40
        sources = [one.source for one in benchmark.numbers]
        assert max(map(sources.count, sources)) <= 3
        for one in benchmark.numbers:
            assert one.reader in READERS
            float(one.published)
            assert bool(one.deviation) == (one.at_most > 0)


def test_what_is_computed_again_stands_on_the_cards_of_its_tasks():
    tasks = configs_of("task")
    for benchmark in filter(lambda one: one.task, map(declared, declared_names())):
        cards = {
            name: config["card"] for name, config in tasks.items() if name in (benchmark.task, f"{benchmark.task}_free")
        }
        stated = {
            number.number for name, card in cards.items() for number in published_numbers(card["published"], name)
        }
        assert {number.published for number in benchmark.numbers} <= stated


def test_faults_of_a_declaration_are_named():
    stated = {"repository": "a/b", "commit": "c", "family": "VQA", "numbers": [{"model": "m", "paht": "f"}]}
    with pytest.raises(UsageError, match="got 'paht'.*path"):
        from_mapping("x", stated)
    with pytest.raises(UsageError, match="put published in quotes, got 0.5"):
        from_mapping("x", {**stated, "numbers": [{"published": 0.5}]})
    with pytest.raises(UsageError, match="got 'mmevalpr'"):
        declared("mmevalpr")


def test_a_published_number_is_inside_the_interval_by_its_rounding(tmp_path):
    (tmp_path / "f").write_text("question_id,a\n" + "".join(f"{n},{n % 2}\n" for n in range(40)), encoding="utf-8")
    found = compute(tmp_path, options={"model": "a"}, published="0.52")
    assert found.inside is True
    assert replace(found, number=number(published="0.9")).inside is False
    assert replace(found, low=math.nan).inside is None


def test_lengths_of_tubes_are_read_as_sentences_and_their_presence_as_yes_or_no(tmp_path):
    rows = [
        ("a", "m", True, "3.5", True, "4.0"),
        ("b", "m", True, "2.0", False, ""),
        ("c", "m", False, "", True, "5.0"),
        ("d", "m", False, "", False, ""),
        ("a", "other", True, "9.0", True, "4.0"),
    ]
    write_tubes(tmp_path / "f", rows)
    shared = {"reader": "tube_lengths", "options": {"model": "m"}}
    assert compute(tmp_path, metric="ett_carina_mae", published="0.50", scale=0.1, **shared).ours == pytest.approx(0.5)
    assert compute(tmp_path, metric="ett_carina_invented", published="0.50", **shared).ours == 0.5
    assert compute(tmp_path, metric="ett_carina_missing", published="0.50", **shared).ours == 0.5
    assert compute(tmp_path, metric="yes_sensitivity", published="0.50", **shared).ours == 0.5
    assert compute(tmp_path, metric="accuracy", published="0.50", **shared).ours == 0.5
