"""Samples of the sets without images."""

from tests.helpers.catalogue import sample, write_json, write_lines, write_parquet

DIRECTLY = "Answer with the option's letter from the given choices directly."


# The first right, the second is answered A, and D is right.
@sample(
    "medqa",
    cases=["phrases_no_exclude_test-1", "phrases_no_exclude_test-2"],
    replies={"phrases_no_exclude_test-1": "C", "phrases_no_exclude_test-2": "A. Aspirin"},
    scores={"accuracy": 1 / 2, "unanswered": 0},
    images=0,
    text=f"\nQuestion: Which nerve?\nOptions: \nA. Ulnar\nB. Median\nC. Radial\nD. Axillary\n{DIRECTLY}",
)
def medqa(root):
    """Options as an object; the right letter beside the right text."""
    nerves = {"A": "Ulnar", "B": "Median", "C": "Radial", "D": "Axillary"}
    drugs = {"A": "Aspirin", "B": "Heparin", "C": "Insulin", "D": "Morphine"}
    for split in ("train", "test"):
        write_lines(
            root / f"phrases_no_exclude_{split}.jsonl",
            [
                {
                    "question": question,
                    "answer": options[letter],
                    "options": options,
                    "meta_info": step,
                    "answer_idx": letter,
                    "metamap_phrases": ["nerve"],
                }
                for question, options, letter, step in (
                    ("Which nerve?", nerves, "C", "step1"),
                    ("Which drug?", drugs, "D", "step2&3"),
                )
            ],
        )


# u1 right, u2 wrong: its answer is 0, which is A.
@sample(
    "medmcqa",
    cases=["u1", "u2"],
    replies={"u1": "D", "u2": "The answer is B."},
    scores={"accuracy": 1 / 2, "unanswered": 0},
    images=0,
    text=f"\nQuestion: Which vessel?\nOptions: \nA. Aorta\nB. Vena cava\nC. Azygos\nD. Iliac\n{DIRECTLY}",
)
def medmcqa(root):
    """A column for each option; the place of the right one, from 0; answers of test that are not public."""
    columns = ("id", "question", "opa", "opb", "opc", "opd", "cop", "choice_type", "exp", "subject_name", "topic_name")
    rows = [
        ("u1", "Which vessel?", "Aorta", "Vena cava", "Azygos", "Iliac", 3, "single", "x", "Anatomy", None),
        ("u2", "Which drug?", "Aspirin", "Heparin", "Insulin", "Morphine", 0, "multi", None, "Pharmacology", "Blood"),
    ]
    records = [dict(zip(columns, row, strict=True)) for row in rows]
    for split in ("train", "validation"):
        write_parquet(root / "data" / f"{split}-00000-of-00001.parquet", records)
    write_parquet(root / "data" / "test-00000-of-00001.parquet", [record | {"cop": -1} for record in records])


# 12 and 30 right, 21 is answered yes, and maybe is right. F1 of yes: 2 x 1 / (1 + 2) = 2/3; of no 1; of maybe 0.
@sample(
    "pubmedqa",
    cases=["12", "21", "30"],
    replies={"12": "A", "21": "yes", "30": "B. no"},
    scores={"accuracy": 2 / 3, "macro_f1": (2 / 3 + 1 + 0) / 3, "unanswered": 0},
    images=0,
    text=(
        f"We asked 100 people., It helped.\n\nQuestion: Does it help?\nOptions: \nA. yes\nB. no\nC. maybe\n{DIRECTLY}"
    ),
)
def pubmedqa(root):
    """Paragraphs below another name; numbers as ids, of which another file lists those of test."""

    def labelled(number, question, decision):
        context = {
            "contexts": ["We asked 100 people.", "It helped."],
            "labels": ["METHODS", "RESULTS"],
            "meshes": ["Humans"],
        }
        return {
            "pubid": number,
            "question": question,
            "context": context,
            "long_answer": "It does.",
            "final_decision": decision,
        }

    write_parquet(
        root / "pqa_labeled" / "train-00000-of-00001.parquet",
        [
            labelled(12, "Does it help?", "yes"),
            labelled(17, "Is it in training?", "no"),
            labelled(21, "Is it safe?", "maybe"),
            labelled(30, "Is it new?", "no"),
        ],
    )
    write_json(root / "test_ground_truth.json", {"12": "yes", "21": "maybe", "30": "no"})


SUBJECTS = (
    *("anatomy", "clinical_knowledge", "college_biology", "college_medicine", "medical_genetics"),
    "professional_medicine",
)


# Right: both of anatomy, and one of the other subjects, which have one each: 3 of 7, and (1 + 1) / 6 over subjects.
@sample(
    "mmlu_medical",
    cases=["anatomy-1", "anatomy-2", *(f"{subject}-1" for subject in SUBJECTS[1:])],
    replies={"anatomy-1": "A", "anatomy-2": "D", "college_biology-1": "C", "medical_genetics-1": "D"},
    scores={"accuracy": 3 / 7, "macro_accuracy@subject": 2 / 6, "unanswered": 3 / 7},
    images=0,
    text=f"\nQuestion: Which of anatomy?\nOptions: \nA. one\nB. two\nC. three\nD. four\n{DIRECTLY}",
)
def mmlu_medical(root):
    """A folder for each subject; the place of the right option, from 0."""
    for place, subject in enumerate(SUBJECTS):
        options = ["one", "two", "three", "four"]
        asked = [{"question": f"Which of {subject}?", "subject": subject, "choices": options, "answer": place % 3}]
        if subject == "anatomy":
            asked += [{"question": "And now?", "subject": subject, "choices": options, "answer": 3}]
        for split in ("dev", "test"):
            write_parquet(root / subject / f"{split}-00000-of-00001.parquet", asked)


# What answers to the four that follow are worth stands in tests/benchmarks/test_question_suites.py.
@sample(
    "medbullets_op4",
    cases=["train-00000-of-00001-1", "train-00000-of-00001-2"],
    replies={"train-00000-of-00001-1": "C", "train-00000-of-00001-2": "A"},
    scores={},
    images=0,
    text=f"\nQuestion: Which nerve?\nOptions: \nA.Ulnar\nB.Median\nC.Radial\nD.Axillary\n{DIRECTLY}",
)
def medbullets_op4(root):
    """Options as an object, and the right letter."""
    nerves = {"A": "Ulnar", "B": "Median", "C": "Radial", "D": "Axillary"}
    drugs = {"A": "Aspirin", "B": "Heparin", "C": "Insulin", "D": "Morphine"}
    asked = [("Which nerve?", nerves, "C"), ("Which drug?", drugs, "D")]
    records = [dict(zip(("question", "options", "answer_idx"), row, strict=True)) for row in asked]
    write_parquet(root / "data" / "train-00000-of-00001.parquet", records)


@sample(
    "medbullets_op5",
    cases=["train-00000-of-00001-1"],
    replies={"train-00000-of-00001-1": "E"},
    scores={},
    images=0,
    text=f"\nQuestion: Which vessel?\nOptions: \nA.Aorta\nB.Vena cava\nC.Azygos\nD.Iliac\nE.Renal\n{DIRECTLY}",
)
def medbullets_op5(root):
    """A column for each option, and the right letter."""
    vessels = {"opa": "Aorta", "opb": "Vena cava", "opc": "Azygos", "opd": "Iliac", "ope": "Renal"}
    record = {"question": "Which vessel?", **vessels, "answer_idx": "E"}
    write_parquet(root / "data" / "train-00000-of-00001.parquet", [record])


@sample(
    "supergpqa_medicine",
    cases=["train-00000-of-00001-1", "train-00000-of-00001-3"],
    replies={"train-00000-of-00001-1": "B", "train-00000-of-00001-3": "A"},
    scores={},
    images=0,
    text=f"\nQuestion: Which bone?\nOptions: \nA.Femur\nB.Tibia\nC.Fibula\n{DIRECTLY}",
)
def supergpqa_medicine(root):
    """Up to ten options in a list; a question of another discipline, which is left out."""
    letters = [f"choice {number}" for number in range(10)]
    asked = [
        ("Which bone?", ["Femur", "Tibia", "Fibula"], "B", "Medicine", "Basic Medicine", "easy"),
        ("Which law?", ["One", "Two"], "A", "Law", "Law", "hard"),
        ("Which of ten?", letters, "J", "Medicine", "Clinical Medicine", "hard"),
    ]
    columns = ("question", "options", "answer_letter", "discipline", "field", "difficulty")
    write_parquet(
        root / "data" / "train-00000-of-00001.parquet", [dict(zip(columns, row, strict=True)) for row in asked]
    )


@sample(
    "medqa_mcmle",
    cases=["train-00000-of-00001-1"],
    replies={"train-00000-of-00001-1": "C"},
    scores={},
    images=0,
    text="\n问题： 哪根神经？\n选项： \n尺神经\n正中神经\n桡神经\n腋神经\n请直接使用给定选项中的选项字母来回答该问题。",
)
def medqa_mcmle(root):
    """Options as an object, shown without their letters."""
    nerves = {"A": "尺神经", "B": "正中神经", "C": "桡神经", "D": "腋神经"}
    record = {"question": "哪根神经？", "options": nerves, "answer_idx": "C"}
    write_parquet(root / "data" / "train-00000-of-00001.parquet", [record])
