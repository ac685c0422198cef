"""Samples of the benchmarks whose questions stand in JSON or CSV files beside their images: the second half of them."""

import csv
import math
import zipfile

from tests.helpers.catalogue import picture, png, reports, sample, write_json, write_lines

# Right: 11984, 11985, and 12002; 11986 says a word more, which token F1 gives 2 x (1 x 1/2) / (1 + 1/2) = 2/3.
# 12001 is answered No and Yes is right. Open ones: 11985 and 11986, and 12002.
# By the published rules "The answer is no" is not the text "no".
SLAKE_REPLIES = {
    "11984": "The answer is no",
    "11985": "Heart.",
    "11986": "left lung",
    "12001": "否",
    "12002": "磁共振",
}


def slake(root):
    """Two languages in a file; closed questions that yes and no do not answer; images in a zip file."""
    common = {"img_id": 1, "img_name": "xmlab1/source.jpg", "location": "Chest", "modality": "CT", "base_type": "vqa"}
    other = common | {"img_id": 2, "img_name": "xmlab2/source.jpg", "location": "Head", "modality": "MRI"}
    records = [
        *(
            {**common, "qid": qid, "question": question, "answer": answer, "q_lang": "en", "answer_type": form}
            for qid, question, answer, form in (
                (11984, "Is the liver shown?", "No", "CLOSED"),
                (11985, "Which organ is it?", "Heart", "OPEN"),
                (11986, "Left or right?", "Left", "CLOSED"),
            )
        ),
        *(
            {**other, "qid": qid, "question": question, "answer": answer, "q_lang": "zh", "answer_type": form}
            for qid, question, answer, form in (
                (12001, "图中有异常吗？", "是", "CLOSED"),
                (12002, "这是什么模态？", "磁共振", "OPEN"),
            )
        ),
    ]
    for place, record in enumerate(records):
        record |= {
            "content_type": ["Organ", "Organ", "Position", "Abnormality", "Modality"][place],
            "triple": ["vhead", "_", "_"],
        }
    write_json(root / "test.json", records)
    write_json(root / "train.json", [records[1] | {"qid": 0}])
    write_json(root / "validate.json", [records[0] | {"qid": 9835}])
    with zipfile.ZipFile(root / "imgs.zip", "w") as archive:
        for number in (1, 2):
            archive.writestr(f"imgs/xmlab{number}/source.jpg", png(number))


SLAKE_CASES = list(SLAKE_REPLIES)

sample(
    "slake",
    cases=SLAKE_CASES,
    replies=SLAKE_REPLIES,
    scores={"accuracy_or_exact_match": 3 / 5, "accuracy": 1 / 2, "exact_match": 2 / 3, "token_f1": (1 + 2 / 3 + 1) / 3},
    authors={"accuracy_or_exact_match": 2 / 5, "accuracy": 0, "exact_match": 2 / 3},
    text="Is the liver shown?\nAnswer the question using a single word or phrase.",
)(slake)

sample(
    "slake_lmms_eval",
    cases=SLAKE_CASES,
    replies=SLAKE_REPLIES,
    scores={"accuracy_or_exact_match": 3 / 5, "accuracy": 1 / 2, "exact_match": 2 / 3},
    authors={"accuracy_or_exact_match": 2 / 5, "accuracy": 0, "exact_match": 2 / 3},
    text="Is the liver shown?\nAnswer the question using a single word or phrase.",
)(slake)


def write_csv(path, columns, *rows):
    """Writes a CSV table; None is an empty cell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(rows)


# 7 and 9 right; 8 is answered A, and C is right. The authors' rule takes the shortest option that holds the character
# "C" for the answer to 7, which is "D:Cold".
@sample(
    "pmc_vqa",
    cases=["7", "8", "9"],
    replies={"7": "C", "8": "A", "9": "D"},
    scores={"accuracy": 2 / 3, "unanswered": 0},
    authors={"accuracy": 1 / 3},
    text=(
        "\nQuestion: What is the uptake?\nOptions: \nA:Diffuse\nB:Focal\nC:No uptake\nD:Cold\n"
        "Answer with the option's letter from the given choices directly."
    ),
)
def pmc_vqa(root):
    """Letters before the options, also behind a blank; a letter or a text that is right; a folder in the zip file."""
    columns = [
        "index",
        "Figure_path",
        "Caption",
        "Question",
        *(f"Choice {letter}" for letter in "ABCD"),
        "Answer",
        "split",
    ]
    for split in ("train", "test"):
        write_csv(
            root / f"{split}_2.csv",
            columns,
            [7, "PMC1_F1.jpg", "x", "What is the uptake?", "A:Diffuse", "B:Focal", "C:No uptake", "D:Cold", "C", split],
            [8, "PMC1_F2.jpg", "x", "Which modality?", " A:MRI ", " B:CT", " C:PET", " D:US", "PET", split],
            [9, "PMC2_F1.jpg", "x", "What is marked?", "A:Abscess", "B:Cyst", "C:Clip", "D:None", "D", split],
        )
    with zipfile.ZipFile(root / "images_2.zip", "w") as archive:
        for place, name in enumerate(("PMC1_F1", "PMC1_F2", "PMC2_F1")):
            archive.writestr(f"figures/{name}.jpg", png(place))


# One of two right.
@sample(
    "pmc_vqa_v1",
    cases=["test_clean-1", "test_clean-2"],
    replies={"test_clean-1": "B", "test_clean-2": "The answer is C"},
    scores={"accuracy": 1 / 2, "unanswered": 0},
    text=(
        "\nQuestion: What is the uptake?\nOptions: \nA:Diffuse\nB:Focal\nC:No uptake\nD:Cannot be told\n"
        "Answer with the option's letter from the given choices directly."
    ),
)
def pmc_vqa_v1(root):
    """No index; the answer as a text beside its letter; images unpacked."""
    columns = ["Figure_path", "Question", "Answer", *(f"Choice {letter}" for letter in "ABCD"), "Answer_label"]
    for name in ("train", "test", "test_clean"):
        write_csv(
            root / f"{name}.csv",
            columns,
            [
                "PMC1_F1.jpg",
                "What is the uptake?",
                "Focal",
                "A:Diffuse",
                "B:Focal",
                "C:No uptake",
                "D:Cannot be told",
                "B",
            ],
            ["PMC1_F2.jpg", "Which modality?", "US", " A:MRI ", " B:CT", " C:PET", " D:US", "D"],
        )
    for place in (1, 2):
        picture(root / "images" / f"PMC1_F{place}.jpg", place)


CORPUS_REPORTS = ["LARGER  EFFUSION. 2. TUBE IN.", "The effusion has grown.\nNO NODULE.", "A nodule is new."]


def visits(root):
    """Three visits, each beside the one before it; reports stand in the table of CheXpert Plus alone.

    The corpus has a visit of patient 1 with its very images, one of patient 5 with those of patient 2, and one of 6.
    """
    paths = [f"train/patient0000{number}/study2/view1_frontal.jpg" for number in (1, 2, 3)]
    others = [f"train/patient0000{number}/study9/view1_frontal.jpg" for number in (1, 5, 6)]
    before = [path.replace("study2", "study1") for path in paths]
    asked = [
        [("Has the effusion grown?", "Yes."), ("Is the tube gone?", "No.")],
        [("Is there a new nodule?", "No")],
        [("Has the oedema cleared?", "Yes"), ("Has the heart grown?", "Yes")],
    ]
    write_json(
        root / "Get_Data" / "TestSet_VQA_ReportGeneration.json",
        [
            {
                "image_path": path,
                "historical_image_path": earlier,
                "reference_images": [f"{other.removesuffix('.jpg')}.png"],
                "hist_reference_images": [f"{other.removesuffix('.jpg').replace('study9', 'study8')}.png"],
                "VQA_Final": [{"VQA_question": question, "VQA_answer": answer} for question, answer in questions],
            }
            for path, earlier, other, questions in zip(
                paths, before, (others[1], others[2], others[1]), asked, strict=True
            )
        ],
    )
    write_json(
        root / "Get_Data" / "TrainSet_KnowledgeCorpus.json",
        [{"image_path": path, "historical_image_path": path.replace("study9", "study8")} for path in others],
    )
    chosen = [(2, 0), (0, 0), (0, 1), (1, 0)]
    write_json(
        root / "Get_Data" / "TestSet_SelectedVQA_2000.json",
        [{"img_id": image, "question_id": question} for image, question in chosen],
    )
    write_json(
        root / "Get_Data" / "TestSet_ImagePairSelection.json",
        [
            {"right_option": "C", "condition_change": "The effusion has grown.", "option": {"A": 1, "B": 2, "C": 0}}
            | {"Retrieval_TrainSet_now_idx": 1},
            {"right_option": "A", "condition_change": "A nodule is new.", "option": {"A": 1, "B": 0, "C": 2}}
            | {"Retrieval_TrainSet_now_idx": 0},
        ],
    )
    texts = ["Larger effusion.\n\nTube in place.", "No new  nodule.", "Oedema has cleared."]
    write_csv(
        root / "df_chexpert_plus_240401.csv",
        ["path_to_image", "deid_patient_id", "section_findings", "section_impression"],
        *([path, "p", "Not this.", text] for path, text in zip(paths, texts, strict=True)),
        *([path, "p", "Not this.", ""] for path in before),
        *([path, "p", "Not this.", text] for path, text in zip(others, CORPUS_REPORTS, strict=True)),
    )
    for place, path in enumerate([*paths, *before]):
        picture(root / "PNG" / path.replace(".jpg", ".png"), place, 32 if place < 3 else 16)
    for place, path in zip((0, 1, 7), others, strict=True):
        picture(root / "PNG" / path.replace(".jpg", ".png"), place, 32)
        picture(root / "PNG" / path.replace("study9", "study8").replace(".jpg", ".png"), place + 3, 16)


# Answers: 0-0 yes (right), 0-1 yes (wrong), 1-0 no (right), 2-0 nothing (yes is right). F1 of yes: 2 x 1 / (2 + 2) =
# 1/2; of no: 2 x 1 / (2 + 1) = 2/3; their mean is 7/12. The authors' rule takes the first word, which "So, no" is not.
@sample(
    "temmed_vqa",
    cases=["0-0", "0-1", "1-0", "2-0"],
    replies={"0-0": "Yes", "0-1": "yes.", "1-0": "So, no."},
    scores={"accuracy": 2 / 4, "macro_f1": 7 / 12, "unanswered": 1 / 4},
    authors={"accuracy": 1 / 4, "macro_f1": 1 / 4, "unanswered": 2 / 4},
    images=2,
    text=(
        "\nLast visit image: \nCurrent visit image: \nYou are a professional radiologist. You are provided with two "
        "X-ray images from the same patient. The first image is from the last visit, and the second image is from the "
        "current visit. I will ask you a question about the change in condition between the last and current visit of "
        "this patient. Please answer the question based on the two images and choose from the following two options: "
        "[Yes, No]. Please only include your final choice of 'Yes' or 'No' in your response.\n"
        "Question: Has the effusion grown?"
    ),
)
def temmed_vqa(root):
    """Five questions, of which a list of pairs of places names four."""
    visits(root)


# Report 0 has the words larger effusion. tube in place., of which larger effusion in. are said. BLEU knows words with
# their marks: 1 of 3 matches, and 3 are fewer than 5. ROUGE-L knows words alone: 3 of 3, and 3 of 5, so 3/4. Report 1
# is said as it is; 2 is not answered.
@sample(
    "temmed_report",
    cases=["0", "1", "2"],
    replies={"0": "Larger effusion in.", "1": "No new nodule."},
    scores={"sentence_bleu@1": (math.exp(1 - 5 / 3) / 3 + 1) / 3, "rouge_l": (3 / 4 + 1) / 3, "unanswered": 1 / 3},
    images=2,
    text=(
        "\nLast visit image: \nCurrent visit image: \nYou are a professional radiologist. You are provided with two "
        "X-ray images from the same patient. The first image is from the last visit, and the second image is from the "
        "current visit. Please generate a report for the current visit image. You should consider the last visit image "
        "to analyze the changes in the patient's condition in your report. You only need to generate the Impression "
        "section in the report. Please only include the content of the report in your response."
    ),
    # METEOR takes half of 1 / n ** 3 off a text of n words that is the same; these have 5, 3 and 3.
    best={"meteor_no_synonyms": 1 - (0.5 / 5**3 + 0.5 / 3**3 + 0.5 / 3**3) / 3},
)
def temmed_report(root):
    """The reports are joined from another table by the path, whose ending differs."""
    visits(root)


# The first right; the second is answered "the second pair", and A is right. The authors' rule wants "My answer is".
@sample(
    "temmed_selection",
    cases=["0", "1"],
    replies={"0": "A shows a tube. My answer is C", "1": "the second pair"},
    scores={"accuracy": 1 / 2, "unanswered": 0},
    authors={"accuracy": 1 / 2, "unanswered": 1 / 2},
    images=6,
    text=(
        "A: \nLast visit image: \nCurrent visit image: \nB: \nLast visit image: \nCurrent visit image: \n"
        "C: \nLast visit image: \nCurrent visit image: \nYou are a professional radiologist. You are provided with "
        "three pairs of X-ray images. Each pair contains two X-ray images from the same patient. The first image in "
        "each pair is from the last visit, and the second one is from the current visit. Your task is to choose one of "
        "the options, based on the condition change from the last to the current visit, that best matches the "
        "following medical statement: 'The effusion has grown.'. Please provide your answer by selecting the "
        "corresponding letter from the given choices. Please provide your final answer in the format: "
        "'My answer is [option]' at the end of your response."
    ),
)
def temmed_selection(root):
    """Options are places in another file."""
    visits(root)


def seed_record(number, dimension, answer, data_id, **more):
    """One question of SEED-Bench-2, whose options are its fields."""
    return {
        "answer": answer,
        "choice_a": "One",
        "choice_b": "Two",
        "choice_c": "Three",
        "choice_d": "Four",
        "data_id": data_id,
        "data_source": "SEED-Bench v2",
        "data_type": "Single Image",
        "level": "L1",
        "question": "How many towels are there?",
        "question_id": f"{dimension}_{number}",
        "question_type_id": dimension,
        "subpart": "Single-Image & Text Comprehension",
        "version": "v2",
        **more,
    }


# 5_0, 17_0 and 25_0 right, 19_0 and 26_0 wrong, 27_0 not answered. The first character of "It is B" is none.
@sample(
    "seed_bench_2",
    cases=["5_0", "17_0", "19_0", "25_0", "26_0", "27_0"],
    replies={"5_0": "A", "17_0": "It is B", "19_0": "C", "25_0": "D", "26_0": "A"},
    scores={"accuracy": 3 / 6, "unanswered": 1 / 6},
    authors={"accuracy": 2 / 6, "unanswered": 2 / 6},
    text=(
        "How many towels are there?\nA. One\nB. Two\nC. Three\nD. Four\n"
        "Answer with the option's letter from the given choices directly."
    ),
)
def seed_bench_2(root):
    """A name or a list of names; files without an ending; frames; images that are the options."""
    frames = [f"task19/frames/W/{number}.png" for number in range(1, 9)]
    drawn = [f"task25/image/0/{number}.jpg" for number in range(1, 5)]
    kitchen = [f"task26/k/v{number}/1.png" for number in range(7)]
    houses = [f"task27/original/{number}.jpg" for number in range(4)]
    names = dict(
        zip(("choice_a", "choice_b", "choice_c", "choice_d"), ("1.jpg", "2.jpg", "3.jpg", "4.jpg"), strict=True)
    )
    write_json(
        root / "SEED-Bench_v2_level1_2_3.json",
        {
            "questions": [
                seed_record(0, 5, "A", "1454426_2591111986", data_source="cc3m", version="v1"),
                seed_record(0, 17, "B", ["task17/a_1.png", "task17/a_2.png"], data_type="Multiple Images"),
                seed_record(0, 19, "B", frames, data_type="Video", subpart="Video & Text Comprehension"),
                seed_record(0, 25, "D", drawn, data_type="Image Generation", level="L3", **names),
                seed_record(0, 26, "C", kitchen, data_type="Image Generation", level="L3", **names),
                seed_record(0, 27, "A", houses, data_type="Image & Text Generation", level="L3"),
            ],
            "question_type": {"Instances Counting": 5},
        },
    )
    (root / "cc3m").mkdir(exist_ok=True)
    (root / "cc3m" / "1454426_2591111986").write_bytes(png(1))
    for place, name in enumerate(["task17/a_1.png", "task17/a_2.png", *frames, *drawn, *kitchen, *houses]):
        picture(root / "SEED-Bench v2" / name, place)


# Right: view 1, view 2, temporal 5; temporal 6 is answered with nothing. For that the authors' rule draws an option, by
# the hash of the question here B, where A is right.
@sample(
    "chexbench",
    cases=["View Classification-1", "View Classification-2", "Temporal Classification-5", "Temporal Classification-6"],
    replies={
        "View Classification-1": "(B)",
        "View Classification-2": "(A) AP",
        "Temporal Classification-5": "The effusion is (C) worse.",
    },
    scores={"accuracy": 3 / 4, "unanswered": 1 / 4},
    authors={"accuracy": 3 / 4, "unanswered": 0},
    text=(
        "Which view is it?\nOptions: (A) PA, (B) lateral\n"
        "Directly answer the question by choosing one option: (A), (B)."
    ),
)
def chexbench(root):
    """An object of lists; whole numbers that are right, from 0; NaN where there is no option; tasks of other kinds."""
    nan = float("nan")

    def asked(question, options, answer, paths, source, part):
        filled = [*options, *[nan] * (4 - len(options))]
        return {
            "question": question,
            "answer": answer,
            "image_path": paths,
            "data_source": source,
            "slice": part,
            **{f"option_{place}": text for place, text in enumerate(filled)},
        }

    write_json(
        root / "data.json",
        {
            "View Classification": [
                asked("Which view is it?", ["PA", "lateral"], 1, ["chexpert/a.png"], "chexpert", "all"),
                asked("Which view is it?", ["AP", "PA", "lateral", "oblique"], 0, ["mimic/b.jpg"], "mimic-cxr", "all"),
            ],
            "Phrase Grounding": [
                {
                    "question": "Locate the phrase: opacity at T12.",
                    "answer": "<|ref|>opacity at T12 (2)<|/ref|><|box|>(25,50),(75,100)<|/box|>",
                    "image_path": ["mimic/b.jpg"],
                },
                {
                    "question": "Locate the phrase: nodule.",
                    "answer": "<|ref|>nodule<|/ref|><|box|>(0, 0), (50, 50)<|/box|><|box|>(90,90),(95,95)<|/box|>",
                    "image_path": ["chexpert/a.png"],
                },
            ],
            "Temporal Classification": [
                asked(
                    "And now?",
                    ["better", "stable", "worse"],
                    2,
                    ["mimic/b.jpg", "mimic/c.jpg"],
                    "mimic-cxr",
                    "effusion",
                ),
                asked(
                    "And now?", ["better", "stable", "worse"], 0, ["mimic/c.jpg", "mimic/b.jpg"], "mimic-cxr", "oedema"
                ),
            ],
            "Findings Generation": [{"section_findings": "Clear.", "image_path": ["mimic/c.jpg"]}],
        },
    )
    picture(root / "chexpert" / "a.png", 1, 40)
    picture(root / "mimic" / "b.jpg", 2)
    picture(root / "mimic" / "c.jpg", 3)


def percent_box(case):
    """The right box in per cent of the image, as CheXagent writes it."""
    key = case.target.read()
    width, height = key.more["size"]
    x1, y1, x2, y2 = key.value
    return f"<|box|>({100 * x1 / width:g},{100 * y1 / height:g}),({100 * x2 / width:g},{100 * y2 / height:g})<|/box|>"


# The first box is right but for its right half, 1/2; the second is not answered.
sample(
    "chexbench_grounding",
    cases=["data-1", "data-2"],
    replies={"data-1": "<|box|>(25,50),(50,100)<|/box|>"},
    scores={"box_iou": 1 / 4, "unanswered": 1 / 2},
    text="Locate the phrase: opacity at T12.",
    perfect=percent_box,
)(chexbench)


# IoU: 1; 100 / 200 = 1/2; a box beside the right one; none. Of these 1/4 are at least 0.7, 2/4 at least 0.5 and 0.3.
@sample(
    "medsg_bench",
    cases=["Registered_Diff-1", "Registered_Diff-2", "multi_view-1", "referring-1"],
    replies={
        "Registered_Diff-1": "(5,6),(15,20)",
        "Registered_Diff-2": "[0, 0, 10, 10]",
        "multi_view-1": "(0,0),(2,2)",
    },
    scores={"box_iou": 1.5 / 4, "iou_at@0.7": 1 / 4, "iou_at@0.5": 2 / 4, "iou_at@0.3": 2 / 4, "unanswered": 1 / 4},
    images=2,
    text=(
        "Compare these two images carefully and give me the coordinates of their difference.Output only the "
        "coordinates. Format: (x1,y1),(x2,y2). Strictly follow this format. No additional text or explanation."
    ),
)
def medsg_bench(root):
    """A file for each task; paths that begin otherwise than the folders; a size in one task; marks in a question."""
    start = "<|object_ref_start|>Skin<|object_ref_end|>"
    difference = "Compare these two images carefully and give me the coordinates of their difference."
    tasks = {
        1: [
            (difference, ["a.png", "b.png"], [5, 6, 15, 20], {"task": "Registered_Diff"}),
            (difference, ["c.png", "d.png"], [0, 0, 20, 10], {"task": "Registered_Diff"}),
        ],
        3: [
            (
                "The first image has <|box_start|>(1,2),(3,4)<|box_end|>. Locate this object in the second image.",
                ["front.png", "top.png", "side.png"],
                [4, 4, 8, 8],
                {"task": "multi_view", "size": [24, 24]},
            )
        ],
        8: [(f"Please find the box of {start}.", ["e.png"], [1, 1, 9, 9], {"task": "referring"})],
    }
    for number, records in tasks.items():
        write_json(
            root / "MedSG-Bench" / f"Task{number}.json",
            [
                {"images": [f"./there/{name}" for name in images], "question": question, "answer": box, **more}
                for question, images, box, more in records
            ],
        )
        for _, images, _, _ in records:
            for place, name in enumerate(images):
                picture(root / "MedSG-Bench" / f"Task{number}" / name, place, 32 if number != 3 else 24)


# a1 and a2 right, a3 wrong, a4 without JSON: the authors' rule takes no letter from words.
@sample(
    "vm14k",
    cases=["a1", "a2", "a3", "a4"],
    replies={"a1": '{"answer": "D"}', "a2": 'Đáp án: {"answer": "b"}', "a3": '```json\n{"answer": "A"}\n```', "a4": ""},
    scores={"accuracy": 2 / 4, "unanswered": 1 / 4},
    authors={"accuracy": 1 / 4, "unanswered": 2 / 4},
    images=0,
    text=(
        "You are a Doctor. You understand Vietnamese well. Please answer the Vietnamese medical questions by choosing "
        "the correct option for each question. Return your response as a valid JSON object for each question that "
        'strictly follows this structure:\n{"answer": string}. For example: {"answer": "A"}\n\n'
        "Your response must be parseable JSON with no additional text, markdown formatting, or explanations outside "
        "the JSON structure. Only return the JSON object itself.\n"
        "Question: Thuốc nào?\nChose the correct option from these answers:\nA: Aspirin\nB: Heparin\nC: Insulin\n"
        "D: Morphin\n"
    ),
)
def vm14k(root):
    """No images; two to six options; several topics; the same questions in another order."""
    asked = [
        ("a1", "Thuốc nào?", ["Aspirin", "Heparin", "Insulin", "Morphin"], "D", "Easy", ["Pharmacology", "Cardiology"]),
        ("a2", "Đúng hay sai?", ["Đúng", "Sai"], "B", "Medium", ["Anatomy"]),
        ("a3", "Chọn một?", ["1", "2", "3", "4", "5", "6"], "F", "Hard", ["Anatomy"]),
        ("a4", "Ở đâu?", ["Gan", "Tim", "Phổi"], "C", "Easy", ["Anatomy"]),
    ]
    for number in range(3):
        write_lines(
            root / "tests" / f"data-processed-shuffled{number}.jsonl",
            [
                {
                    "id": name,
                    "question": question,
                    "options": options,
                    "answer": answer,
                    "option_map": list(range(len(options))),
                    "answer_index": ord(answer) - ord("A"),
                    "difficulty_level": level,
                    "medical_topic": topics,
                }
                for name, question, options, answer, level, topics in asked
            ],
        )


# Of those with options medqa 1 (A) and MedCMR 1 (A and C) are right and pubmedqa 1 is wrong; slake 2 is open, which
# accuracy does not judge.
MEDMASLAB = {
    "medqa-1": "(A) Aspirin",
    "pubmedqa-1": "The answer is B",
    "MedCMR-1": "A and C",
    "slake-2": "A cyst, most likely.",
    "VQA_RAD-1": "Yes.",
    "VQA_RAD-2": "left lung",
    "VQA_RAD-3": "No",
}


def medmaslab(root):
    """Sets of text alone and of images; one image or a list; letters or texts that are right; no options."""

    def lines(name, *records):
        write_lines(root / name / "test.jsonl", [dict(record) for record in records])

    drugs = {"A": "Aspirin", "B": "Heparin", "C": "Insulin"}
    lines("medqa", {"id": 1, "question": "Which drug?", "options": drugs, "answer": "Aspirin", "answer_idx": "A"})
    lines(
        "pubmedqa",
        {"id": 1, "question": "Does it help?", "options": {"A": "yes", "B": "no", "C": "maybe"}, "answer": "maybe"},
    )
    views = {"A": "T1", "B": "CT", "C": "T2"}
    lines(
        "MedCMR",
        {
            "id": 1,
            "question": "Which are MRI?",
            "options": views,
            "answer": ["T1", "T2"],
            "answer_idx": "A,C",
            "answer_type": "mca",
            "img_path": ["a.png", "b.png"],
            "visual_description": "Two hearts.",
        },
    )
    lines(
        "slake",
        {
            "id": 2,
            "question": "What may it be?",
            "options": {"A": "Cyst", "B": "Abscess"},
            "answer": "Cyst.",
            "answer_type": "open",
            "img_path": "c.png",
        },
    )
    lines(
        "VQA_RAD",
        {"id": 1, "question": "Is it CT?", "answer": "yes", "answer_type": "closed", "img_path": "d.png"},
        {"id": 2, "question": "Which lung?", "answer": "left", "answer_type": "open", "img_path": "d.png"},
        {"id": 3, "question": "Is it MRI?", "answer": "Yes", "answer_type": "closed", "img_path": "d.png"},
    )
    for place, name in enumerate(("MedCMR/imgs/a.png", "MedCMR/imgs/b.png", "slake/imgs/c.png", "VQA_RAD/imgs/d.png")):
        picture(root / name, place)


def chosen_or_said(case):
    """The right letters, or the right text."""
    value = case.target.read().value
    return ", ".join(value) if isinstance(value, tuple) else str(value)


sample(
    "medmaslab",
    cases=["MedCMR-1", "medqa-1", "pubmedqa-1", "slake-2"],
    replies=MEDMASLAB,
    scores={"accuracy": 2 / 3, "unanswered": 0},
    images=2,
    text=("Which are MRI?The description of this image is provided here:Two hearts. Options: (A) T1 (B) CT (C) T2"),
    perfect=chosen_or_said,
)(medmaslab)

# Yes is right twice and said once; "left lung" is not the text "left".
sample(
    "medmaslab_open",
    cases=["VQA_RAD-1", "VQA_RAD-2", "VQA_RAD-3"],
    replies=MEDMASLAB,
    scores={"accuracy_or_exact_match": 1 / 3, "unanswered": 0},
    text="Is it CT?",
)(medmaslab)


def mention(text):
    """Where an article speaks of a figure."""
    return [{"tokens": text, "entities": [{"type": "figure", "entity_id": "3", "start_tok": 9, "end_tok": 11}]}]


# One of four is not answered.
@sample(
    "bimed_mbench",
    cases=["eng-0", "eng-1", "ara-0", "ara-1"],
    replies={"eng-0": "The conjunctiva.", "eng-1": "A normal chest.", "ara-0": "الملتحمة"},
    scores={"unanswered": 1 / 4},
    text="\nWhat is the organ in the image?",
)
def bimed_mbench(root):
    """Two languages with the same ids; several domains of one figure; a mark where the image belongs."""
    none = {"chest_xray": False, "mri": False, "ct_scan": False, "histology": False, "gross": False}
    asked = {
        "eng": [
            ("<image>\nWhat is the organ in the image?", "It is the conjunctiva."),
            ("What is seen?", "A normal chest."),
        ],
        "ara": [("ما هو العضو الموضح في الصورة؟", "هو الملتحمة."), ("ماذا يظهر؟\n<image>", "صدر طبيعي.")],
    }
    for language, questions in asked.items():
        write_lines(
            root / "data" / "test_sets" / f"bimed-mbench_{language}.jsonl",
            [
                {
                    "question_id": place,
                    "image": f"{place}_F3.jpg",
                    "text": text,
                    "gpt4_answer": answer,
                    "fig_caption": "A wall.",
                    "fig_label": f"Fig. {place}",
                    "in_text_mention": mention("In vicinity ."),
                    "domain": none | ({"histology": True, "gross": True} if place == 0 else {"chest_xray": True}),
                    "type": "conversation",
                }
                for place, (text, answer) in enumerate(questions)
            ],
        )
    for place in (0, 1):
        picture(root / "data" / "test_sets" / "images" / f"{place}_F3.jpg", place)


JUDGE = (
    "Now you are a judge. 1. **Catastrophic Hallucinations**: ... 6. **Correct Statements**: ...\n\n"
    "Here is the question received by Med-VLM, the output of it and the ground-truth:\n\n"
    "question: {}\nMed-VLM answer: {}\nground-truth: {}\n\n"
    "Please judge Med-VLM's hallucination type based on the above hallucination hierarchy."
)


def hallmark(root):
    """Names with two dots; question and answer, or no answer, inside an instruction; labels as digits; other files."""

    def labelled(number, question, said, right, label, name, image):
        return {
            "id": number,
            "conversations": [
                {"from": "human", "value": JUDGE.format(question, said, right)},
                {"from": "gpt", "value": name},
            ],
            "image": image,
            "classification_label": label,
        }

    write_json(
        root / "Conventional..json",
        [
            labelled(1, "Are the lungs normal?", "Yes.", "No", "0", "Catastrophic Hallucinations", "rad/synpic1.jpg"),
            labelled(2, "What is\nmarked?", "A cyst.", "A large cyst \n", "5", "Correct Statements", "rad/synpic2.jpg"),
            {
                **labelled(7, "Is it a cyst?", "No.", "", "1", "Critical Hallucinations", "rad/synpic2.jpg"),
                "conversations": [
                    {"from": "human", "value": "question: Is it a cyst?\nMed-VLM answer: No.\n\nPlease judge Med-VLM."},
                    {"from": "gpt", "value": "Critical Hallucinations"},
                ],
            },
        ],
    )
    write_json(
        root / "Counterfactual..json",
        [
            labelled(
                *(1, "Is this MRI blurred?", "No", "It is a CT.", "3", "Prompt-induced Hallucinations"),
                "slake/xmlab1/source.jpg",
            )
        ],
    )
    write_json(
        root / "Confidence_weakening.json",
        [
            {
                "conversations": [
                    {"from": "human", "value": "You are limited; is there a fracture?"},
                    {"from": "gpt", "value": "No rib fracture."},
                ],
                "image": "synpic1.jpg",
            }
        ],
    )
    write_json(
        root / "Irg.json",
        [
            {
                "question": "How is the heart?",
                "Med-VLM answer": "Large.",
                "ground-truth": "The heart is normal",
                "qid": "",
                "image": "8bed.jpg",
                "question-type": "",
                "prompt": "Imagine.",
            }
        ],
    )
    for place, name in enumerate(("rad/synpic1", "rad/synpic2", "slake/xmlab1/source", "irg/8bed")):
        picture(root / f"{name}.jpg", place)


def best_meteor(*lengths):
    """METEOR of texts that are right word for word: half of 1 / n ** 3 is taken off a text of n words."""
    return sum(1 - 0.5 / length**3 for length in lengths) / len(lengths)


HALLMARK = ["Conventional-1", "Conventional-2", "Counterfactual-1"]

# "No" is right; two of the two words of "large cyst" are among the three of "A large cyst": 2 x 1 x 2/3 / (1 + 2/3) =
# 4/5; nothing is said to the third.
sample(
    "med_hallmark",
    cases=HALLMARK,
    replies={"Conventional-1": "No.", "Conventional-2": "large cyst"},
    scores={"rouge_1": (1 + 4 / 5) / 3, "rouge_l": (1 + 4 / 5) / 3, "unanswered": 1 / 3},
    text="Are the lungs normal?",
    # One word has no pair of neighbours.
    best={"meteor_no_synonyms": best_meteor(1, 3, 4), "rouge_2": 2 / 3},
)(hallmark)

# The labels are 0, 5, 1 and 3. Right: the first and the last; the second is called an attribute, and the third is not
# answered. F1 of 0 and 3 is 1, of the others 0.
sample(
    "med_hallmark_detection",
    cases=["Conventional-1", "Conventional-2", "Conventional-7", "Counterfactual-1"],
    replies={
        "Conventional-1": "Catastrophic Hallucinations",
        "Conventional-2": "This is an Attribute Hallucinations case.",
        "Counterfactual-1": "Prompt-induced Hallucinations.",
    },
    scores={"accuracy": 2 / 4, "macro_f1": 2 / 4, "unanswered": 1 / 4},
    text=JUDGE.format("Are the lungs normal?", "Yes.", "No"),
)(hallmark)

# Two of two words, and of three: 4/5.
sample(
    "med_hallmark_confidence",
    cases=["Confidence_weakening-1"],
    replies={"Confidence_weakening-1": "No fracture"},
    scores={"rouge_1": 4 / 5, "rouge_2": 0, "unanswered": 0},
    text="You are limited; is there a fracture?",
    best={"meteor_no_synonyms": best_meteor(3)},
)(hallmark)

# Three of three words, and of four: 2 x 1 x 3/4 / (7/4) = 6/7.
reports(
    "med_hallmark_report",
    cases=["Irg-1"],
    replies={"Irg-1": "Heart is normal."},
    scores={"rouge_l": 6 / 7, "unanswered": 0},
    text="How is the heart?",
)(hallmark)


# 1 and 2 right; of 3 one level of two is named; 4 is not answered.
@sample(
    "spinebench_bupt",
    cases=["test-1", "test-2", "test-3", "test-4"],
    replies={"test-1": "B", "test-2": "A and C", "test-3": "B"},
    scores={"accuracy": 2 / 4, "unanswered": 1 / 4},
    text=(
        "Which disease is it?\nA. Healthy\nB. Osteophytes\nC. Spondylolisthesis\n"
        "Answer with the option's letter from the given choices directly; name all that apply."
    ),
    perfect=chosen_or_said,
)
def spinebench_bupt(root):
    """Two tasks in a file: one right text, or a list of them."""
    disease = {"task": "spine_disease_classification", "question": "Which disease is it?"}
    level = {"task": "spine_lesion_localization", "question": "Where?", "options": ["L1/L2", "L2/L3", "L4/L5"]}
    diseases = ["Healthy", "Osteophytes", "Spondylolisthesis"]
    write_json(
        root / "evaluation" / "test.json",
        [
            {**disease, "image": "a.png", "options": diseases, "answer": "Osteophytes"},
            {**level, "image": "a.png", "answer": ["L1/L2", "L4/L5"]},
            {**level, "image": "b.png", "answer": ["L2/L3", "L4/L5"]},
            {**disease, "image": "b.png", "options": diseases[::-1], "answer": ["Healthy"]},
        ],
    )
    for place, name in enumerate(("a", "b")):
        picture(root / "evaluation" / f"{name}.png", place)
