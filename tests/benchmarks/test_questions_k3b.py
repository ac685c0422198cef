"""The second half of the benchmarks in JSON and CSV files: their papers' tables, judges, prompts and conventions."""

import json

import numpy as np
import pytest

from medimg_eval.errors import CaseError
from medimg_eval.instantiate import build_task
from medimg_eval.question import Reply
from medimg_eval.results import build_authors_tables, load_runs
from tests.helpers.catalogue import SAMPLES, answered, config_of, task_of, worth, write_lines
from tests.helpers.judge_asks import judge_prompts
from tests.helpers.samples import ALL

assert ALL is not None


def columns(folder):
    """Title -> value, of the paper's own table."""
    (table,) = build_authors_tables(load_runs([folder]), resamples=20)
    return {column.title: cell.mean for column, cell in zip(table.columns, table.rows[0].cells, strict=True)}


def finished(name, root, judged_as=None, **changes):
    return answered(task_of(name, root / "data", **changes), SAMPLES[name].replies, root / "run", judged_as)


def case_of(task, case_id):
    return next(case for case in task.cases("test") if case.id == case_id)


def parts(task, case_id):
    """What the user's turn says: texts, and images by their places."""
    case = case_of(task, case_id)
    return task.prompt(case, task.read_images(case)).messages[-1].parts


def asked(task, case_id, reply):
    """Name of a judge's question -> the question, the texts of its turns, and how many images it shows."""
    return {
        one.name: (
            one,
            ["".join(part for part in message.parts if isinstance(part, str)) for message in prompt.messages],
            len(prompt.images),
        )
        for one, prompt in judge_prompts(task, case_of(task, case_id), Reply((reply,)).as_record())
    }


def changed(name, root, **settings):
    """The task on the files that are there, with settings that replace those of its layout."""
    config = config_of(name, root)
    return build_task(config | {"layout": config["layout"] | settings})


def test_slakes_table_is_open_closed_and_overall_by_language(tmp_path):
    found = columns(finished("slake", tmp_path))
    # In English: Heart right; no right, "left lung" wrong. In Chinese: the modality right, yes or no wrong.
    assert found["Open (en)"] == 1
    assert found["Closed (en)"] == 1 / 2
    assert found["Overall (en)"] == pytest.approx(2 / 3)
    assert found["Open (zh)"] == 1
    assert found["Closed (zh)"] == 0
    assert found["Overall (zh)"] == 1 / 2
    assert found["Overall"] == pytest.approx(3 / 5)


def test_slake_is_asked_in_the_language_of_the_question_unless_as_lmms_eval_asks(tmp_path):
    task = task_of("slake", tmp_path)
    assert parts(task, "11985") == (0, "Which organ is it?\nPlease answer the question concisely.")
    assert parts(task, "12001") == (0, "图中有异常吗？\n请用一个单词或者短语回答该问题。")
    assert parts(task, "12002") == (0, "这是什么模态？\n请简要回答该问题。")
    task = task_of("slake_lmms_eval", tmp_path)
    assert parts(task, "12002") == (0, "这是什么模态？\nAnswer the question using a single word or phrase.")


def test_slakes_judge_says_0_for_right(tmp_path):
    judge, (said,), images = asked(task_of("slake", tmp_path), "11986", "the left one")["correct"]
    assert "The standard answer: Left\n" in said
    assert "The user's answer: the left one\n" in said
    assert images == 0
    assert [judge.verdict(text) for text in ("<judge>0</judge>", "<judge>1</judge>", "0")] == [1, 0, None]
    found = worth(finished("slake", tmp_path, {"11986": {"correct": 1}, "11984": {"correct": 0}}))
    assert found["judged@correct"] == 1 / 2


def test_pmc_vqa_can_be_asked_without_options_and_scored_by_the_nearest(tmp_path):
    task_of("pmc_vqa", tmp_path)
    config = config_of("pmc_vqa", tmp_path, extraction="omnimedvqa", metrics=["accuracy", "unanswered"])
    config["template"]["variants"]["choice"]["user"] = "Question: {question}\nAnswer:"
    task = build_task(config)
    assert parts(task, "7") == (0, "Question: What is the uptake?\nAnswer:")
    found = worth(answered(task, {"7": "no uptake", "8": "PET scan", "9": "a cyst"}, tmp_path / "run"))
    assert found["accuracy"] == pytest.approx(2 / 3)


def test_images_of_temmed_stand_behind_the_names_of_their_visits(tmp_path):
    last, current = "\nLast visit image: ", "\nCurrent visit image: "
    found = parts(task_of("temmed_vqa", tmp_path), "0-0")
    assert found[:4] == (last, 0, current, 1)
    found = parts(task_of("temmed_selection", tmp_path), "0")
    assert found[:12] == ("A: " + last, 0, current, 1, "\nB: " + last, 2, current, 3, "\nC: " + last, 4, current, 5)


def test_temmed_shows_the_visit_before_first_and_the_pairs_that_options_name(tmp_path):
    task = task_of("temmed_selection", tmp_path)
    first, *_ = task.cases("test")
    names = [image.files[0].relative_to(tmp_path / "PNG").as_posix() for image in first.images]
    assert names == [
        f"train/patient0000{number}/study{study}/view1_frontal.png" for number in (2, 3, 1) for study in (1, 2)
    ]
    # Pictures of the visit before are smaller in the sample.
    assert [image.array.shape[-1] for image in task.read_images(first)] == [16, 32] * 3
    assert [case.patient for case in task_of("temmed_vqa", tmp_path).cases("test")] == [
        *("patient00001", "patient00001", "patient00002", "patient00003")
    ]


def test_a_report_that_chexpert_plus_lacks_is_a_failed_case_that_says_so(tmp_path):
    cases = task_of("temmed_report", tmp_path).cases("test")
    assert [case.target.read().value for case in cases] == [
        *("Larger effusion.\n\nTube in place.", "No new  nodule.", "Oedema has cleared.")
    ]
    table = tmp_path / "df_chexpert_plus_240401.csv"
    table.write_text("\n".join(line for line in table.read_text().splitlines() if "patient00002/study2" not in line))
    failed = build_task(config_of("temmed_report", tmp_path)).cases("test")[1]
    assert failed.question is None
    with pytest.raises(CaseError, match="patient00002/study2/view1_frontal.jpg' is not found in df_chexpert_plus"):
        failed.target.read()


def test_seed_bench_2_has_a_column_for_each_dimension_and_level(tmp_path):
    found = columns(finished("seed_bench_2", tmp_path))
    assert found["Instances Counting"] == 1
    assert found["Global Video Understanding"] == 0
    # Right of level 1: 5_0 and 17_0, not 19_0; of level 3: 25_0, not 26_0 and 27_0.
    assert found["L1"] == pytest.approx(2 / 3)
    assert found["L3"] == pytest.approx(1 / 3)
    assert found["Overall"] == 1 / 2


def test_images_that_are_options_stand_at_their_letters(tmp_path):
    task = task_of("seed_bench_2", tmp_path)
    end = "\nAnswer with the option's letter from the given choices directly."
    ask = "How many towels are there?"
    assert parts(task, "19_0")[:8] == tuple(range(8))
    assert parts(task, "25_0") == (f"{ask}\nA. ", 0, "\nB. ", 1, "\nC. ", 2, "\nD. ", 3, end)
    assert parts(task, "26_0") == (0, 1, 2, f"{ask}\nA. ", 3, "\nB. ", 4, "\nC. ", 5, "\nD. ", 6, end)
    assert parts(task, "27_0")[:4] == (f"{ask}\nA. One ", 0, "\nB. Two ", 1)


def test_chexbenchs_table_is_by_task_and_source(tmp_path):
    found = columns(finished("chexbench", tmp_path))
    assert found["View Classification (chexpert)"] == 1
    assert found["Temporal Classification (mimic-cxr)"] == 1 / 2
    assert found["View Classification"] == 1


def test_chexbench_names_as_many_options_as_there_are(tmp_path):
    task = task_of("chexbench", tmp_path)
    *images, text = parts(task, "Temporal Classification-5")
    assert images == [0, 1]
    assert text == (
        "And now?\nOptions: (A) better, (B) stable, (C) worse\n"
        "Directly answer the question by choosing one option: (A), (B), (C)."
    )
    assert parts(task, "View Classification-2")[-1].endswith(
        "(D) oblique\nDirectly answer the question by choosing one option: (A), (B), (C), (D)."
    )


def test_a_phrases_box_is_the_first_and_in_per_cent_of_its_image(tmp_path):
    first, second = task_of("chexbench_grounding", tmp_path).cases("test")
    # 32 x 32 and 40 x 40 pixels; numbers in the phrase are no box.
    assert first.target.read().value == (8, 16, 24, 32)
    assert second.target.read().value == (0, 0, 20, 20)


def test_the_convention_of_coordinates_is_a_setting(tmp_path):
    task_of("medsg_bench", tmp_path / "data")
    for convention, reply in {
        "pixels": "(5,6),(15,20)",
        "thousand": "(156.25,187.5),(468.75,625)",
        "unit": "[0.15625, 0.1875, 0.46875, 0.625]",
        "percent": "(15.625,18.75),(46.875,62.5)",
    }.items():
        more = {"size": "image", "convention": "{stem~^}" + convention}
        task = changed("medsg_bench", tmp_path / "data", more=more)
        found = worth(answered(task, {"Registered_Diff-1": reply}, tmp_path / convention))
        assert found["box_iou"] == pytest.approx(1 / 4)


def test_medsg_bench_has_iou_and_accuracy_for_each_task(tmp_path):
    found = columns(finished("medsg_bench", tmp_path))
    assert found["Registered difference (IoU)"] == pytest.approx(3 / 4)
    assert found["Multi-view (IoU)"] == 0
    assert found["Overall (IoU)"] == pytest.approx(1.5 / 4)
    assert found["Registered difference (Acc@0.5)"] == 1
    assert found["Overall (Acc@0.5)"] == 1 / 2


def test_medmaslabs_judge_sees_the_images_and_is_told_the_form_of_the_answer(tmp_path):
    task = task_of("medmaslab", tmp_path)
    judge, (system, said), images = asked(task, "MedCMR-1", "A and C")["right"]
    assert "If any correct answer is missing" in system
    assert images == 2
    assert said.endswith(
        "Question: Which are MRI?The description of this image is provided here:Two hearts. "
        "Options: (A) T1 (B) CT (C) T2\n\nOutput sentence of agents: A and C\n"
        "right answer label: A,C\nright answer context: T1, T2\n\nJudgement Result:"
    )
    assert [judge.verdict(text) for text in ("[right]", "[wrong].", "Wrong", "no")] == [1, 0, 0, None]
    _, (system, said), images = asked(task, "pubmedqa-1", "B")["right"]
    assert "There is only one right answer content" in system
    assert images == 0
    assert "right answer label" not in said.rpartition("Output sentence of agents")[2]
    _, (system, _), _ = asked(task, "slake-2", "A cyst")["right"]
    assert "This reference answer is for reference only." in system


def test_medmaslabs_table_is_the_judges_verdicts_by_data_set(tmp_path):
    found = columns(finished("medmaslab", tmp_path, {"medqa-1": {"right": 1}, "slake-2": {"right": 0}}))
    assert found["MedQA"] == 1
    assert found["SLAKE-En"] == 0
    assert found["Overall"] == 1 / 2


def test_bimed_mbenchs_judge_rates_the_reference_first_and_both_in_one_line(tmp_path):
    questions = asked(task_of("bimed_mbench", tmp_path), "eng-0", "The eye.")
    system, said = questions["answer"][1]
    assert questions["reference"][1] == [system, said]
    assert said.startswith(
        "[Context]\nFigure Caption:\nFig. 0: A wall.\n\nFigure Context:\n\t- [{'tokens': 'In vicinity .', "
    )
    assert "[Assistant 1]\nIt is the conjunctiva.\n\n[End of Assistant 1]\n\n[Assistant 2]\nThe eye.\n\n" in said
    assert "Arabic" not in said
    reply = "8 6.5\nAssistant 1 names the conjunctiva; 3 points.\n2 1"
    assert questions["reference"][0].verdict(reply) == 8
    assert questions["answer"][0].verdict(reply) == 6.5
    assert questions["answer"][0].verdict("I rate them 8 and 6.") is None
    _, (_, said), _ = asked(task_of("bimed_mbench", tmp_path), "ara-0", "x")["answer"]
    assert "Deduct score if the answer is in a language other than 'Moders Standard Arabic'." in said


def test_bimed_mbenchs_judge_reads_nothing_where_no_text_mentions_the_figure(tmp_path):
    """`in_text_mention` is null in some English records, and "" in the Arabic ones."""
    task = task_of("bimed_mbench", tmp_path)
    for language, absent in (("eng", None), ("ara", "")):
        file = tmp_path / f"data/test_sets/bimed-mbench_{language}.jsonl"
        write_lines(file, [json.loads(line) | {"in_text_mention": absent} for line in file.read_text().splitlines()])
        _, (_, said), _ = asked(task, f"{language}-0", "x")["answer"]
        assert "Figure Context:\n\t- \n\n[Question]" in said


def test_a_figure_of_several_domains_counts_for_the_first_of_them(tmp_path):
    rated = {case: {"answer": rating, "reference": 9} for case, rating in {"eng-0": 4, "eng-1": 7, "ara-0": 2}.items()}
    found = columns(finished("bimed_mbench", tmp_path, rated))
    assert found["Histology (en)"] == pytest.approx(100 * 4 / 9)
    assert np.isnan(found["Gross (en)"])
    assert found["CXR (en)"] == pytest.approx(100 * 7 / 9)
    assert found["Overall (en)"] == pytest.approx(100 * 5.5 / 9)
    assert found["Reference (en)"] == 9
    assert found["Histology (ar)"] == pytest.approx(100 * 2 / 9)


def test_med_hallmarks_judge_is_the_stored_instruction_about_the_new_answer(tmp_path):
    judge, (said,), images = asked(task_of("med_hallmark", tmp_path), "Conventional-2", "A tumour.")["right"]
    assert "question: What is\nmarked?\nMed-VLM answer: A tumour.\nground-truth: A large cyst\n\nPlease judge" in said
    assert images == 1
    verdicts = {
        "Correct Statements": 1,
        "**Catastrophic Hallucinations**": 0,
        "Prompt-induced Hallucinations": 0,
        "?": None,
    }
    assert {text: judge.verdict(text) for text in verdicts} == verdicts


def test_med_hallmarks_medihall_is_what_the_level_that_the_same_judge_names_is_worth(tmp_path):
    questions = asked(task_of("med_hallmark", tmp_path / "asked"), "Conventional-2", "A tumour.")
    assert questions["medihall"][1:] == questions["right"][1:]
    judge = questions["medihall"][0]
    levels = ("catastrophic", "critical", "attribute", "prompt-induced", "minor")
    assert [judge.verdict(f"{level} hallucination") for level in levels] == [0, 0.2, 0.4, 0.6, 0.8]
    assert judge.verdict("Correct Statements") == 1
    rated = {
        "Conventional-1": {"medihall": 0.2},
        "Conventional-2": {"medihall": 1},
        "Counterfactual-1": {"medihall": 0.6},
    }
    found = columns(finished("med_hallmark", tmp_path / "run", rated))
    assert found["MediHall (conventional)"] == pytest.approx(0.6)
    assert found["MediHall (counterfactual)"] == 0.6


def test_med_hallmarks_labels_are_the_places_of_their_names(tmp_path):
    cases = task_of("med_hallmark_detection", tmp_path).cases("test")
    assert [case.question.options[case.target.read().value] for case in cases] == [
        case.attributes["label"] for case in cases
    ]
    assert [case.target.read().value for case in cases] == ["A", "F", "B", "D"]


def test_spinebench_has_a_column_for_each_task(tmp_path):
    found = columns(finished("spinebench_bupt", tmp_path))
    assert found["Spinal disease diagnosis"] == 1 / 2
    assert found["Spinal lesion localization"] == 1 / 2


def test_vm14k_counts_a_question_in_each_of_its_topics(tmp_path):
    found = columns(finished("vm14k", tmp_path))
    assert found["Pass@1"] == 1 / 2
    assert found["Cardiology"] == found["Pharmacology"] == 1
    assert found["Anatomy"] == pytest.approx(1 / 3)
    assert found["Easy"] == 1 / 2


def test_medical_subjects_of_mmlu_are_averaged_over_subjects_and_over_questions(tmp_path):
    found = columns(finished("mmlu_medical", tmp_path))
    assert found["Anatomy"] == 1
    assert found["Average over subjects"] == pytest.approx(2 / 6)
    assert found["Average over questions"] == pytest.approx(3 / 7)
