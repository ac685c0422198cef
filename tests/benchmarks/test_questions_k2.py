"""Question benchmarks in Parquet tables: their papers' own tables, orders, prompts and judges, worked out by hand."""

import numpy as np
import pytest

import medimg_eval as me
from medimg_eval.data.layouts import Questions
from medimg_eval.results import build_authors_tables, build_table, load_runs
from medimg_eval.tasks.questions.judge_questions import JudgeQuestion
from medimg_eval.tasks.questions.templates import Template
from tests.helpers.asking import Says
from tests.helpers.catalogue import SAMPLES, answered, config_of, stored_picture, task_of, worth, write_parquet
from tests.helpers.judge_asks import judge_prompts
from tests.helpers.samples import ALL

assert ALL is not None


def own_table(name, tmp_path, *, judged_as=None, **changes):
    """Title -> value, of the paper's own table of what is answered in the sample."""
    task = task_of(name, tmp_path / "data", **changes)
    folder = answered(task, SAMPLES[name].replies, tmp_path / "run", judged_as)
    (table,) = build_authors_tables(load_runs([folder]), resamples=20)
    return {column.title: cell.mean for column, cell in zip(table.columns, table.rows[0].cells, strict=True)}


def prompt_of(task, number):
    """The prompt of a question, by its place."""
    case = task.cases("test")[number]
    return task.prompt(case, task.read_images(case))


def test_medframeqa_is_divided_by_system_frames_and_modality(tmp_path):
    found = own_table("medframeqa", tmp_path)
    known = {title: value for title, value in found.items() if not np.isnan(value)}
    assert known == pytest.approx(
        {"CNS": 1, "CIR": 0, "Avg": 1 / 3, "2 frames": 1, "3 frames": 0, "5 frames": 0, "CT": 1 / 2, "MRI": 0}
    )
    assert list(found)[:9] == ["CNS", "RES", "CIR", "DIG", "URI", "REP", "END", "MSK", "AUX"]


def test_questions_about_one_video_are_resampled_together(tmp_path):
    assert [case.patient for case in task_of("medframeqa", tmp_path).cases("test")] == ["v1", "v1", "v2"]


def test_kvasir_vqa_x1_takes_the_first_1500_in_the_order_of_seed_42(tmp_path):
    row = {"complexity": 1, "question": "What is seen?", "question_class": ["text"]}
    write_parquet(
        tmp_path / "data" / "test-00000-of-00001.parquet",
        [{**row, "img_id": f"i{n}", "image": stored_picture(n % 3), "answer": f"polyp {n}"} for n in range(1600)],
    )
    layout = config_of("kvasir_vqa_x1", tmp_path)["layout"]
    cases = Questions(**{key: value for key, value in layout.items() if key != "_target_"}).cases("test")
    order = np.random.default_rng(42).permutation(1600)[:1500]
    assert [case.target.read().value for case in cases] == [f"polyp {n}" for n in order]


def test_kvasir_vqa_x1_prints_its_texts_by_metric_and_complexity(tmp_path):
    found, scores = own_table("kvasir_vqa_x1", tmp_path), SAMPLES["kvasir_vqa_x1"].scores
    titles = {"bleu_13a@4": "BLEU", "rouge_1": "ROUGE-1", "rouge_2": "ROUGE-2", "meteor_no_synonyms": "METEOR"}
    assert {title: found[title] for title in titles.values()} == pytest.approx(
        {title: scores[metric] for metric, title in titles.items()}
    )
    by_complexity = [found[f"ROUGE-L, complexity {number}"] for number in (1, 2, 3)]
    assert by_complexity == pytest.approx([1, 3 / 4, 0])


def test_kormedmcqa_v_shows_the_images_between_the_question_and_its_options(tmp_path):
    (message,) = prompt_of(task_of("kormedmcqa_v", tmp_path), 1).messages
    assert message.parts[:3] == ("질문: 다음 검사는?\n\n", 0, 1)
    assert message.parts[3].startswith("A. A형\nB. B형\n")


def test_kormedmcqa_v_leaves_unanswered_questions_out_of_one_denominator_only(tmp_path):
    found = own_table("kormedmcqa_v", tmp_path)
    assert found == pytest.approx(
        {
            "Overall": 1 / 3,
            "Overall (of answered)": 1 / 2,
            "Single image": 1 / 2,
            "Several images": 0,
            "ct": 0,
            "ecg": 0,
            "xray": 1,
            "2022": 1 / 2,
            "2023": 0,
        }
    )


def test_a_judge_of_medevalkit_says_0_for_correct(tmp_path):
    task = task_of("vqa_rad", tmp_path)
    (question,) = JudgeQuestion.all_of(task.judge)
    assert question.verdict("<think>the same</think>\n<judge>0</judge>") == 1
    assert question.verdict("<think>0 of 2</think>\n<judge>{1}</judge>") == 0
    assert question.verdict("<judge>0 or 1") is None
    case = task.cases("test")[3]
    ((_, prompt),) = judge_prompts(task, case, {"texts": ["MRI scan"]})
    assert (
        "The question is: What is this?\n\nThe standard answer: ct scan\n\nThe user's answer: MRI scan" in prompt.text
    )
    assert "<think>{your concise think step}</think>\n<judge>{0/1}</judge>" in prompt.text


def test_vqa_rad_is_closed_by_its_answers_and_open_ones_can_be_judged(tmp_path):
    ids = SAMPLES["vqa_rad"].cases
    verdicts = {case: {"correct": value} for case, value in zip(ids, (0.0, 0.0, 1.0, 1.0), strict=True)}
    assert own_table("vqa_rad", tmp_path, judged_as=verdicts) == pytest.approx(
        {"Closed": 1, "Open (exact match)": 1 / 2, "Open (recall)": 3 / 4, "Open (judge)": 1, "Overall": 3 / 4}
    )


def test_path_vqa_is_scored_without_a_judge_too(tmp_path):
    found = own_table("path_vqa", tmp_path)
    assert np.isnan(found.pop("Open (judge)"))
    assert found == pytest.approx({"Closed": 0, "Open (exact match)": 1 / 2, "Open (F1)": 1 / 2, "Overall": 1 / 3})


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("closed", "Q?\nAnswer the question using a single word or phrase."),
        ("open", "Q?\nPlease answer the question concisely."),
        ("choice_zh", "\n问题： Q?\n选项： \n\n请直接使用给定选项中的选项字母来回答该问题。"),
        ("yes_no_zh", "Q?\n请输出'是'或'否'(不要有任何其它输出)。"),
        ("closed_zh", "Q?\n请用一个单词或者短语回答该问题。"),
        ("open_zh", "Q?\n请简要回答该问题。"),
    ],
)
def test_medevalkit_asks_by_form_and_language_where_a_field_says_so(form, text, tmp_path):
    case = task_of("path_vqa", tmp_path).cases("test")[0]
    template = Template.of({**config_of("path_vqa", tmp_path)["template"], "by": "form"})
    question = type(case.question)("Q?", "open", {}, {"form": form})
    ((message,), _) = template.messages(question, {}, 0)
    assert message.parts == (text,)


def test_mmmu_puts_images_where_question_and_options_name_them(tmp_path):
    (message,) = prompt_of(task_of("mmmu_med", tmp_path), 0).messages
    assert message.parts[:4] == ("Is it ", 1, ", or rather ", 0)
    assert message.parts[4:6] == ("?\n\n(A) Left\n(B) Crohn's\n(C) ", 2)


def test_mmmu_asks_open_questions_for_a_word(tmp_path):
    prompt = prompt_of(task_of("mmmu_med", tmp_path), 1)
    assert prompt.text == "What is the ratio in ?\n\nAnswer the question using a single word or phrase."
    assert len(prompt.images) == 7


def test_mmmu_is_divided_by_its_five_subjects(tmp_path):
    assert own_table("mmmu_med", tmp_path) == pytest.approx(
        {
            "Basic Medical Science": 1 / 2,
            "Clinical Medicine": 1,
            "Diagnostics": 0,
            "Pharmacy": 0,
            "Public Health": 1,
            "Health & Medicine": 3 / 6,
            "Choices": 3 / 5,
            "Open (contains)": 1,
        }
    )


def test_livexiv_is_divided_by_version(tmp_path):
    assert own_table("livexiv", tmp_path) == pytest.approx({"TQA-2024-09-21": 1, "VQA-2024-09-21": 1 / 2, "All": 2 / 3})


def test_mmevalpro_prints_five_scores_of_each_source_and_both_averages(tmp_path):
    # Rows are a triplet: origin, perception, knowledge.
    right = {"MMMU": np.array([[1, 1, 1], [0, 1, 1]]), "ScienceQA": np.array([[0, 1, 0]])}
    every = np.concatenate(list(right.values()))
    parts = {
        "genuine": lambda rows: rows.all(axis=1).mean(),
        "average": np.mean,
        "origin": lambda rows: rows[:, 0].mean(),
        "perception": lambda rows: rows[:, 1].mean(),
        "knowledge": lambda rows: rows[:, 2].mean(),
    }
    wanted = {}
    for name, score in parts.items():
        of_source = {source: score(rows) for source, rows in right.items()}
        wanted |= {f"{source}: {name}": value for source, value in of_source.items()}
        wanted |= {f"Macro: {name}": np.mean(list(of_source.values())), f"Micro: {name}": score(every)}
    found = own_table("mmevalpro", tmp_path)
    assert {title: found[title] for title in wanted} == pytest.approx(wanted)
    assert len(found) == 25
    assert all(np.isnan(found[title]) for title in found.keys() - wanted)  # MathVista, which the sample lacks


def test_medvlthinker_eval_leaves_small_images_out_and_averages_over_sources(tmp_path):
    task = task_of("medvlthinker_eval", tmp_path / "left")
    assert len(task.cases("test")) == 3
    assert task.layout.left_out() == {"slake-6": "has an image with a side of 20 pixels, under 28"}
    columns = own_table("medvlthinker_eval", tmp_path)
    sources = ["pmc_vqa", "MMMU-medical", "MedXpertQA-MM", "pathvqa_closed", "slake_closed", "vqa_rad_closed"]
    assert list(columns) == [*sources, "slake", "Avg"]
    assert [columns[name] for name in ("pmc_vqa", "slake", "Avg")] == pytest.approx([1 / 2, 1, 3 / 4])


def test_med_rewardbench_joins_what_people_say_by_organ_and_id(tmp_path):
    found = {case.id: case.target.read().value for case in task_of("med_rewardbench", tmp_path).cases("test")}
    assert {case: value["overall"] for case, value in found.items()} == {"brain-2": "B", "brain-1": "B", "lung-1": "B"}
    assert {case: value["relevance"] for case, value in found.items()} == {
        "brain-2": "B",
        "brain-1": "A",
        "lung-1": "B",
    }
    dimensions = ["Accuracy", "Relevance", "Comprehensiveness", "Creativity", "Responsiveness"]
    assert own_table("med_rewardbench", tmp_path / "own") == pytest.approx(
        {**dict.fromkeys(dimensions, 2 / 3), "Overall": 1 / 3, "brain": 5 / 12, "lung": 1, "Average": 11 / 18}
    )


def test_a_pair_without_a_judgement_of_people_fails_alone(tmp_path):
    task = task_of("med_rewardbench", tmp_path / "data")
    (tmp_path / "data" / "pair_gt_all" / "lung.jsonl").write_text("{}\n")
    replies = {name: SAMPLES["med_rewardbench"].replies[name] for name in ("brain-1", "brain-2")}
    assert sum(case.question is None for case in task.cases("test")) == 1
    assert worth(answered(task, replies, tmp_path / "run"))["grade_accuracy"] == pytest.approx(5 / 6 / 2)


def test_kvasir_vqa_x1s_images_are_those_of_the_folder_and_not_the_addresses_of_the_table(tmp_path):
    cases = task_of("kvasir_vqa_x1", tmp_path).cases("test")
    assert [case.images[0].path.name for case in cases if case.patient == "img1"] == ["img1.jpg"] * 2


def test_kvasir_vqa_x1s_weak_augmentation_is_a_condition_whose_losses_are_paired(tmp_path):
    task = task_of("kvasir_vqa_x1", tmp_path / "data")
    shown = Says(replies=SAMPLES["kvasir_vqa_x1"].replies)
    run = me.test(task, shown, run=tmp_path / "run", conditions=["kvasir_x1_weak-5"])
    assert set(run.scores["condition"]) == {"", "kvasir_x1_weak-5"}
    pictures = [prompt.images[0].array for prompt in shown.prompts]
    assert all(not np.array_equal(*pair) for pair in zip(pictures[:3], pictures[3:], strict=True))
    table = build_table(
        load_runs([tmp_path / "run"]),
        metrics=["rouge_l", "drop@kvasir_x1_weak-5:rouge_l"],
        by="complexity",
        resamples=20,
    )
    assert {row.group: row.cells[1].mean for row in table.rows}["1"] == 0


def test_kvasir_vqa_x1s_second_track_shows_the_pictures_that_the_authors_script_made(tmp_path):
    cases = task_of("kvasir_vqa_x1_transformed", tmp_path).cases("test")
    assert {case.images[0].path.parent.name for case in cases} == {"image_weak_augmented"}


def test_kvasir_vqa_x1_can_be_judged_by_class_of_question(tmp_path):
    task = task_of("kvasir_vqa_x1", tmp_path, metrics=["judged@right"])
    cases = {case.id[-1]: case for case in task.cases("test")}
    assert [cases[number].attributes["question_class"] for number in "123"] == [
        "polyp_count",
        "instrument_presence, text",
        "procedure_type",
    ]
    (question,) = JudgeQuestion.all_of(task.judge)
    assert [question.verdict(reply) for reply in ("True", "false.", "perhaps")] == [1, 0, None]
    ((_, prompt),) = judge_prompts(task, cases["1"], {"texts": ["One polyp."]})
    assert "Reference: There is one polyp in the image.\nAnswer: One polyp." in prompt.text
