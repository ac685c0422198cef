"""Samples of the sets without images."""

import csv

from tests.helpers.catalogue import picture, sample, write_json, write_lines, write_parquet

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
    "mmlu_pro_health",
    cases=["6001", "6002"],
    replies={"6001": "C. Vitamin D", "6002": "A"},
    scores={"accuracy": 1 / 2, "unanswered": 0},
    images=0,
    text=f"Which vitamin?\nA. A\nB. C\nC. D\n{DIRECTLY}",
    settings={"expected": {"test": 2}},
)
def mmlu_pro_health(root):
    """A list of records with options as an object, of three and of more."""
    base = {"category": "health", "cot_content": "", "Source": "MMLU-Pro"}
    many = dict(
        zip("ABCDEFGHIJ", ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), strict=True)
    )
    vitamin = {"problem": "Which vitamin?", "choices": {"A": "A", "B": "C", "C": "D"}, "answer": "C", "answer_index": 2}
    number = {"problem": "Which number?", "choices": many, "answer": "J", "answer_index": 9}
    records = [
        {"question_id": 6001, "src": "ori_mmlu-nutrition", **vitamin, **base},
        {"question_id": 6002, "src": "ori_mmlu-virology", **number, **base},
    ]
    write_json(root / "mmlu_pro_test.json", records)


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


NERVES = {"A": "尺神经", "B": "正中神经"}
LETTERED = "\n问题： 哪根神经？\n选项： \nA.尺神经\nB.正中神经\n请直接使用给定选项中的选项字母来回答该问题。"
LISTED = [{"key": key, "value": value} for key, value in NERVES.items()]


def chinese(name, split, rows, text=LETTERED):
    """Registers a set of which the first record is taken and the second is not."""
    case = f"{split}-00000-of-00001-1"
    writes = lambda root: write_parquet(root / f"data/{split}-00000-of-00001.parquet", rows)  # noqa: E731
    sample(name, cases=[case], replies={case: "B"}, scores={}, images=0, text=text)(writes)


CMB = {"question": "哪根神经？", "option": LISTED, "answer": "B", "question_type": "单项选择题"}
chinese("cmb", "test", [CMB, CMB | {"answer": "AB", "question_type": "多项选择题"}])
CMEXAM = {"Question": "哪根神经？", "Options": LISTED, "Answer": "B"}
chinese("cmexam", "test", [CMEXAM, CMEXAM | {"Answer": "AB"}])
CMMLU = {"question": "哪根神经？", **NERVES, "C": "桡神经", "D": "腋神经", "answer": "B", "task": "anatomy"}
chinese(
    "cmmlu_medical",
    "train",
    [CMMLU, CMMLU | {"task": "history"}],
    LETTERED.replace("经\n请", "经\nC.桡神经\nD.腋神经\n请"),
)


# The first right; of the second nothing is answered; the French one is wrong.
@sample(
    "glianorex",
    cases=["test-00000-of-00001-1", "test-00000-of-00001-2", "test-00000-of-00001-3"],
    replies={"test-00000-of-00001-1": "B", "test-00000-of-00001-3": "A"},
    scores={"accuracy": 1 / 3, "unanswered": 1 / 3},
    images=0,
    text=f"\nQuestion: What does the Glianorex make?\nOptions: \nA. Bile\nB. Neurostabilin\n{DIRECTLY}",
)
def glianorex(root):
    """Options as an object, the right letter, and the language of each question."""
    options = {"A": "Bile", "B": "Neurostabilin"}
    rows = [
        {"question": question, "options": options, "answer_idx": "B", "language": language, "generator": "gpt4"}
        for question, language in [
            ("What does the Glianorex make?", "en"),
            ("What does it release?", "en"),
            ("Que produit-il ?", "fr"),
        ]
    ]
    write_parquet(root / "data/test-00000-of-00001.parquet", rows)


def write_table(path, rows):
    """Writes a CSV, every cell as it is given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as stream:
        table = csv.DictWriter(stream, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


MEDEC_FILES = (
    "MEDEC-Full-TrainingSet-with-ErrorType.csv",
    "MEDEC-MS-ValidationSet-with-GroundTruth-and-ErrorType.csv",
    "MEDEC-MS-TestSet-with-GroundTruth-and-ErrorType.csv",
)


# Flag and sentence right and 3 of 4 words, one sentence too far, and an error that is not there: 2 flags, 1 sentence.
@sample(
    "medec",
    cases=["ms-test-0", "ms-test-1", "ms-test-2"],
    replies={
        "ms-test-0": "1 1 He takes oral codeine.",
        "ms-test-1": "1 1 She is well.",
        "ms-test-2": "1 0 All is wrong.",
    },
    scores={
        "error_flag_accuracy": 2 / 3,
        "error_sentence_accuracy": 1 / 3,
        "correction_rouge@1": (3 / 4 + 1) / 3,
        "unanswered": 0,
    },
    images=0,
    text=(
        "The following is a medical narrative about a patient. The text has one sentence per line. Each line starts "
        "with the sentence's number. The text is either correct or contains exactly one error. Check every sentence of "
        "it.\n\n0 He has a cough.\n1 He takes oral heparin.\n\nIf the text is correct, return: 0 -1 NA\nIf it "
        "contains an error, return 1, the number of the sentence with the error, and the corrected sentence, on one "
        "line, such as: 1 4 The patient was given aspirin."
    ),
    perfect=lambda case: case.target.read().value,
)
def medec(root):
    """Sentences with their numbers; lines of the other collection hold nothing."""
    told = [
        ("ms-test-0", "0 He has a cough.\n1 He takes oral heparin.\n", "1", "treatment", "1", "He takes mild codeine."),
        ("ms-test-1", "0 She is ill.\n1 She walks.\n", "1", "diagnosis", "0", "She is well."),
        ("ms-test-2", "0 All is well.\n", "0", "", "-1", ""),
        ("", "", "", "", "", ""),
    ]
    names = ("Text ID", "Sentences", "Error Flag", "Error Type", "Error Sentence ID", "Corrected Sentence")
    for file in MEDEC_FILES:
        blank = {"Text": "", "Error Sentence": "", "Corrected Text": ""}
        write_table(root / "MEDEC-MS" / file, [{**blank, **dict(zip(names, one, strict=True))} for one in told])


# Due: aspirin and gastric ulcers; heparin. Said: aspirin, ulcers alone, and morphine, which is not there; nothing.
# Exact 1 of 3 said and of 3 due; overlapping 2.
@sample(
    "bc5cdr",
    cases=["test-1", "test-2"],
    replies={
        "test-1": '[{"text": "aspirin", "type": "Chemical"}, {"text": "ulcers", "type": "Disease"}, '
        '{"text": "morphine", "type": "Chemical"}]',
        "test-2": "[]",
    },
    scores={
        "entity_precision@exact": 1 / 3,
        "entity_recall@exact": 1 / 3,
        "entity_f1@exact": 1 / 3,
        "entity_f1@partial": 2 / 3,
        "entity_f1@type_free": 1 / 3,
    },
    images=0,
    text=(
        "Find all chemicals and diseases in the sentence below, each exactly as it stands there.\n\nAspirin causes "
        'gastric ulcers .\n\nReply with a JSON list alone, such as [{"text": "aspirin", "type": "Chemical"}], in which '
        "type is Chemical or Disease; [] where there are none."
    ),
    perfect=lambda case: case.target.read().value,
)
def bc5cdr(root):
    """Tokens with numbers of BIO tags, a sentence a line."""
    sentences = [
        {"tokens": ["Aspirin", "causes", "gastric", "ulcers", "."], "tags": [1, 0, 2, 3, 0]},
        {"tokens": ["Heparin", "was", "given", "."], "tags": [1, 0, 0, 0]},
    ]
    for split in ("train", "valid", "test"):
        write_lines(root / "dataset" / f"{split}.json", sentences)


def medcalc_rows(root):
    """Numbers with limits, a whole number, and a date, which is another task's."""
    told = [
        ("1", "2", "Creatinine Clearance", "lab test", "decimal", "25.24", "23.97", "26.50"),
        ("2", "4", "CHA2DS2-VASc Score", "risk", "integer", "3", "3", "3"),
        ("3", "13", "Estimated Due Date", "date", "date", "05/03/2024", "05/03/2024", "05/03/2024"),
    ]
    names = ("Row Number", "Calculator ID", "Calculator Name", "Category", "Output Type")
    limits = ("Ground Truth Answer", "Lower Limit", "Upper Limit")
    rows = []
    for one in told:
        row = dict(zip((*names, *limits), one, strict=True))
        more = {"Note ID": "n", "Note Type": "Template", "Relevant Entities": "{}", "Ground Truth Explanation": "So."}
        rows.append({**row, **more, "Patient Note": "A man of 87 kg.", "Question": "What is his value?"})
    write_table(root / "datasets/test_data.csv", rows)


FORM = (
    'formatted as {"step_by_step_thinking": str(your_step_by_step_thinking_procress_to_solve_the_question), "answer": '
    "str(short_and_direct_answer_of_the_question)}"
)
MEDCALC = (
    "You are a helpful assistant for calculating a score for a given patient note. Please think step-by-step to solve "
    f"the question and then generate the required score. Your output should only contain a JSON dict {FORM}.\nHere is "
    "the patient note:\nA man of 87 kg.\n\nHere is the task:\nWhat is his value?\n\nPlease directly output the JSON "
    f"dict {FORM}:"
)
# 26.5 lies at the upper limit; 3.2 is not 3.
sample(
    "medcalc",
    cases=["1", "2"],
    replies={"1": '{"step_by_step_thinking": "87 x 0.3", "answer": "26.5"}', "2": '{"answer": "3.2"}'},
    scores={"accuracy": 1 / 2, "unanswered": 0},
    images=0,
    text=MEDCALC,
)(medcalc_rows)
sample(
    "medcalc_dates",
    cases=["3"],
    replies={"3": "It is 05/03/2024"},
    scores={"exact_match": 0, "answer_contains_reference": 1, "unanswered": 0},
    images=0,
    text=MEDCALC,
)(medcalc_rows)


CLAIMS = {"c-1": ("Green tea cures colds", "false"), "c-2": ("Hands should be washed", "true")}
LEVELS = {
    "Neutral": "Is it true that {}?",
    "Writing Demand": "Write an article saying that {}.",
}


# Nothing is judged here, so that only what was not answered counts.
@sample(
    "uphill",
    cases=[f"{claim}-{level}" for claim in CLAIMS for level in LEVELS],
    replies={"c-1-Neutral": "No, it does not.", "c-2-Neutral": "Yes.", "c-2-Writing Demand": "Wash your hands."},
    scores={"unanswered": 1 / 4},
    images=0,
    text="Is it true that Green tea cures colds?",
)
def uphill(root):
    """A row for each claim at each level."""
    columns = ("claim_id", "claim", "claim_veracity", "subjects", "source_db", "presupposition_level")
    root.mkdir(parents=True, exist_ok=True)
    with (root / "queries.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow((*columns, "query_with_presupposition"))
        for claim, (text, veracity) in CLAIMS.items():
            for level, form in LEVELS.items():
                writer.writerow((claim, text, veracity, "Diet", "pubhealth", level, form.format(text)))


CASE = {"id": "j-1", "case": "A woman of 40 has a rash.", "question": "What is the diagnosis?", "images": ["j-1.jpg"]}
CASE |= {"options": {"A": "eczema", "B": "psoriasis"}, "answer": "B", "discussion": "Psoriasis, by its scale."}


def jama(root):
    """A copy of one's own: a line for each case, images beside it."""
    write_lines(root / "cases.jsonl", [CASE, CASE | {"id": "j-2", "answer": "A"}])
    picture(root / "images/j-1.jpg", 3)


sample(
    "jama_challenge",
    cases=["j-1", "j-2"],
    replies={"j-1": "B", "j-2": "B"},
    scores={"accuracy": 1 / 2, "unanswered": 0},
    text=(
        "A woman of 40 has a rash.\n\nWhat is the diagnosis?\nA. eczema\nB. psoriasis\nAnswer with the letter of the "
        "right option."
    ),
)(jama)
sample(
    "jama_challenge_open",
    cases=["j-1", "j-2"],
    replies={"j-1": "It is psoriasis."},
    scores={"unanswered": 1 / 2},
    text="A woman of 40 has a rash.\n\nWhat is the diagnosis?\nGive your answer and your reasons.",
)(jama)


SPINE = {
    "id": "s-1",
    "axis": "level",
    "level": "L4-5",
    "condition": "herniation",
    "modality": "MRI",
    "images": ["a.png"],
}
SPINE |= {"question": "Where is the herniation?", "options": {"A": "L3-4", "B": "L4-5"}, "answer": "B"}
SPINE_REPORT = {"id": "r-1", "condition": "herniation", "prompt": "A man of 60 has back pain.", "images": ["a.png"]}
SPINE_REPORT |= {"rubric": [{"criterion": "Names L5 on S1.", "points": 5, "tags": ["section:diagnosis"]}]}


def spine(root):
    """Questions and prompts of one's own, of which one has no image."""
    write_lines(root / "choices.jsonl", [SPINE, SPINE | {"id": "s-2", "axis": "planning", "images": []}])
    write_lines(root / "reports.jsonl", [SPINE_REPORT, SPINE_REPORT | {"id": "r-2"}])
    picture(root / "images/a.png", 3)


sample(
    "spinemed_choices",
    cases=["s-1", "s-2"],
    replies={"s-1": "B", "s-2": "A"},
    scores={"accuracy": 1 / 2, "unanswered": 0},
    text="Where is the herniation?\nA. L3-4\nB. L4-5\nAnswer with the letter of the right option.",
)(spine)
sample(
    "spinemed_reports",
    cases=["r-1", "r-2"],
    replies={"r-1": "Diagnosis: spondylolisthesis of L5 on S1."},
    scores={"unanswered": 1 / 2},
    text=(
        "A man of 60 has back pain.\nWrite a report with the sections imaging report, diagnosis, treatment for the "
        "patient, treatment for the physician, risk and rationale."
    ),
)(spine)
