"""Benchmarks in JSON: their papers' own tables, turns, judges and likelihoods, each against a hand computation."""

import json

import numpy as np
import pytest

import medimg_eval as me
from medimg_eval.degradations import sweep
from medimg_eval.errors import UsageError
from medimg_eval.instantiate import build_task
from medimg_eval.question import Reply
from medimg_eval.results import build_authors_tables, load_runs
from medimg_eval.tasks.questions.judge_questions import JudgeQuestion
from tests.helpers.asking import Says
from tests.helpers.catalogue import SAMPLES, answered, config_of, picture, task_of, worth, write_json
from tests.helpers.judge_asks import judge_prompts
from tests.helpers.samples import ALL

assert ALL is not None


def finished(name, root, replies=None, judged_as=None, **changes):
    """A run on the sample of a benchmark, by default with the sample's replies."""
    given = SAMPLES[name].replies if replies is None else replies
    return answered(task_of(name, root / "data", **changes), given, root / "run", judged_as)


def columns(folder):
    """Title -> value, of the paper's own table."""
    (table,) = build_authors_tables(load_runs([folder]), resamples=20)
    return {column.title: cell.mean for column, cell in zip(table.columns, table.rows[0].cells, strict=True)}


def changed(name, root, **layout):
    """The task on the files that are there, with settings of its layout changed as on the command line."""
    config = config_of(name, root)
    return build_task(config | {"layout": config["layout"] | layout})


def test_omnimedvqa_prints_accuracy_by_modality_and_by_type_of_question(tmp_path):
    assert columns(finished("omnimedvqa", tmp_path)) == pytest.approx(
        {
            "CT(Computed Tomography)": 1 / 2,
            "Dermoscopy": 0,
            "MR (Mag-netic Resonance Imaging)": 1,
            "Modality Recognition": np.nan,
            "Anatomy Identification": 1,
            "Disease Diagnosis": 0,
            "Lesion Grading": 1,
            "Other Biological Attributes": np.nan,
            "Overall": 2 / 4,
        },
        nan_ok=True,
    )


def test_omnimedvqas_likeliest_option_is_the_answer_and_equal_ones_are_a_draw(tmp_path):
    replies = {
        "ct_1": {"A": -3.0, "B": -1.0, "C": -2.0, "D": -4.0},  # right
        "ct_2": {"A": -1.0, "B": -1.0},  # one of two
        "derm_1": {"A": -2.0, "B": -1.0, "C": -3.0},  # wrong
        "mr_1": {"A": -1.0, "B": -1.0, "C": -1.0},  # one of three
    }
    template = {"user": "Question: {question} The answer is"}
    task = task_of("omnimedvqa", tmp_path / "data", answer_by="likelihood", template=template)
    case = task.cases("test")[1]
    prompt = task.prompt(case, task.read_images(case))
    assert prompt.text == "Question: Is it normal? The answer is"
    assert prompt.options == {"A": "Yes, normal", "B": "No, abnormal"}
    assert worth(answered(task, replies, tmp_path / "run"))["accuracy"] == pytest.approx((1 + 1 / 2 + 0 + 1 / 3) / 4)


def test_omnimedvqas_record_that_says_modality_for_modality_type_has_its_modality(tmp_path):
    task = task_of("omnimedvqa", tmp_path)
    file = tmp_path / "QA_information/Open-access/ct.json"
    records = json.loads(file.read_text())
    records[1]["modality"] = records[1].pop("modality_type")
    write_json(file, records)
    ct = "CT(Computed Tomography)"
    assert [case.attributes["modality"] for case in task.cases("test")[:2]] == [ct, ct]


@pytest.mark.parametrize(("name", "last"), [("medxpertqa_mm", "E"), ("medxpertqa_text", "J")])
def test_medxpertqa_thinks_first_and_is_asked_for_a_letter_in_a_second_turn(name, last, tmp_path):
    class Thinker:
        def generate(self, prompts, decoding):
            return [
                "B" if prompt.messages[-1].parts == (f"Therefore, among A through {last}, the answer is",) else "Not D."
                for prompt in prompts
            ]

    task = task_of(name, tmp_path, extraction="authors")
    cases = task.cases("test")
    prompts = [task.prompt(case, task.read_images(case)) for case in cases]
    replies = task.ask(Thinker(), prompts)
    assert [reply.texts for reply in replies] == [("Not D.", "B")] * 3
    values = [
        next(s.value for s in task.score(c, r) if s.metric == "accuracy") for c, r in zip(cases, replies, strict=True)
    ]
    assert values == [0, 1, 0]


def test_medxpertqa_prints_reasoning_and_understanding_and_averages_over_questions(tmp_path):
    assert columns(finished("medxpertqa_mm", tmp_path)) == {
        "Reasoning": 1 / 2,
        "Understanding": 1,
        "Avg": pytest.approx(2 / 3),
    }


def test_medxpertqa_shows_the_images_of_a_question_in_their_order(tmp_path):
    first, second, third = task_of("medxpertqa_mm", tmp_path).cases("test")
    assert [image.member for image in first.images] == ["images/1-a.jpeg", "images/1-b.jpeg"]
    assert [[image.member for image in case.images] for case in (second, third)] == [
        ["images/2-a.jpeg"],
        ["images/3-a.jpeg"],
    ]


def test_mediconfusion_judges_pairs(tmp_path):
    # Pair 0 alone is right. Of 7 and 12 both have a lesion in the spine, and in vessels.
    assert columns(finished("mediconfusion", tmp_path)) == pytest.approx(
        {
            "Set acc.": 1 / 3,
            "Confusion": 1 / 2,
            "Individual acc.": 4 / 6,
            "Invalid": 1 / 6,
            "Cerebral": 1,
            "Nervous": 0,
            "Spinal": 0,
            "Vascular": 0,
        }
    )


def test_mediconfusion_shows_each_question_its_own_image(tmp_path):
    # Image 2 n belongs to the first question of pair n, and image 2 n + 1 to the second.
    shown = {case.id: case.images[0].files[0].name for case in task_of("mediconfusion", tmp_path).cases("test")}
    assert shown == {
        "0-1": "0.jpg",
        "0-2": "1.jpg",
        "7-1": "14.jpg",
        "7-2": "15.jpg",
        "12-1": "24.jpg",
        "12-2": "25.jpg",
    }


def test_chance_has_a_quarter_of_mediconfusions_pairs(tmp_path):
    task = task_of("mediconfusion", tmp_path / "data")
    replies = {case.id: {"A": 0.0, "B": 0.0} for case in task.cases("test")}
    found = worth(answered(task, replies, tmp_path / "run"))
    assert (found["group_accuracy"], found["accuracy"]) == (1 / 4, 1 / 2)


def test_mediconfusions_judge_chooses_an_option_by_a_score_larger_by_3(tmp_path):
    task = task_of("mediconfusion_free", tmp_path)
    (judge,) = JudgeQuestion.all_of(task.judge)
    for a in range(11):
        for b in range(11):
            chosen = "A" if a >= b + 3 else "B" if b >= a + 3 else "Z"
            for reply in (f"A: {a}\nB: {b}\nYour explanation: A: is closer by 7.", f"A:{a}  B: {b}"):
                assert judge.verdict(reply) == chosen, reply
    assert judge.verdict("Neither is close.") is None
    assert judge.verdict("A: 12\nB: 1") is None


def test_mediconfusions_judge_sees_both_options_and_the_answer(tmp_path):
    task = task_of("mediconfusion_free", tmp_path)
    case = task.cases("test")[2]
    (_, prompt), *others = judge_prompts(task, case, Reply(("A shadow lies to the left.",)).as_record())
    system, said = ["".join(map(str, message.parts)) for message in prompt.messages]
    assert not others
    assert system == "You are a helpful and precise assistant for checking the quality of the answer."
    assert said.startswith(
        "[Question]\nWhere is lesion 7?\n\n[Answer A]\nTo the left\n\n[Answer B]\nTo the right\n\n"
        "[AI Assistant]\nA shadow lies to the left.\n\n[End of AI Assistant]\n\n"
        "[System]\nWe would like to request your feedback on the performance of an AI assistant in response to the "
        "user question displayed above."
    )
    assert said.endswith("format:\nA: <SCORE>\nB: <SCORE>\nYour explanation: <EXPLANATION>\n\n")


def test_mediconfusions_free_answers_are_right_where_the_judge_chooses_the_right_option(tmp_path):
    replies = dict.fromkeys(SAMPLES["mediconfusion_free"].cases, "It lies there.")
    # Right: A, B; B, A; A, B.
    verdicts = {"0-1": "A", "0-2": "B", "7-1": "Z", "7-2": "B", "12-1": "A", "12-2": None}
    judged_as = {case: {"option": verdict} for case, verdict in verdicts.items()}
    found = columns(finished("mediconfusion_free", tmp_path, replies, judged_as))
    assert found == pytest.approx(
        {"Individual acc.": 3 / 6, "Cerebral": 1, "Nervous": 0, "Spinal": 0, "Vascular": 1 / 2}
    )


def test_probmed_counts_images_all_of_whose_questions_of_a_family_are_right(tmp_path):
    # Images 7 and 8, see the sample.
    assert columns(finished("probmed", tmp_path)) == pytest.approx(
        {
            "Modality": 1 / 2,
            "Organ": 1 / 2,
            "Abnormality": 2 / 2,
            "Condition/Finding": 1 / 2,
            "Position": 0 / 1,
            "Overall": 5 / 9,
            "Overall, paired questions": 3 / 7,
            "The same without adversarial questions": 7 / 7,
            "ct-scan_brain": 2 / 5,
            "x-ray_chest": 3 / 4,
        }
    )


def test_probmeds_published_protocol_weighs_image_types_by_all_of_their_images(tmp_path):
    # Of 8 no places are asked, but its type weighs in Position by nothing at all and in Overall by what it is asked:
    # modality 1 of 2, organ 1 of 2, abnormality 2 of 2, entity 1 of 2, and place 0 of 1, as in calculate_score.py.
    replies = SAMPLES["probmed"].replies
    published = {"protocol": "published"}
    folder = finished("probmed", tmp_path / "a", **published)
    found = columns(folder)
    assert found == pytest.approx(
        {
            "Modality": 1 / 2,
            "Organ": 1 / 2,
            "Abnormality": 1,
            "Condition/Finding": 1 / 2,
            "Position": 0,
            "Overall": 5 / 9,
        }
    )
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["signature"].endswith(", protocol: published")
    fixed = finished("probmed", tmp_path / "b", replies)
    assert json.loads((fixed / "manifest.json").read_text())["signature"].endswith(", protocol: fixed")
    assert any("weigh by all of their images" in note for note in load_runs([folder])[0].notes)
    assert not any("weigh by all of their images" in note for note in load_runs([fixed])[0].notes)
    task = build_task(config_of("probmed", tmp_path / "a/data") | published)
    assert build_task(dict(task.config) | {"metrics": ["accuracy"]}).metrics == ["accuracy"]  # as `score metrics=` asks
    with pytest.raises(UsageError, match=r"got 'publish'; did you mean 'published'"):
        build_task(config_of("probmed", tmp_path / "a/data") | {"protocol": "publish"})
    with pytest.raises(UsageError, match=r"'pathmmu' has no protocol=published"):
        build_task(config_of("pathmmu", tmp_path / "a/data") | published)


def test_probmed_resamples_images_and_not_their_families(tmp_path):
    assert {case.patient for case in task_of("probmed", tmp_path).cases("test")} == {"ct-scan_brain-7", "x-ray_chest-8"}


def test_pathmmu_prints_tiny_and_all_of_each_subset(tmp_path):
    found = columns(finished("pathmmu", tmp_path))
    empty = {f"{subset}{part}" for subset in ("SocialPath", "EduContent", "PathCLS") for part in ("", " (tiny)")}
    assert {title for title, value in found.items() if np.isnan(value)} == empty
    assert {title: value for title, value in found.items() if title not in empty} == {
        "Tiny": 1 / 2,
        "All": 2 / 4,
        "PubMed (tiny)": 1,
        "PubMed": 1,
        "Atlas (tiny)": 0,
        "Atlas": 0,
    }


def test_pathmmus_pathologists_stand_below_its_table(tmp_path):
    runs = load_runs([finished("pathmmu", tmp_path)])
    (table,) = build_authors_tables(runs, resamples=20, published_numbers=True)
    (row,) = (row for row in table.published if row.name.startswith("pathologists"))
    found = zip(table.columns, row.cells, strict=True)
    printed = {column.title: cell.texts(column)[0] for column, cell in found if not cell.absent}
    assert {title: float(text) for title, text in printed.items()} == {
        "Tiny": 0.718,
        "PubMed (tiny)": 0.729,
        "SocialPath (tiny)": 0.715,
        "EduContent (tiny)": 0.69,
        "Atlas (tiny)": 0.683,
        "PathCLS (tiny)": 0.789,
    }


def test_pathmmu_is_asked_under_our_degradations_of_sections_and_none_has_the_papers_name(tmp_path):
    task = task_of("pathmmu", tmp_path / "data")
    named = sweep(["suite/pathology"], [5])
    assert not [condition for condition in named if "pathmmu" in condition.name]
    run = me.test(task, Says(default="A"), run=tmp_path / "run", conditions=[one.key for one in named])
    assert set(run.scores["condition"]) == {"", *(condition.key for condition in named)}
    assert not run.scores["value"].isna().any()


def test_pathmmus_train_and_val_are_read_as_its_card_says(tmp_path):
    SAMPLES["pathmmu"].write(tmp_path)
    task = task_of("pathmmu", tmp_path)
    assert [case.id for case in task.cases("validate")] == ["PubMed-val-1", "Atlas-val-9"]
    assert [case.id for case in task.cases("fit")] == ["Atlas-train-4"]
    val = build_task(config_of("pathmmu", tmp_path) | {"splits": {"test": "val"}, "expected": {}})
    assert [case.id for case in val.cases("test")] == ["PubMed-val-1", "Atlas-val-9"]


def test_pathmmus_images_are_read_unpacked_too(tmp_path):
    SAMPLES["pathmmu"].write(tmp_path)
    (tmp_path / "images.zip").unlink()
    for number in (1, 4, 9):
        picture(tmp_path / f"images/{number}.jpg", number)
    task = changed("pathmmu", tmp_path)
    assert all(len(task.read_images(case)) == 1 for case in task.cases("test"))


def test_omnibrainbench_brings_images_down_and_prints_tasks_and_phases(tmp_path):
    task = task_of("omnibrainbench", tmp_path / "data")
    shown = task.read_images(task.cases("test")[0])
    assert [image.array.shape[1:] for image in shown] == [(1280, 1280), (32, 32)]
    found = columns(finished("omnibrainbench", tmp_path))
    assert list(found)[:3] == ["Total", "Anatomical Structure Identification", "Imaging Modality Identification"]
    assert list(found)[-2:] == ["Prognostic Judgment and Risk Forecasting", "Therapeutic Cycle Management"]
    assert {name: share for name, share in found.items() if not np.isnan(share)} == pytest.approx(
        {
            "Total": 2 / 3,
            "Imaging Modality Identification": 1 / 2,
            "Disease Diagnosis Reasoning": 1,
            "Anatomical and Imaging Assessment": 1 / 2,
            "Diagnostic Synthesis and Causal Reasoning": 1,
        }
    )


def test_omnibrainbenchs_open_answers_are_judged_and_overlap_is_beside_it(tmp_path):
    # BLEU of 5 words of which the first 4 are right: (4/5 * 3/4 * 2/3 * 1/2) ** (1/4); the other answer is empty.
    judged_as = {"open-ended-qa_2704-1": {"correct": 1}, "open-ended-qa_2704-2": {"correct": 0}}
    assert columns(finished("omnibrainbench_open", tmp_path, judged_as=judged_as)) == pytest.approx(
        {
            "ROUGE-1": 4 / 9,
            "ROUGE-L": 4 / 9,
            "BLEU (unsmoothed)": (1 / 5) ** (1 / 4) / 2,
            "Exact match": 0,
            "Judge": 1 / 2,
            "Diagnosis": 1 / 2,
            "DSCR": 1 / 2,
        }
    )


def test_medbookvqa_prints_types_and_the_first_level_of_its_taxonomies(tmp_path):
    replies = {"m1": "C", "d1": "B", "s1": "B"}
    assert columns(finished("medbookvqa", tmp_path, replies)) == pytest.approx(
        {
            "ALL": 2 / 3,
            "Modality Recognition": 1,
            "Anatomy Identification": np.nan,
            "Symptom Recognition": 1,
            "Disease Diagnosis": 0,
            "Surgery & Operation": np.nan,
            "Radiography": 2 / 3,
            "Digestive": 2 / 3,
            "Oncology": 2 / 3,
        },
        nan_ok=True,
    )


def test_medbookvqa_knows_the_lower_levels_of_its_taxonomies(tmp_path):
    case = task_of("medbookvqa", tmp_path).cases("test")[1]
    wanted = {"modality": "MRI", "subsystem": "Upper", "body_part": "Abdomen", "organ": "Liver", "department": "Cancer"}
    assert {name: case.attributes[name] for name in wanted} == wanted


def test_chestagentbench_prints_each_category_of_a_question_and_leaves_unanswered_ones_out(tmp_path):
    # 10_1 right: detection, diagnosis; 10_2 wrong: localization, comparison; 20_1 refused: diagnosis; 20_2 right:
    # relationship, detection.
    assert columns(finished("chestagentbench", tmp_path)) == pytest.approx(
        {
            "Detection": 1,
            "Classification": np.nan,
            "Localization": 0,
            "Comparison": 0,
            "Relationship": 1,
            "Diagnosis": 1,
            "Characterization": np.nan,
            "Overall": 2 / 3,
            "single choice": 2 / 3,
        },
        nan_ok=True,
    )
