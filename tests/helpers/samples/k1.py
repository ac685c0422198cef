"""Samples of the benchmarks whose questions stand in text tables with images in base64, and of MME-SCI."""

import csv

from tests.helpers.catalogue import base64_png, sample, write_parquet


def write_table(path, columns, *rows):
    """Writes a TSV as pandas does; None is an empty cell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, delimiter="\t", lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


# 7 right; 8 wrong; of 9, VLMEvalKit's rule takes no letter in lower case.
@sample(
    "gmai_mmbench",
    cases=["7", "8", "9"],
    replies={"7": "E", "8": "The answer is A", "9": "c"},
    scores={"accuracy": 2 / 3, "accuracy_matched": 2 / 3, "unanswered": 0},
    authors={"accuracy": 1 / 3, "accuracy_matched": 1 / 3, "unanswered": 1 / 3},
    text=(
        'Question: Which "organ"\tis shown?\nOptions:\nA. Liver\nB. Spleen\nC. None\nE. Heart\n'
        "Please select the correct answer from the options above. \n"
    ),
)
def gmai_mmbench(root):
    """Options that are missing in the middle and at the end, one that says `None`, group columns with blanks."""
    columns = [
        *("index", "question", "A", "B", "C", "D", "E", "answer", "image", "category"),
        *("clinical vqa task", "department", "perceptual granularity", "split"),
    ]
    write_table(
        root / "GMAI_mm_bench_VAL.tsv",
        columns,
        [
            *(7, 'Which "organ"\tis shown?', "Liver", "Spleen", "None", None, "Heart", "E", base64_png(7), "organs"),
            *("Organ Recognition", "Cardiovascular Surgery", "Image", "val"),
        ],
        [
            *(8, "Is it benign?", "Yes", "No", None, None, None, "B", base64_png(8), "skin"),
            *("Disease Diagnosis", "Dermatology", "Box", "val"),
        ],
        [
            *(9, "What is marked?", "Cyst", "Polyp", "Ulcer", "Vessel", "Nerve", "C", base64_png(9), "gut"),
            *("Disease Diagnosis", "Endocrinology", "Mask", "val"),
        ],
    )
    write_table(root / "GMAI_mm_bench_TEST_part_1.tsv", columns[:7], [1, "Hidden?", "Yes", "No", None, None, None])


# 21 and 23 right, 22 wrong; 24 is answered with two letters, which is none.
@sample(
    "endobench",
    cases=["21", "22", "23", "24"],
    replies={"21": "F. Normal mucosa", "22": "A", "23": "Answer: D", "24": "A or B"},
    scores={"accuracy": 2 / 4, "accuracy_matched": 2 / 4, "unanswered": 1 / 4},
    authors={"accuracy": 2 / 4, "unanswered": 1 / 4},
    text=(
        "Question: What is in the green box?\nOptions:\nA. Polyp\nB. Ulcer\nC. Bleeding\nD. Stool\nE. Instrument\n"
        "F. Normal mucosa\nPlease select the correct answer from the options above. \n"
    ),
)
def endobench(root):
    """Six options, four and two; `gt` is the text of the answer, and names another letter's column."""
    write_table(
        root / "EndoBench.tsv",
        [
            *("index", "image", "image_path", "question", "category", "task", "subtask", "scene", "answer"),
            *("dataset", "gt", "A", "B", "C", "D", "E", "F"),
        ],
        [
            *(21, base64_png(1), "images/1.jpg", "What is in the green box?", "Lesion", "ROI Selection", "Box"),
            *("Colonoscopy", "F", "Kvasir", "Normal mucosa"),
            *("Polyp", "Ulcer", "Bleeding", "Stool", "Instrument", "Normal mucosa"),
        ],
        [
            *(22, base64_png(2), "images/2.jpg", "Is an instrument seen?", "Surgery", "Instrument", "Presence"),
            *("Surgical endoscopy", "B", "Cholec80", "No", "Yes", "No", None, None, None, None),
        ],
        [
            *(23, base64_png(3), "images/3.jpg", "How many polyps are there?", "Lesion", "Counting", "Polyps"),
            *("Colonoscopy", "D", "CVC", "4", "1", "2", "3", "4", None, None),
        ],
        [
            *(24, base64_png(4), "images/4.jpg", "Which landmark is it?", "Landmark", "Landmarks", "Upper"),
            *("Gastroscopy", "A", "GastroVision", "Pylorus", "Pylorus", "Cardia", "Z-line", None, None, None),
        ],
    )


# 1 right and 3 wrong; 2 is right by its option's text, in which the authors' rule finds no letter.
@sample(
    "medq_bench",
    cases=["1", "2", "3"],
    replies={"1": "C. Ringing", "2": "No", "3": "B"},
    scores={"accuracy": 2 / 3, "unanswered": 0},
    authors={"accuracy": 1 / 3, "unanswered": 1 / 3},
    text=(
        "Please carefully observe this medical image and answer the following question:\n\n"
        "What artifact is seen?\n\nOptions:\nA. Blur\nB. Noise\nC. Ringing\nD. Motion\n\n"
        "Answer directly only with the option **letter** from the given choices."
    ),
)
def medq_bench(root):
    """Answers that are whole numbers from 0, and letters."""
    columns = ["index", "question", "A", "B", "C", "D", "answer", "modality", "image"]
    write_table(
        root / "medqbench_QA_test.tsv",
        columns,
        [1, "What artifact is seen?", "Blur", "Noise", "Ringing", "Motion", 2, "MRI", base64_png(1)],
        [2, "Is the image of good quality?", "Yes", "No", None, None, "B", "CT", base64_png(2)],
        [3, "How severe is the noise?", "Mild", "Moderate", "Severe", None, 0, "CT", base64_png(3)],
    )
    write_table(
        root / "medqbench_QA_dev.tsv", columns, [1, "Is it CT?", "Yes", "No", None, None, 0, "CT", base64_png(4)]
    )


# One of two is answered.
@sample(
    "medq_bench_description",
    cases=["1", "2"],
    replies={"1": "Strong noise hides the vessels. Overall, the quality of this image is reject."},
    scores={"unanswered": 1 / 2},
    text=(
        "As a medical image quality assessment expert, provide a concise description focusing on low-level appearance "
        'of the image in details. Conclude with "Overall, the quality of this image is [good/usable/reject]". '
        "Please provide a comprehensive but concise assessment in 3-5 sentences."
    ),
)
def medq_bench_description(root):
    """No column of questions."""
    for split in ("dev", "test"):
        write_table(
            root / f"medqbench_description_{split}.tsv",
            ["index", "image", "description", "modality"],
            [1, base64_png(1), "Noise is strong. Overall, the quality of this image is reject.", "CT"],
            [2, base64_png(2), "Edges are sharp. Overall, the quality of this image is good.", "MRI"],
        )


# One of two is answered.
@sample(
    "medq_bench_pairs",
    cases=["1", "2"],
    replies={"2": "The second image is sharper. The second image has higher quality."},
    scores={"unanswered": 1 / 2},
    images=2,
    text=(
        "As a medical image quality assessment expert, provide a concise description comparing two images focusing on "
        "low-level appearance. Conclude with which image has higher quality. "
        "Please provide a comprehensive but concise assessment in 3-5 sentences."
    ),
)
def medq_bench_pairs(root):
    """Two images in columns of their own."""
    for split in ("dev", "test"):
        write_table(
            root / f"medqbench_paired_description_{split}.tsv",
            ["index", "image_a", "image_b", "description"],
            [1, base64_png(1), base64_png(2), "The first image is blurred. The second image has higher quality."],
            [2, base64_png(3), base64_png(4), "The second image is noisy. The first image has higher quality."],
        )


# Three of four right: the last is answered with B, and C is right. The authors' rule finds no letter in "Both lungs".
@sample(
    "medq_deg",
    cases=["simulate-1", "simulate-2", "good-1", "good-2"],
    replies={"simulate-1": "E", "simulate-2": "Both lungs", "good-1": "E.", "good-2": "B"},
    scores={"accuracy": 3 / 4, "unanswered": 0},
    authors={"accuracy": 2 / 4, "unanswered": 1 / 4},
    text=(
        "Which view is it?\n\nA. Axial\nB. Coronal\nC. Sagittal\nD. Oblique\nE. Lateral\n\n"
        "Answer with the option letter from the given choices directly."
    ),
)
def medq_deg(root):
    """Two files that both number from 1; the clean one has no columns of degradation."""
    common = ["index", "question", "A", "B", "C", "D", "E", "answer", "modality", "source", "image"]
    view = ["Which view is it?", "Axial", "Coronal", "Sagittal", "Oblique", "Lateral", "E", "X-ray", "MIMIC"]
    side = ["Which side is it?", "Left", "Both lungs", "Right", None, None]
    for split in ("dev", "test"):
        write_table(
            root / f"MedQ-Robust-simulate-{split}.tsv",
            [*common, "degradation_type", "degradation_severity"],
            [1, *view, base64_png(1), "Gaussian noise", "L1"],
            [2, *side, "B", "CT", "LIDC", base64_png(2), "Motion blur", "L2"],
        )
        write_table(
            root / f"MedQ-Robust-good-{split}.tsv",
            common,
            [1, *view, base64_png(3)],
            [2, *side, "C", "CT", "LIDC", base64_png(4)],
        )


# Right: brazil-1 in both languages, brazil-2 in English, japan-1 in English: 4 of 6; nothing is said to japan-1, local.
# Letters in English and local: brazil-1 D D, brazil-2 A B; japan-1 is not answered twice. Of these two pairs, po = 1/2
# and pe = (D) 1/2 1/2 + (A) 1/2 0 + (B) 0 1/2 = 1/4, so kappa = (1/2 - 1/4) / (3/4) = 1/3.
# VLMEvalKit's rule takes the Portuguese article for an option: two letters are none. Of the pair that is left, po = 0
# and pe = 0.
@sample(
    "worldmedqa_v",
    cases=[f"{name}-{language}" for name in ("brazil-1", "brazil-2", "japan-1") for language in ("english", "local")],
    replies={
        "brazil-1-english": "D",
        "brazil-1-local": "A resposta correta é: D",
        "brazil-2-english": "A. Aorta",
        "brazil-2-local": "B",
        "japan-1-english": "C",
    },
    scores={"accuracy": 4 / 6, "kappa@language": 1 / 3, "unanswered": 1 / 6},
    authors={"accuracy": 3 / 6, "kappa@language": 0, "unanswered": 2 / 6},
    text=(
        "Question: Which nerve?\nOptions:\nA. Ulnar\nB. Median\nC. Radial\nD. Axillary\n"
        "Please select the correct answer from the options above. \n"
    ),
)
def worldmedqa_v(root):
    """The right letter is in `correct_option`, not in `answer`; rows of train; indices that recur in each file."""
    columns = ["index", "question", "A", "B", "C", "D", "answer", "correct_option", "split", "image"]
    english = [
        [1, "Which nerve?", "Ulnar", "Median", "Radial", "Axillary", None, "D", "test", base64_png(1)],
        [2, "Which vessel?", "Aorta", "Vena cava", "Azygos", "Iliac", "Vena cava", "A", "test", base64_png(2)],
        [3, "Which lobe?", "Upper", "Middle", "Lower", "None", None, "C", "train", base64_png(3)],
    ]
    local = [
        [1, "Qual nervo?", "Ulnar", "Mediano", "Radial", "Axilar", None, "D", "test", base64_png(1)],
        [2, "Qual vaso?", "Aorta", "Veia cava", "Ázigo", "Ilíaca", None, "A", "test", base64_png(2)],
    ]
    write_table(root / "brazil_english_processed.tsv", columns, *english)
    write_table(root / "brazil_local_processed.tsv", columns, *local)
    write_table(
        root / "japan_english_processed.tsv",
        columns,
        [1, "Which organ?", "Liver", "Spleen", "Kidney", "Lung", "B", "C", "test", base64_png(4)],
    )
    write_table(
        root / "japan_local_processed.tsv",
        columns,
        [1, "どの臓器か。", "肝臓", "脾臓", "腎臓", "肺", "B", "C", "test", base64_png(4)],
    )


# Question 241 is right in both rotations; 242 in two of three; 243 in both: 2 of 3 sets and 6 of 7 rows.
# VLMEvalKit's rule takes no "b" in lower case, which costs 241: 1 of 3 sets and 5 of 7 rows.
@sample(
    "mmbench",
    cases=["241", "1000241", "242", "1000242", "2000242", "243", "1000243"],
    replies={
        "241": "A",
        "1000241": "b",
        "242": "C",
        "1000242": "B",
        "2000242": "C",
        "243": "B",
        "1000243": "The answer is A",
    },
    scores={"group_accuracy": 2 / 3, "accuracy": 6 / 7, "unanswered": 0},
    authors={"group_accuracy": 1 / 3, "accuracy": 5 / 7, "unanswered": 1 / 7},
    text=(
        "Hint: Look at the pair.\nQuestion: Do they attract?\nOptions:\nA. yes\nB. no\n"
        "Please select the correct answer from the options above. \n"
    ),
)
def mmbench(root):
    """Rotations are rows, with millions added to the index; their image, and that of 243, is another row's index."""
    columns = ["index", "question", "hint", "A", "B", "C", "D", "answer", "category", "image", "l2-category", "split"]
    logic, fine, pair = "logic_reasoning", "finegrained_perception (cross-instance)", "Look at the pair."
    write_table(
        root / "MMBench_DEV_EN.tsv",
        columns,
        [241, "Do they attract?", pair, "yes", "no", None, None, "A", "physical", base64_png(1), logic, "dev"],
        [242, "Which is red?", None, "cat", "dog", "hat", None, "C", "attribute", base64_png(2), fine, "dev"],
        [243, "Who wins?", None, "one", "both", None, None, "B", "physical", 242, logic, "dev"],
        [1000241, "Do they attract?", pair, "no", "yes", None, None, "B", "physical", 241, logic, "dev"],
        [1000242, "Which is red?", None, "dog", "hat", "cat", None, "B", "attribute", 242, fine, "dev"],
        [2000242, "Which is red?", None, "hat", "cat", "dog", None, "A", "attribute", 242, fine, "dev"],
        [1000243, "Who wins?", None, "both", "one", None, None, "A", "physical", 242, logic, "dev"],
    )


# Question 5 is right in both rotations, 10 in the first alone: 1 of 2 sets and 3 of 4 rows.
@sample(
    "ccbench",
    cases=["5", "1000005", "10", "1000010"],
    replies={"5": "B", "1000005": "A", "10": "答案是 A", "1000010": "A"},
    scores={"group_accuracy": 1 / 2, "accuracy": 3 / 4, "unanswered": 0},
    authors={"group_accuracy": 1 / 2, "accuracy": 3 / 4},
    text=(
        "Question: 图中是什么食物？\nOptions:\nA. 饺子\nB. 月饼\n"
        "Please select the correct answer from the options above. \n"
    ),
)
def ccbench(root):
    """No hints; an index whose rotation ends in zeros."""
    write_table(
        root / "CCBench.tsv",
        ["index", "question", "A", "B", "C", "D", "answer", "category", "image"],
        [5, "图中是什么食物？", "饺子", "月饼", None, None, "B", "food_clothes", base64_png(1)],
        [1000005, "图中是什么食物？", "月饼", "饺子", None, None, "A", "food_clothes", 5],
        [10, "这是哪位人物？", "孔子", "老子", None, None, "A", "historical_figure", base64_png(2)],
        [1000010, "这是哪位人物？", "老子", "孔子", None, None, "B", "historical_figure", 10],
    )


LANGUAGES = ("zh", "en", "fr", "es", "ja")


# The same text as the answer: 1-zh, 1-en, 2-en and 2-ja, 4 of 10; the others say nothing, or behind no mark that is
# known. The authors' rule takes all that lies between two boxes, which costs 2-ja; where it knows no mark, as that of
# French, the whole reply must be an option.
@sample(
    "mme_sci",
    cases=[f"{number}-{language}" for language in LANGUAGES for number in (1, 2)],
    replies={
        "1-zh": "B",
        "2-zh": "C",
        "1-en": "The pulley is fixed. Final Answer: B",
        "2-en": "4",
        "1-fr": "left, Réponse finale: B",
        "2-ja": "\\boxed{2} + \\boxed{2}, so \\boxed{4}",
    },
    scores={"accuracy_or_exact_match": 4 / 10, "unanswered": 4 / 10},
    authors={"accuracy_or_exact_match": 3 / 10, "unanswered": 5 / 10},
    images=2,
    text="zh:  and : which is heavier?\nA. left\nB. right\n请在 '最终答案: ' 之后简洁地写出你给出的答案。",
)
def mme_sci(root):
    """Five languages with the same ids; images at their marks, or none; options, or none."""
    for language in LANGUAGES:
        write_parquet(
            root / f"mmesci_1019_{language}.parquet",
            [
                {
                    "id": 1,
                    "course": "Physics",
                    "knowledge-source": "grade 10",
                    "question": f"{language}: <image_1> and <image_2>: which is heavier?",
                    "options": ["left", "right"],
                    "answer": "B",
                    "image_1": base64_png(1),
                    "image_2": base64_png(2),
                    "image_3": None,
                    "image_4": None,
                    "image_5": None,
                },
                {
                    "id": 2,
                    "course": "Mathematics",
                    "knowledge-source": "grade 11",
                    "question": f"{language}: 2 + 2?",
                    "options": [],
                    "answer": "4",
                    "image_1": None,
                    "image_2": None,
                    "image_3": None,
                    "image_4": None,
                    "image_5": None,
                },
            ],
        )
