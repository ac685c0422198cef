"""Samples of the benchmarks whose questions are rows of Parquet tables, with their images in them."""

import json
from math import exp
from typing import Any

from tests.helpers.catalogue import base64_png, picture, png, sample, stored_picture, write_lines, write_parquet

DIMENSIONS = ("accuracy", "relevance", "comprehensiveness", "creativity", "responsiveness", "overall")
THINK = (
    "You will solve a problem/request. You should provide your thoughts within <think> </think> tags before providing "
    "the answer.\nWrite your final answer within <answer> </answer> tags.\n\n"
)
SUBJECTS = (
    "Basic_Medical_Science",
    "Clinical_Medicine",
    "Diagnostics_and_Laboratory_Medicine",
    "Pharmacy",
    "Public_Health",
)


def pictures(count, first, names):
    """Columns of pictures, of which the later ones are empty."""
    return {name: stored_picture(first + place) if place < count else None for place, name in enumerate(names)}


# m1 right; m2 is B by ours, and by the authors' rule the C of Cardiomegaly, which is right; m3 is not answered.
@sample(
    "medframeqa",
    cases=["m1", "m2", "m3"],
    replies={"m1": "The first frame shows it.\nAnswer: F", "m2": "Answer: Cardiomegaly (B)"},
    scores={"accuracy": 1 / 3, "unanswered": 1 / 3},
    authors={"accuracy": 2 / 3, "unanswered": 1 / 3},
    text=(
        "Answer the following multiple-choice question. Images are provided. The last line of your response should be "
        "strictly of the following format: ’Answer: $LETTER’ (without quotes) where LETTER is one of the options. For "
        "example, if the correct answer is A, your response should be: ’Answer: A’. Think step by step before "
        "answering.\nQuestion:What changes? \n\nOptions:\n['A. Edema', 'B. Mass', 'C. Bleeding', 'D. Cyst', 'E. Air', "
        "'F. Nothing']\n"
    ),
    images=2,
)
def medframeqa(root):
    """Six options, four and five; two images, three with a gap between them, five."""
    columns = [f"image_{number}" for number in range(1, 6)]
    common = {"keyword": "stroke CT", "image_url": ["u"], "reasoning_chain": "Frame 1 shows it.\nFrame 2 does not."}
    rows = [
        {
            "question_id": "m1",
            "system": "central nervous system",
            "organ": "brain",
            "modality": "CT",
            "video_id": "v1",
            "question": "What changes?",
            "options": ["Edema", "Mass", "Bleeding", "Cyst", "Air", "Nothing"],
            "correct_answer": "F",
            **pictures(2, 10, columns),
        },
        {
            "question_id": "m2",
            "system": "circulatory system",
            "organ": "heart",
            "modality": "MRI",
            "video_id": "v1",
            "question": "What is seen?",
            "options": ["Normal", "Cardiomegaly", "Effusion", "Mass"],
            "correct_answer": "C",
            **(pictures(4, 20, columns) | {"image_3": None}),
        },
        {
            "question_id": "m3",
            "system": "circulatory system",
            "organ": "aorta",
            "modality": "CT",
            "video_id": "v2",
            "question": "Where is it?",
            "options": ["Arch", "Root", "Abdomen", "Valve", "Nowhere"],
            "correct_answer": "A",
            **pictures(5, 30, columns),
        },
    ]
    write_parquet(root / "data" / "test-00000-of-00001.parquet", [{**common, **row} for row in rows])


# Words without marks, said and due: row 1 7 and 7, all shared; row 2 4 and 4, 3 shared in one run; row 3 0 and 5. With
# the full stop as a word of 13a 8 and 8, 4 and 5, 0 and 6, so that 12 are said of 19 due; of 12, 10, 8 and 6 n-grams
# said 11, 9, 7 and 5 match. METEOR of w equal words is 1 - 1 / (2 w^3), and 3/4 (1 - 1 / 54) of row 2.
KVASIR: dict[str, Any] = {
    "cases": ["test-00000-of-00001-3", "test-00000-of-00001-2", "test-00000-of-00001-1"],
    "replies": {
        "test-00000-of-00001-1": "There is one polyp in the image.",
        "test-00000-of-00001-2": "No instruments are seen",
    },
    "scores": {
        "bleu_13a@4": exp(-7 / 12) * (11 / 12 * 9 / 10 * 7 / 8 * 5 / 6) ** 0.25,
        "rouge_1": (1 + 3 / 4) / 3,
        "rouge_2": (1 + 2 / 3) / 3,
        "rouge_l": (1 + 3 / 4) / 3,
        "meteor_no_synonyms": (1 - 1 / 686 + 3 / 4 * (1 - 1 / 54)) / 3,
        "unanswered": 1 / 3,
    },
    "text": " What procedure is this?",
    "best": {"meteor_no_synonyms": 1 - (1 / 686 + 1 / 128 + 1 / 250) / 3},
}


@sample("kvasir_vqa_x1", **KVASIR)
def kvasir_vqa_x1(root, folder="images"):
    """Complexities and classes, two questions about one image, whose address the table says; in seed 42's order."""
    rows = [
        ("img1", 1, "How many polyps?", "There is one polyp in the image.", ["polyp_count"]),
        ("img1", 2, "Are there instruments?", "No instruments are visible.", ["instrument_presence", "text"]),
        ("img2", 3, "What procedure is this?", "The procedure is a colonoscopy.", ["procedure_type"]),
    ]
    for number in (1, 2):
        picture(root / folder / f"img{number}.jpg", number)
    write_parquet(
        root / "data" / "test-00000-of-00001.parquet",
        [
            {
                "img_id": image,
                "image": f"https://hub.example/resolve/main/images/{image}.jpg",
                "complexity": complexity,
                "question": question,
                "answer": answer,
                "original": [{"q": question, "a": "another"}],
                "question_class": classes,
            }
            for image, complexity, question, answer, classes in rows
        ],
    )


@sample("kvasir_vqa_x1_transformed", **KVASIR)
def kvasir_vqa_x1_transformed(root):
    """The same table beside the pictures that the authors' script made."""
    kvasir_vqa_x1(root, folder="image_weak_augmented")


# 1 is right; 2 is C, and by the authors' rule the e of "The", which is right; in 3 there is no answer.
@sample(
    "kormedmcqa_v",
    cases=["doctor-2022-1-14", "doctor-2022-1-15", "doctor-2023-2-14"],
    replies={
        "doctor-2022-1-14": '```json\n{"정답": "C"}\n```',
        "doctor-2022-1-15": '{"answer": "The best is C"}',
        "doctor-2023-2-14": '{"정답": null}',
    },
    scores={"accuracy": 1 / 3, "accuracy_of_answered": 1 / 2, "unanswered": 1 / 3},
    authors={"accuracy": 2 / 3, "accuracy_of_answered": 1, "unanswered": 1 / 3},
    text=(
        "질문: 진단은?\n\nA. 폐렴\nB. 결핵\nC. 기흉\nD. 천식\nE. 폐암\n\n"
        "각 문제에서 가장 적절한 답을 하나만 고르시오.\n정답은 A, B, C, D, E 중 하나입니다.\n"
        "출력은 반드시 JSON 객체 1개만 반환하고, JSON 밖의 다른 텍스트(설명/마크다운 등)는 쓰지 마세요.\n"
        '출력 형식: {"정답": "A"}'
    ),
)
def kormedmcqa_v(root):
    """Answers from 1 to 5, images in base64 in a list, one of them a data URL; a shorter split that is not asked."""

    def row(year, period, number, question, options, answer, *images):
        shown = [
            {"pic_num": str(place), "modality": modality, "image_base64": image}
            for place, (modality, image) in enumerate(images, start=1)
        ]
        told = {"subject": "doctor", "year": year, "period": period, "q_number": number, "question": question}
        return {**told, "images": shown, **dict(zip("ABCDE", options, strict=True)), "answer": answer}

    full = [
        row(2022, 1, 14, "진단은?", ["폐렴", "결핵", "기흉", "천식", "폐암"], 3, ("xray", base64_png(1))),
        row(
            *(2022, 1, 15, "다음 검사는?", ["A형", "B형", "C형", "D형", "E형"], 5),
            *(("ecg", base64_png(2)), ("ct", f"data:image/png;base64,{base64_png(3)}")),
        ),
        row(2023, 2, 14, "치료는?", ["가", "나", "다", "라", "마"], 1, ("ct", base64_png(4))),
    ]
    write_parquet(root / "doctor" / "test_full-00000-of-00001.parquet", full)
    write_parquet(root / "doctor" / "test-00000-of-00001.parquet", full[:1])


def rows_of(*items):
    """Rows of image, question and answer."""
    return [
        {"image": stored_picture(place), "question": question, "answer": answer}
        for place, (question, answer) in enumerate(items)
    ]


# 1 and 2 right, but MedEvalKit's rule finds a "no" in "nodule" beside yes; 3 is the same but for "the"; 4 shares one
# word of two with what is right.
@sample(
    "vqa_rad",
    cases=["test-00000-1", "test-00000-2", "test-00000-3", "test-00000-4"],
    replies={
        "test-00000-1": "Yes, there is a nodule.",
        "test-00000-2": "No.",
        "test-00000-3": "left lung",
        "test-00000-4": "MRI scan",
    },
    scores={
        "accuracy_or_exact_match": 3 / 4,
        "accuracy": 2 / 2,
        "exact_match": 1 / 2,
        "token_f1": (1 + 1 / 2) / 2,
        "token_recall": (1 + 1 / 2) / 2,
        "unanswered": 0,
    },
    authors={"accuracy_or_exact_match": 2 / 4, "accuracy": 1 / 2, "exact_match": 1 / 2, "unanswered": 1 / 4},
    text="Is a nodule present?\nPlease output 'yes' or 'no'(no extra output).",
)
def vqa_rad(root):
    """Yes and no in either case, and answers in words."""
    write_parquet(
        root / "data" / "test-00000-of-00001-e5bc3d208bb4deeb.parquet",
        rows_of(
            ("Is a nodule present?", "Yes"),
            ("Is the heart enlarged?", "no"),
            ("Where is it?", "The left lung"),
            ("What is this?", "ct scan"),
        ),
    )
    write_parquet(root / "data" / "train-00000-of-00001-eb8844602202be60.parquet", rows_of(("Is it MRI?", "No")))


# 1 wrong, 2 the same text, 3 not answered. F1 is 1 and 0, and BLEU-1 too.
@sample(
    "path_vqa",
    cases=["test-00000-1", "test-00000-2", "test-00001-1"],
    replies={"test-00000-1": "no", "test-00000-2": "Smooth muscle."},
    scores={
        "accuracy_or_exact_match": 1 / 3,
        "accuracy": 0,
        "exact_match": 1 / 2,
        "token_f1": 1 / 2,
        "unanswered": 1 / 3,
    },
    authors={"accuracy_or_exact_match": 1 / 3, "exact_match": 1 / 2, "unanswered": 1 / 3},
    text="Is necrosis seen?\nPlease output 'yes' or 'no'(no extra output).",
)
def path_vqa(root):
    """Two files of one split; one of the training split."""
    data = root / "data"
    write_parquet(
        data / "test-00000-of-00002-a.parquet", rows_of(("Is necrosis seen?", "yes"), ("What is red?", "smooth muscle"))
    )
    write_parquet(data / "test-00001-of-00002-b.parquet", rows_of(("What is blue?", "nuclei")))
    write_parquet(data / "validation-00000-of-00001-c.parquet", rows_of(("Is it a cyst?", "no")))
    write_parquet(data / "train-00000-of-00001-d.parquet", rows_of(("Is it a polyp?", "yes")))


def mmmu_id(subject, number):
    """As MMMU numbers its questions."""
    return f"validation_{SUBJECTS[subject]}_{number}"


# Of the choices, Basic 1, Clinical 1 and Public 1 right. The open answer is one of two right ones as a number, though
# not the same text.
@sample(
    "mmmu_med",
    cases=[mmmu_id(0, 1), mmmu_id(0, 2), *(mmmu_id(subject, 1) for subject in range(1, 5))],
    replies={
        mmmu_id(0, 1): "(B)",
        mmmu_id(0, 2): "The ratio is 0.50",
        mmmu_id(1, 1): "Answer: (I)",
        mmmu_id(2, 1): "(B)",
        mmmu_id(3, 1): "(A)",
        mmmu_id(4, 1): "Answer: C",
    },
    scores={"accuracy_or_exact_match": 3 / 6, "accuracy": 3 / 5, "answer_contains_reference": 1, "unanswered": 0},
    authors={"accuracy": 3 / 5, "answer_contains_reference": 1, "unanswered": 0},
    text=(
        "Is it , or rather ?\n\n(A) Left\n(B) Crohn's\n(C) \n\n\nAnswer with the option's letter from the given "
        "choices directly."
    ),
    images=3,
)
def mmmu_med(root):
    """Options written out as a list, nine of them and two, one that is an image; an open one with two right answers."""
    columns = [f"image_{number}" for number in range(1, 8)]

    def row(subject, number, question, options, answer, images, kind="multiple-choice"):
        told = {"explanation": "", "topic_difficulty": "Easy", "subfield": "Anatomy", "img_type": "['CT']"}
        asked = {"question": question, "options": options, "answer": answer, "question_type": kind}
        return {"id": mmmu_id(subject, number), **asked, **told, **pictures(images, 10 * subject, columns)}

    nine = str([f"Finding {number}" for number in range(1, 10)])
    tables = [
        [
            row(0, 1, "Is it <image 2>, or rather <image 1>?", "['Left', \"Crohn's\", '<image 3>']", "B", 3),
            row(0, 2, "What is the ratio in <image 1>?", "[]", "['1/2', '0.5']", 7, "open"),
        ],
        [row(1, 1, "What is in <image 1>?", nine, "I", 1)],
        [row(2, 1, "Is it <image 1>?", "['Yes', 'No']", "A", 1)],
        [row(3, 1, "Which drug, see <image 1>?", "['Aspirin', 'Heparin', 'Insulin']", "C", 1)],
        [row(4, 1, "What is the risk of <image 1>?", "['Low', 'Mean', 'High', 'None']", "C", 1)],
    ]
    for subject, rows in zip(SUBJECTS, tables, strict=True):
        write_parquet(root / subject / "validation-00000-of-00001.parquet", rows)
        write_parquet(root / subject / "dev-00000-of-00001.parquet", [{**rows[0], "id": f"dev_{subject}_1"}])


# 1 right; 2 is C, but by lmms-eval's rule D for its first letter; 3 is not answered.
@sample(
    "livexiv",
    cases=["TQA-2024-09-21-00000-1", "VQA-2024-09-21-00000-1", "VQA-2024-09-21-00000-2"],
    replies={"TQA-2024-09-21-00000-1": "The answer is B", "VQA-2024-09-21-00000-1": "Definitely (C)"},
    scores={"accuracy": 2 / 3, "unanswered": 1 / 3},
    authors={"accuracy": 1 / 3, "unanswered": 1 / 3},
    text=(
        "Which row is best?\nA. First\nB. Second\nC. Third\nD. Fourth\n"
        "Answer with the option's letter from the given choices directly."
    ),
)
def livexiv(root):
    """A folder for each version."""

    def row(question, texts, gold, seed):
        options = {f"option_{letter}": text for letter, text in zip("abcd", texts, strict=True)}
        return {"image": stored_picture(seed), "question": question, **options, "gt": gold}

    write_parquet(
        root / "TQA-2024-09-21" / "test-00000-of-00001.parquet",
        [row("Which row is best?", ["First", "Second", "Third", "Fourth"], "B", 1)],
    )
    write_parquet(
        root / "VQA-2024-09-21" / "test-00000-of-00001.parquet",
        [
            row("Which curve falls?", ["Red", "Blue", "Green", "None"], "C", 2),
            row("Which bar is highest?", ["One", "Two", "Three", "Four"], "D", 3),
        ],
    )


# All of MMMU's triplet 1, two of triplet 2 and one of ScienceQA's triplet 3 right, of which one is not answered. Macro:
# (1/2 + 0) / 2 of the triplets and (5/6 + 1/3) / 2 of the questions.
@sample(
    "mmevalpro",
    cases=["0", "2", "4", "1", "3", "5", "6", "7", "8"],
    replies={"0": "A", "2": "B", "4": "B. No", "1": "A", "3": "C", "5": "A", "6": "B", "7": "A"},
    scores={
        "group_accuracy": 1 / 3,
        "macro_group_accuracy@source": 1 / 4,
        "accuracy": 6 / 9,
        "macro_accuracy@source": 7 / 12,
        "unanswered": 1 / 9,
    },
    text=("Question 0?\nA. Yes\nB. No\nC. Both\nAnswer with the option's letter from the given choices directly."),
)
def mmevalpro(root):
    """Triplets whose questions do not stand together; choices of three and of two."""
    golds = ["A", "B", "B", "C", "B", "A", "A", "A", "B"]
    triplets = [1, 2, 1, 2, 1, 2, 3, 3, 3]
    kinds = ["Origin", "Origin", "Perception", "Perception", "Knowledge", "Knowledge"]
    kinds += ["Origin", "Perception", "Knowledge"]
    write_parquet(
        root / "data" / "test-00000-of-00001.parquet",
        [
            {
                "index": index,
                "triplet_id": triplet,
                "question": f"Question {index}?",
                "choices": ["Yes", "No", "Both"][: 3 if triplet < 3 else 2],
                "answer": gold,
                "image": stored_picture(index),
                "source": "MMMU" if triplet < 3 else "ScienceQA",
                "question_category": "Biology",
                "eval_type": kind,
            }
            for index, (triplet, gold, kind) in enumerate(zip(triplets, golds, kinds, strict=True))
        ],
    )


def synthetic(dataset, index, question, options, label, *images):
    """A row as MedVLThinker and MedVLSynther write them."""
    return {
        "images": list(images),
        "question": question,
        "options": json.dumps(options),
        "answer_label": label,
        "answer": options[label],
        "reasoning": "A",
        "dataset_name": dataset,
        "dataset_index": index,
    }


# Both right; the second reading takes "B." after "answer is", which is neither a letter nor an option.
@sample(
    "medsynvqa",
    cases=["biomedica-7", "biomedica-9"],
    replies={"biomedica-7": "<think>A?</think><answer>C. Cyst</answer>", "biomedica-9": "The answer is B."},
    scores={"accuracy": 1, "unanswered": 0},
    authors={"accuracy": 1 / 2, "unanswered": 1 / 2},
    text=f"{THINK}Question: What is marked?\n\nOptions:\n\nA. Mass\n\nB. Air\n\nC. Cyst",
    images=2,
)
def medsynvqa(root):
    """Options in JSON, several images in a list."""
    write_parquet(
        root / "data" / "train-00000-of-00001.parquet",
        [
            synthetic(
                *("biomedica", 7, "What is marked?", {"A": "Mass", "B": "Air", "C": "Cyst"}, "C"),
                *(stored_picture(1), stored_picture(2)),
            ),
            synthetic("biomedica", 9, "Is it CT?", {"A": "Yes", "B": "No"}, "B", stored_picture(3)),
        ],
    )


# Of PMC-VQA one of two right, of SLAKE the one; the question with an image of 20 pixels is left out.
@sample(
    "medvlthinker_eval",
    cases=["pmc_vqa-0", "pmc_vqa-1", "slake-5"],
    replies={"pmc_vqa-0": "<answer>B</answer>", "pmc_vqa-1": "<answer>A</answer>", "slake-5": "<answer>no</answer>"},
    scores={"accuracy": 2 / 3, "macro_accuracy@dataset": 3 / 4, "unanswered": 0},
    authors={"accuracy": 2 / 3, "macro_accuracy@dataset": 3 / 4, "unanswered": 0},
    text=f"{THINK}Question: What is this?\n\nOptions:\n\nA. CT\n\nB. MRI\n\nC. PET\n\nD. SPECT",
)
def medvlthinker_eval(root):
    """Sources of several lengths, and an image that is too small."""
    small = {"bytes": png(9, 20), "path": None}
    write_parquet(
        root / "data" / "test-00000-of-00001.parquet",
        [
            synthetic(
                *("pmc_vqa", 0, "What is this?", {"A": "CT", "B": "MRI", "C": "PET", "D": "SPECT"}, "B"),
                stored_picture(1),
            ),
            synthetic("pmc_vqa", 1, "What is red?", {"A": "Bone", "B": "Skin", "C": "Fat"}, "C", stored_picture(2)),
            synthetic("slake", 5, "Is it CT?", {"A": "yes", "B": "no"}, "B", stored_picture(3)),
            synthetic("slake", 6, "Is it MRI?", {"A": "yes", "B": "no"}, "A", stored_picture(4), small),
        ],
    )


def winners(letters):
    """Dimension -> the better answer."""
    return dict(zip(DIMENSIONS, letters, strict=True))


# Five of six dimensions right, none said, all right: (5/6 + 0 + 1) / 3.
@sample(
    "med_rewardbench",
    cases=["brain-2", "brain-1", "lung-1"],
    replies={
        "brain-2": json.dumps({**winners("ABABAA"), "reason": "A is longer"}),
        "brain-1": "Assistant A is better.",
        "lung-1": f"```json\n{json.dumps(winners('BBBBBB'))}\n```",
    },
    scores={"grade_accuracy": 11 / 18, "unanswered": 1 / 3},
    text=(
        "You are an expert medical vision-language evaluator. Compare assistant A and assistant B for the same medical "
        "image understanding task.\nEvaluate the two answers on these six dimensions: accuracy, relevance, "
        "comprehensiveness, creativity, responsiveness, and overall.\nFor each dimension, choose only one winner: A or "
        'B.\nReturn valid JSON with exactly these keys:\n{"accuracy":"A|B","relevance":"A|B","comprehensiveness":'
        '"A|B","creativity":"A|B","responsiveness":"A|B","overall":"A|B","reason":"brief explanation"}\nHere is the '
        "input:\n[The Start of User Instruction]\nWhat is bright?\n[The End of User Instruction]\n[The Start of "
        "Assistant A's Answer]\nA tumour.\n[The End of Assistant A's Answer]\n[The Start of Assistant B's Answer]\n"
        "The {ventricle}.\n[The End of Assistant B's Answer]"
    ),
)
def med_rewardbench(root):
    """People's judgements beside the tables, in another order; an id that two organs use."""

    def pair(number, question, first, second, seed):
        said = {"question": question, "answer1_text": first, "answer2_text": second}
        return {"question_id": number, "image": stored_picture(seed), **said}

    folder = root / "pair_gt_all"
    write_parquet(
        folder / "parquet" / "brain.parquet",
        [
            pair(2, "What is bright?", "A tumour.", "The {ventricle}.", 1),
            pair(1, "What is dark?", "Fluid.", "Air.", 2),
        ],
    )
    write_parquet(folder / "parquet" / "lung.parquet", [pair(1, "Is it normal?", "Yes.", "No, it is not.", 3)])
    write_lines(
        folder / "brain.jsonl",
        [
            {"question_id": 1, "human_answer": winners("AAAAAB")},
            {"question_id": 2, "human_answer": winners("ABABAB")},
        ],
    )
    write_lines(folder / "lung.jsonl", [{"question_id": 1, "human_answer": winners("BBBBBB")}])
