"""Benchmarks in text tables: what their judges are asked, what a verdict is, and their papers' own tables."""

import io

import numpy as np
import pytest
from PIL import Image

import medimg_eval as me
from medimg_eval.instantiate import build_task
from medimg_eval.models import VisionLanguageModel
from medimg_eval.question import Reply
from medimg_eval.results import build_authors_tables, load_runs
from tests.helpers.catalogue import SAMPLES, answered, config_of, png, task_of, worth
from tests.helpers.judge_asks import judge_prompts
from tests.helpers.samples import ALL

assert ALL is not None


def columns(folder):
    """Title -> value, of the paper's own table."""
    (table,) = build_authors_tables(load_runs([folder]), resamples=20)
    return {column.title: cell.mean for column, cell in zip(table.columns, table.rows[0].cells, strict=True)}


def asked(task, case_id, reply):
    """Name of a judge's question -> the question, and its system and user turns, about one answer."""
    case = next(case for case in task.cases("test") if case.id == case_id)
    return {
        one.name: (one, ["".join(map(str, message.parts)) for message in prompt.messages])
        for one, prompt in judge_prompts(task, case, Reply((reply,)).as_record())
    }


def changed(name, root, **layout):
    """The task on the files that are there, with settings of its layout changed as on the command line."""
    config = config_of(name, root)
    return build_task(config | {"layout": config["layout"] | layout})


def finished(name, root, judged_as=None, **changes):
    return answered(task_of(name, root / "data", **changes), SAMPLES[name].replies, root / "run", judged_as)


def test_vlmevalkits_judge_is_asked_only_about_answers_that_the_rule_does_not_understand(tmp_path):
    task = task_of("gmai_mmbench", tmp_path, extraction="authors")
    assert asked(task, "8", "A") == {}
    judge, (said,) = asked(task, "8", "It looks harmless.")["option"]
    assert said.startswith("You are an AI assistant who will help me to match an answer with several options")
    assert "Answer: Spider\nYour output: Z\n" in said
    assert said.endswith(
        "Example 3: \nQuestion: Is it benign??\nOptions: There are several options: \nA. Yes\nB. No\n\n"
        "Answer: It looks harmless.\nYour output: "
    )
    for reply, verdict in {
        "A": "A",
        " (B)": "B",
        "**C**": "C",
        "Z": "Z",
        "D. Polyp": "D",
        "Your output: B": "B",
        "The answer is E.": "E",
        "a polyp": None,
        "none of them": None,
    }.items():
        assert judge.verdict(reply) == verdict


def test_ccbenchs_judge_is_asked_in_chinese(tmp_path):
    judge, (said,) = asked(task_of("ccbench", tmp_path), "5", "某种点心")["option"]
    assert said.startswith("你是一个帮助我匹配答案与单选题中多个选项的 AI 助手。")
    assert said.endswith(
        "问题: 图中是什么食物？?\n选项: There are several options: \nA. 饺子\nB. 月饼\n\n答案: 某种点心\n输出: "
    )
    assert [judge.verdict(reply) for reply in ("B", "输出: A", "答案是B。", "某种点心")] == ["B", "A", "B", None]


def test_what_a_judge_matches_counts_for_the_column_of_matched_answers_alone(tmp_path):
    # By the authors' rule 7 is right, 8 wrong and 9 not understood; the judge says that 9 means C, which is right.
    found = worth(finished("gmai_mmbench", tmp_path, {"9": {"option": "C"}}, extraction="authors"))
    assert found["accuracy"] == pytest.approx(1 / 3)
    assert found["accuracy_matched"] == pytest.approx(2 / 3)


def test_gmai_mmbenchs_table_is_by_task_department_and_granularity(tmp_path):
    assert columns(finished("gmai_mmbench", tmp_path)) == pytest.approx(
        {
            "Val": 2 / 3,
            "Disease Diagnosis": 1 / 2,
            "Organ Recognition": 1,
            "Cardiovascular Surgery": 1,
            "Dermatology": 0,
            "Endocrinology": 1,
            "Box": 0,
            "Image": 1,
            "Mask": 1,
        }
    )


def test_endobenchs_table_is_by_category_task_and_scene(tmp_path):
    assert columns(finished("endobench", tmp_path)) == pytest.approx(
        {
            "Overall": 1 / 2,
            "Landmark": 0,
            "Lesion": 1,
            "Surgery": 0,
            "Counting": 1,
            "Instrument": 0,
            "Landmarks": 0,
            "ROI Selection": 1,
            "Colonoscopy": 1,
            "Gastroscopy": 0,
            "Surgical endoscopy": 0,
        }
    )


def test_medq_benchs_table_goes_by_how_the_question_begins(tmp_path):
    assert columns(finished("medq_bench", tmp_path)) == pytest.approx(
        {"Yes-or-No": 1, "What": 1, "How": 0, "Overall": 2 / 3, "CT": 1 / 2, "MRI": 1}
    )


def test_medq_bench_takes_images_from_a_folder_too(tmp_path):
    SAMPLES["medq_bench"].write(tmp_path)
    table = tmp_path / "medqbench_QA_test.tsv"
    head, *lines = table.read_text().splitlines()
    rows = [line.rpartition("\t")[0] + f"\tCT/{number}.png" for number, line in enumerate(lines)]
    table.write_text("\n".join([head.replace("\timage", "\timage_path"), *rows]) + "\n")
    task = changed("medq_bench", tmp_path, images="image_path")
    assert task.cases("test")[1].images[0].files == (tmp_path / "CT" / "1.png",)


@pytest.mark.parametrize("name", ["medq_bench_description", "medq_bench_pairs"])
def test_medq_benchs_judge_is_asked_four_things_about_a_description(name, tmp_path):
    task = task_of(name, tmp_path)
    right = {
        "medq_bench_description": "Noise is strong. Overall, the quality of this image is reject.",
        "medq_bench_pairs": "The first image is blurred. The second image has higher quality.",
    }[name]
    questions = asked(task, "1", "It is {noisy}.")
    assert list(questions) == ["completeness", "preciseness", "consistency", "quality_accuracy"]
    for judge, (said,) in questions.values():
        assert said.startswith("#System: You are a helpful assistant.\n#User: ")
        assert "[It is {noisy}.]" in said
        assert f"[{right}]" in said
        assert said.endswith("Please only provide the result in the following format: Score:")
        assert judge.verdict("Score: 1") == judge.verdict("1") == judge.verdict('{"score": 1}') == 1
        assert judge.verdict("Score：2/2") == 2
        assert judge.verdict("Score: 7") is None
        assert judge.verdict("It rates 2 of the images") is None
    levels = questions["quality_accuracy"][1][0]
    assert ("reject < usable < good" in levels) == (name == "medq_bench_description")


def test_medq_benchs_overall_is_the_sum_of_four_verdicts_up_to_eight(tmp_path):
    names = ("completeness", "preciseness", "consistency", "quality_accuracy")
    verdicts = {"1": (2, 1, 2, 2), "2": (0, 1, 1, None)}
    judged_as = {case: dict(zip(names, said, strict=True)) for case, said in verdicts.items()}
    folder = finished("medq_bench_description", tmp_path, judged_as)
    # The second answer lacks a verdict: it counts where it has one, and not in the sum.
    assert columns(folder) == pytest.approx({"Comp": 1, "Prec": 1, "Cons": 1.5, "Qual": 2, "Overall": 7})
    assert worth(folder)["judge_failures"] == pytest.approx(1 / 8)


@pytest.mark.parametrize("name", ["medq_bench_pairs", "mme_sci"])
def test_two_images_are_shown_in_the_order_of_their_columns(name, tmp_path):
    task = task_of(name, tmp_path)
    shown = [image.array for image in task.read_images(task.cases("test")[0])]
    for array, seed in zip(shown, (1, 2), strict=True):
        assert np.array_equal(np.moveaxis(array, 0, -1), np.asarray(Image.open(io.BytesIO(png(seed)))))


def test_medq_degs_table_is_by_severity_and_group_and_its_clean_images_are_l0(tmp_path):
    found = columns(finished("medq_deg", tmp_path))
    assert found == pytest.approx(
        {
            "Overall": 3 / 4,
            "L0": 1 / 2,
            "L1": 1,
            "L2": 1,
            "Intensity": np.nan,
            "Resolution and blur": 1,
            "Noise": 1,
            "Artefacts": np.nan,
            "Motion": np.nan,
            "Clean": 1 / 2,
            "CT": 1 / 2,
            "X-ray": 1,
            "Gaussian noise": 1,
            "Motion blur": 1,
            "clean": 1 / 2,
        },
        nan_ok=True,
    )


def test_medq_degs_groups_hold_the_kinds_of_the_papers_table(tmp_path):
    groups = config_of("medq_deg", tmp_path)["layout"]["expand"][1]["into"]
    paper = [
        ("Artefacts", "limited angle, sparse view, bias field artifact, undersampling artifact, ghosting artifact"),
        ("Artefacts", "blood cell artifact, dark spots artifact"),
        ("Motion", "object rotation, object movement"),
        ("Intensity", "adjust brightness, exposure, reduce contrast"),
        ("Noise", "gaussian noise, low dose"),
        ("Resolution and blur", "low resolution, motion blur, gaussian blur, bubble"),
    ]
    for group, kinds in paper:
        assert set(kinds.split(", ")) <= set(groups[group])
    every = [kind for kinds in groups.values() for kind in kinds]
    assert len(every) == len(set(every))


class DrawsBySeed(VisionLanguageModel):
    """Answers E but in every fifth repeat, where it says B."""

    def generate(self, prompts, decoding):
        return ["B" if decoding.seed % 5 == 4 else "E"] * len(prompts)


def test_medq_degs_calibration_shift_is_of_votes_at_temperature_1(tmp_path):
    task = task_of("medq_deg", tmp_path / "data", protocol="published")
    assert task.config["decoding"]["temperature"] == 1
    run = me.test(task, DrawsBySeed(), run=tmp_path / "run", repeats=10)
    found = columns(tmp_path / "run")
    # Eight votes to two. Of five options log 5. Of three "E" is none, and the two votes for B are shares of ten.
    five = 1 + (0.8 * np.log(0.8) + 0.2 * np.log(0.2)) / np.log(5)
    three = 1 + 0.2 * np.log(0.2) / np.log(3)
    right = {"L0": (0.8 + 0) / 2, "L1": 0.8, "L2": 0.2}
    assert {name: found[name] for name in right} == pytest.approx(right)
    assert found["Shift at L1"] == pytest.approx(five - 0.8)
    assert found["Shift at L2"] == pytest.approx(three - 0.2)
    assert found["Shift at L0"] == pytest.approx((five + three) / 2 - 0.4)
    assert found["Confidence"] == pytest.approx((five + three) / 2)
    assert len(run.scores) == len(run.scores.drop_duplicates(["case", "repeat", "metric"]))


def test_worldmedqa_vs_table_is_by_country_and_language_with_kappa_between_languages(tmp_path):
    found = columns(finished("worldmedqa_v", tmp_path))
    assert list(found)[:2] == ["Brazil (local)", "Brazil (English)"]
    known = {title: value for title, value in found.items() if not np.isnan(value)}
    assert known == pytest.approx(
        {
            "Brazil (local)": 1 / 2,
            "Brazil (English)": 1,
            "Japan (local)": 0,
            "Japan (English)": 1,
            "Kappa (Brazil)": 1 / 3,
        }
    )


def test_worldmedqa_v_is_asked_without_the_image_too(tmp_path):
    task = task_of("worldmedqa_v", tmp_path, blind="remove")
    case = task.cases("test")[0]
    prompt = task.prompt(case, task.read_images(case))
    assert prompt.images == ()
    assert prompt.text == SAMPLES["worldmedqa_v"].text


def test_mmbenchs_rotations_and_pointers_show_the_image_of_the_row_that_holds_it(tmp_path):
    task = task_of("mmbench", tmp_path)
    images = {case.id: task.read_images(case)[0].array for case in task.cases("test")}
    for first, second in (("241", "1000241"), ("242", "2000242"), ("242", "243")):
        assert np.array_equal(images[first], images[second])
    assert not np.array_equal(images["241"], images["242"])
    sets = {case.id: case.attributes["set"] for case in task.cases("test")}
    assert sets["241"] == sets["1000241"] == "241"
    assert sets["242"] == sets["2000242"] == "242"


def test_mmbenchs_table_is_of_sets_by_ability_and_category(tmp_path):
    found = columns(finished("mmbench", tmp_path))
    known = {title: value for title, value in found.items() if not np.isnan(value)}
    assert list(found)[:7] == ["Overall", "LR", "AR", "RR", "FP-S", "FP-C", "CP"]
    assert known == pytest.approx({"Overall": 2 / 3, "LR": 1, "FP-C": 0, "attribute": 0, "physical": 1})


@pytest.mark.parametrize("name", ["mmbench", "ccbench"])
def test_a_file_with_each_question_once_is_rotated_by_us_to_the_same_questions(name, tmp_path):
    def put(task):
        return {
            (case.attributes["set"], case.question.text, tuple(case.question.options.items()), case.target.read().value)
            for case in task.cases("test")
        }

    wanted = put(task_of(name, tmp_path))
    (table,) = tmp_path.glob("*.tsv")
    kept = [line for line in table.read_text().splitlines() if len(line.split("\t")[0]) < 7]
    table.write_text("\n".join(kept) + "\n")
    assert put(changed(name, tmp_path, expand=["rotate_options"])) == wanted


def test_mme_scis_judge_sees_question_options_and_answer_and_says_one_of_two_words(tmp_path):
    task = task_of("mme_sci", tmp_path)
    judge, (system, said) = asked(task, "1-en", "Final Answer: the left one")["correct"]
    assert system.startswith("You are a strict and impartial judge.")
    assert said == (
        "## Original Question: en: <image_1> and <image_2>: which is heavier? A. left B. right\n\n"
        "## Standard Answer: B\n\n## AI Assistant's Response: Final Answer: the left one\n\n"
        "## NOTE: Do not answer the original question, and do not provide reasoning or explanation. "
        "Only respond with 'correct' or 'incorrect'.\n\n## Your respond: \n"
    )
    said = ("correct", "Correct.", "incorrect", "Incorrect; 5 would be correct", "**incorrect**", "It is right.")
    assert [judge.verdict(reply) for reply in said] == [1, 1, 0, 0, 0, None]


def test_mme_scis_prompt_is_in_the_language_of_the_question_with_images_at_their_marks(tmp_path):
    task = task_of("mme_sci", tmp_path)
    ends = {
        "zh": "请在 '最终答案: ' 之后简洁地写出你给出的答案。",
        "en": "Please write the final answer concisely after 'Final Answer: '.",
        "fr": "Veuillez écrire la réponse finale de manière concise après 'Réponse finale: '.",
        "es": "Por favor, escribe tu respuesta de manera concisa después de 'Respuesta final: '.",
        "ja": "'最終答え: ' の後に、あなたが出した答えを簡潔に書いてください。",
    }
    for case in task.cases("test"):
        (message,) = task.prompt(case, task.read_images(case)).messages
        assert message.parts[-1].endswith("\n" + ends[case.attributes["language"]])
        if case.id.startswith("1"):
            assert message.parts[1::2] == (0, 1)
        else:
            assert message.parts == (f"{case.attributes['language']}: 2 + 2?\n{ends[case.attributes['language']]}",)


def test_mme_scis_table_is_by_language_and_by_course_in_each(tmp_path):
    judged_as = {"1-zh": {"correct": 1.0}, "2-zh": {"correct": 0.0}, "1-en": {"correct": 1.0}, "2-en": {"correct": 1.0}}
    found = columns(finished("mme_sci", tmp_path, judged_as))
    assert list(found)[:6] == ["Overall", "zh", "en", "fr", "es", "ja"]
    known = {title: value for title, value in found.items() if not np.isnan(value)}
    assert known == pytest.approx(
        {
            "Overall": 3 / 4,
            "zh": 1 / 2,
            "en": 1,
            "Mathematics (en)": 1,
            "Mathematics (zh)": 0,
            "Physics (en)": 1,
            "Physics (zh)": 1,
        }
    )
