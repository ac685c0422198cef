"""Samples of benchmarks whose records stand in JSON files and JSON lines, with images in folders and zip files."""

import zipfile

from tests.helpers.catalogue import picture, png, sample, write_json, write_lines


def write_zip(path, *members):
    """An archive of pictures, another one for each member."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for number, member in enumerate(members):
            archive.writestr(member, png(number))


# ct_1 by its letter and mr_1 by its text are right, derm_1 is wrong. The authors compare replies with the texts: of "B"
# none is alike, for no text holds a capital B; "lentigo" is most like "Lentigo".
@sample(
    "omnimedvqa",
    cases=["ct_1", "ct_2", "derm_1", "mr_1"],
    replies={"ct_1": "B", "derm_1": "lentigo", "mr_1": "Grade two."},
    scores={"accuracy": 2 / 4, "unanswered": 1 / 4},
    authors={"accuracy": 1 / 4, "unanswered": 2 / 4},
    text=(
        "What organ is shown?Here are 4 candidate answers:['lung', 'liver', 'spleen', 'heart'] Only return what you "
        "think is the correct answer from the candidate answers, do not return any other irrelevant text!"
    ),
)
def omnimedvqa(root):
    """Two, three and four options, with keys that are absent or null; the right answer is a text."""

    def record(name, kind, modality, question, answer, *options, **more):
        image = f"Images/{name.split('_')[0]}/{name}.png"
        picture(root / image, len(name))
        lettered = {f"option_{letter}": text for letter, text in zip("ABCD", options, strict=False)}
        return {
            "dataset": name.split("_")[0],
            "question_id": name,
            "question_type": kind,
            "question": question,
            "gt_answer": answer,
            "image_path": image,
            **lettered,
            "modality_type": modality,
            **more,
        }

    place, disease = "Anatomy Identification", "Disease Diagnosis"
    ct, folder = "CT(Computed Tomography)", root / "QA_information/Open-access"
    organs = ("lung", "liver", "spleen", "heart")
    write_json(
        folder / "ct.json",
        [
            record("ct_1", place, ct, "What organ is shown?", "liver", *organs),
            record("ct_2", disease, ct, "Is it normal?", "No, abnormal", "Yes, normal", "No, abnormal"),
        ],
    )
    skin = ("Melanoma", "Naevus", "Lentigo")
    write_json(
        folder / "derm.json",
        [record("derm_1", disease, "Dermoscopy", "What is it?", "Melanoma", *skin, option_D=None)],
    )
    grades = ("grade one", "grade two", "grade three")
    write_json(
        folder / "mr.json",
        [
            record(
                "mr_1", "Lesion Grading", "MR (Mag-netic Resonance Imaging)", "Which grade is it?", "grade two", *grades
            )
        ],
    )
    write_json(
        root / "QA_information/Restricted-access/none.json", [{"question_id": "none_1", "image_path": "none.png"}]
    )


def medxpertqa(root, folder, letters, images):
    """Options inside the question and as an object; a label that is a letter, and one that is a list of one."""

    def record(name, kind, label, *shown):
        options = {letter: f"finding {letter.lower()}" for letter in letters}
        choices = " ".join(f"({letter}) {text}" for letter, text in options.items())
        found = {
            "id": name,
            "question": f"What does {name} have?\nAnswer Choices: {choices}",
            "options": options,
            "label": label,
            "medical_task": "Diagnosis",
            "body_system": "Nervous",
            "question_type": kind,
        }
        return found | {"images": list(shown)} if images else found

    write_lines(
        root / folder / "test.jsonl",
        [
            record(f"{folder}-1", "Reasoning", "D", "1-a.jpeg", "1-b.jpeg"),
            record(f"{folder}-2", "Understanding", ["B"], "2-a.jpeg"),
            record(f"{folder}-3", "Reasoning", letters[-1], "3-a.jpeg"),
        ],
    )
    write_lines(root / folder / "dev.jsonl", [record(f"{folder}-dev", "Reasoning", "A", "1-a.jpeg")])


def medxpertqa_text(name, letters):
    choices = " ".join(f"({letter}) finding {letter.lower()}" for letter in letters)
    return (
        f"You are a helpful medical assistant.\nQ: What does {name} have?\nAnswer Choices: {choices}\n"
        "A: Let's think step by step."
    )


# MM-1 right; of MM-2 the authors' rule takes the article for option A; MM-3 is wrong.
@sample(
    "medxpertqa_mm",
    cases=["MM-1", "MM-2", "MM-3"],
    replies={"MM-1": "D", "MM-2": "A biopsy proves it: (B)", "MM-3": "(A)"},
    scores={"accuracy": 2 / 3, "unanswered": 0},
    authors={"accuracy": 1 / 3, "unanswered": 0},
    text=medxpertqa_text("MM-1", "ABCDE"),
    images=2,
)
def medxpertqa_mm(root):
    """Five options; one image and two, in a zip file."""
    medxpertqa(root, "MM", "ABCDE", images=True)
    write_zip(root / "images.zip", "images/1-a.jpeg", "images/1-b.jpeg", "images/2-a.jpeg", "images/3-a.jpeg")


# Text-3 alone is right: its answer is the tenth of ten options.
@sample(
    "medxpertqa_text",
    cases=["Text-1", "Text-2", "Text-3"],
    replies={"Text-1": "I", "Text-3": "J"},
    scores={"accuracy": 1 / 3, "unanswered": 1 / 3},
    authors={"accuracy": 1 / 3, "unanswered": 1 / 3},
    text=medxpertqa_text("Text-1", "ABCDEFGHIJ"),
    images=0,
)
def medxpertqa_text_only(root):
    """Ten options, and no image."""
    medxpertqa(root, "Text", "ABCDEFGHIJ", images=False)


def mediconfusion_files(root):
    """Pairs by their number; images by a whole number; categories that are lists."""

    def pair(number, first, second, one, other):
        picture(root / f"images/{2 * number}.jpg", 2 * number)
        picture(root / f"images/{2 * number + 1}.jpg", 2 * number + 1)
        return {
            "im_1": f"train/{number}.jpg",
            "im_2": f"train/{number + 1}.jpg",
            "cap_1": "one",
            "cap_2": "two",
            "im_1_local": 2 * number,
            "im_2_local": 2 * number + 1,
            "category_1": one,
            "category_2": other,
            "question": f"Where is lesion {number}?",
            "option_A": "To the left",
            "option_B": "To the right",
            "im_1_correct": first,
            "im_2_correct": second,
            "AI_question": "Hidden?",
        }

    write_json(
        root / "dataset.json",
        {
            "0": pair(0, "A", "B", ["Cerebral"], ["Cerebral"]),
            "7": pair(7, "B", "A", ["Spinal", "Nervous"], ["Vascular"]),
            "12": pair(12, "A", "B", ["Vascular"], ["Spinal"]),
        },
    )


# Pair 0 is right; both of 7 are B, of which the first is right; of 12 the second has no answer. By the authors' rule
# "(A)" is none.
@sample(
    "mediconfusion",
    cases=["0-1", "0-2", "7-1", "7-2", "12-1", "12-2"],
    replies={"0-1": "A", "0-2": "B", "7-1": "B.", "7-2": "B", "12-1": "(A)"},
    scores={"group_accuracy": 1 / 3, "confusion": 1 / 2, "accuracy": 4 / 6, "unanswered": 1 / 6},
    authors={"group_accuracy": 1 / 3, "confusion": 1 / 2, "accuracy": 3 / 6, "unanswered": 2 / 6},
    text=(
        "Based on the image, choose the correct option for the following question.\nQuestion: Where is lesion 0?\n"
        "A: To the left\nB: To the right\nAnswer with the option's letter from the given choices directly. "
        "Your answer should be just one letter.\nAnswer: "
    ),
)
def mediconfusion(root):
    """See `mediconfusion_files`."""
    mediconfusion_files(root)


# Of lone letters one is right and one wrong; the words need a judge.
@sample(
    "mediconfusion_free",
    cases=["0-1", "0-2", "7-1", "7-2", "12-1", "12-2"],
    replies={"0-1": "A", "0-2": "A"},
    scores={"accuracy_matched": 1 / 6},
    text="Based on the image, answer following question.\nWhere is lesion 0?",
)
def mediconfusion_free(root):
    """The same files."""
    mediconfusion_files(root)


PROBMED = {
    "7": [
        *(("modality_gt", "yes"), ("modality_hallu", "no"), ("body_part_gt", "yes"), ("body_part_hallu", "no")),
        *(("abnormality", "yes"), ("entity_gt_0", "yes"), ("entity_hallu_0", "no"), ("entity_gt_1", "yes")),
        *(("entity_hallu_1", "no"), ("grounding_gt_1", "yes"), ("grounding_hallu_1", "no")),
    ],
    "8": [
        *(("modality_gt", "yes"), ("modality_hallu", "no"), ("body_part_gt", "yes"), ("body_part_hallu", "no")),
        *(("abnormality", "no"), ("entity_hallu", "no")),
    ],
}
"""Image -> its questions and their right answers; the second is normal, and has no question of places."""


# Image 7: modality right; body part and place wrong by the adversarial question; abnormality right; of two entities the
# adversarial question of the second is wrong. Image 8: modality without an answer to one; body part, abnormality and
# entity right. Sets: 7 modality, 7 abnormality, 8 body part, 8 abnormality, 8 entity of 9.
# Without adversarial questions also 7 body part, 7 entity, 7 place and 8 modality: all 9.
# Questions: 3 wrong and 1 without an answer of 17. The authors' rule takes no answer from "yes, CT" in lower case.
@sample(
    "probmed",
    cases=[
        f"{kind}-{name}-{qa}"
        for kind, name, family in [
            *[("ct-scan_brain", "7", one) for one in ("modality", "body_part", "abnormality", "entity", "grounding")],
            *[("x-ray_chest", "8", one) for one in ("modality", "body_part", "abnormality", "entity")],
        ]
        for qa, _ in PROBMED[name]
        if qa.startswith(family)
    ],
    replies={
        f"{kind}-{name}-{qa}": reply
        for kind, name in (("ct-scan_brain", "7"), ("x-ray_chest", "8"))
        for qa, right in PROBMED[name]
        if (
            reply := {
                "7-modality_gt": "yes, CT",
                "7-body_part_hallu": "Yes",
                "7-entity_hallu_1": "Yes, it is.",
                "7-grounding_hallu_1": "yes",
                "8-modality_hallu": "",
            }.get(f"{name}-{qa}", right.capitalize())
        )
    },
    scores={
        "group_accuracy": 5 / 9,
        "group_accuracy_among@qa_type=*_gt*": 9 / 9,
        "accuracy": 13 / 17,
        "unanswered": 1 / 17,
    },
    authors={
        "group_accuracy": 4 / 9,
        "group_accuracy_among@qa_type=*_gt*": 8 / 9,
        "accuracy": 12 / 17,
        "unanswered": 2 / 17,
    },
    text="Is modality_gt so?",
)
def probmed(root):
    """Images by a path with a slash before it; question types with and without a number; a normal image."""
    records = []
    for kind, (name, questions) in zip(("ct-scan_brain", "x-ray_chest"), PROBMED.items(), strict=True):
        picture(root / f"{kind}/{name}.png", int(name))
        for number, (qa_type, answer) in enumerate(questions):
            records.append(
                {
                    "id": name,
                    "i": number,
                    "image": f"/{kind}/{name}.png",
                    "image_type": kind,
                    "qa_type": qa_type,
                    "question": f"Is {qa_type} so?",
                    "answer": answer,
                    "src_dataset": "medicat",
                }
            )
    write_json(root / "test.json", records)


# PubMed-test-1 is right by its letter; its namesake of test_tiny by its text; Atlas-test-4 is wrong. By the authors'
# rule of what is not understood an option is drawn, so that all are answered.
@sample(
    "pathmmu",
    cases=["PubMed-test-1", "PubMed-test_tiny-1", "Atlas-test-4", "Atlas-test_tiny-9"],
    replies={"PubMed-test-1": "D", "PubMed-test_tiny-1": "Gland (villous) type", "Atlas-test-4": "(A)"},
    scores={"accuracy": 2 / 4, "unanswered": 1 / 4},
    authors={"unanswered": 0},
    text=(
        "Which stain is it?\n\n(A) PAS\n(B) HE\n(C) Ki-67\n(D) CD20 (membranous)\n\n\n"
        "Answer with the option's letter from the given choices directly."
    ),
)
def pathmmu(root):
    """Splits inside subsets; options and answers with their letters, and brackets within; numbers that occur twice."""

    def record(number, question, right, *options):
        listed = [f"{letter}) {text}" for letter, text in zip("ABCD", options, strict=False)]
        return {
            "No": number,
            "img": f"{number}.jpg",
            "question": question,
            "options": listed,
            "answer": listed["ABCD".index(right)],
            "explanation": "A) is wrong.",
            "source_img": "x.jpg",
        }

    stain = record(1, "Which stain is it?", "D", "PAS", "HE", "Ki-67", "CD20 (membranous)")
    gland = record(1, "Which gland is it?", "B", "Tubular", "Gland (villous) type")
    organ = record(4, "Which organ is it?", "B", "Liver", "Lung", "Skin")
    cell = record(9, "Which cell is it?", "C", "Mast cell", "Plasma cell", "Giant cell")
    write_json(
        root / "data.json",
        {
            "PubMed": {"val": [gland], "test": [stain], "test_tiny": [gland]},
            "Atlas": {"train": [organ], "val": [cell], "test": [organ], "test_tiny": [cell]},
        },
    )
    write_zip(root / "images.zip", "images/1.jpg", "images/4.jpg", "images/9.jpg")


def omnibrain(root, folder, records):
    """Lists of records, whose images are a name, or several."""
    write_json(root / f"{folder}.json", records)
    paths = [one["image_path"] for one in records]
    shown = [name for path in paths for name in ([path] if isinstance(path, str) else path)]
    for place, name in enumerate(shown):
        picture(root / folder / name, place, size=1600 if place == 0 else 32)


# The first is right by its letter, the second by its text, the third has none; MedEvalKit takes the option A for it,
# which is right.
@sample(
    "omnibrainbench",
    cases=["closed-ended-qa_6823-1", "closed-ended-qa_6823-2", "closed-ended-qa_6823-3"],
    replies={"closed-ended-qa_6823-1": "C", "closed-ended-qa_6823-2": "Glioma"},
    scores={"accuracy": 2 / 3, "unanswered": 1 / 3},
    authors={"accuracy": 3 / 3, "unanswered": 0},
    text=(
        "\nQuestion: Which sequence is it?\nOptions: \nA. T1\nB. T2\nC. FLAIR\nD. DWI\nE. SWI\n"
        "Answer with the option's letter from the given choices directly."
    ),
    images=2,
)
def omnibrainbench(root):
    """Five options; one image and two; answers that are texts, and one that is a letter."""

    def record(question, answer, image, task, phase, *options):
        return {
            "question": question,
            "options": list(options),
            "answer": answer,
            "image_path": image,
            "task_label": task,
            "clinical_phase": phase,
            "source_file": "brats.json",
        }

    modality = ("Imaging Modality Identification", "Anatomical and Imaging Assessment")
    diagnosis = ("Disease Diagnosis Reasoning", "Diagnostic Synthesis and Causal Reasoning")
    sequences, tumours = ("T1", "T2", "FLAIR", "DWI", "SWI"), ("None", "Cyst", "Abscess", "Glioma", "Stroke")
    omnibrain(
        root,
        "closed-ended-qa_6823",
        [
            record("Which sequence is it?", "FLAIR", ["a/1.png", "a/2.png"], *modality, *sequences),
            record("What is the diagnosis?", "D", "b/3.png", *diagnosis, *tumours),
            record("Which sequence is this?", "T1", ["a/4.png"], *modality, *sequences),
        ],
    )


# Of four words right in the first, the last two pairs are: ROUGE-1 4/4 with one word more, which is
# 2 * 4 / (5 + 4) = 8/9, and so is ROUGE-L; the second is nothing.
@sample(
    "omnibrainbench_open",
    cases=["open-ended-qa_2704-1", "open-ended-qa_2704-2"],
    replies={"open-ended-qa_2704-1": "Left temporal lobe glioma today"},
    scores={"rouge_1": 8 / 18, "rouge_l": 8 / 18, "exact_match": 0, "unanswered": 1 / 2},
    text="What is the diagnosis?\nPlease answer the question concisely.",
    best={"judged@correct": float("nan")},
)
def omnibrainbench_open(root):
    """No options; one image and two."""
    shared = {"task_label": "Diagnosis", "clinical_phase": "DSCR", "source_file": "nova.json"}
    right = "Left temporal lobe glioma"
    omnibrain(
        root,
        "open-ended-qa_2704",
        [
            {"question": "What is the diagnosis?", "answer": right, "image_path": "1.png", **shared},
            {
                "question": "What has changed since?",
                "answer": "The oedema has grown",
                **shared,
                "image_path": ["2.png", "3.png"],
            },
        ],
    )


# m1 and s1 right; d1 is right too, and by the authors' rule a letter with words is none.
@sample(
    "medbookvqa",
    cases=["m1", "d1", "s1"],
    replies={"m1": "C", "d1": "A. Cyst", "s1": "B"},
    scores={"accuracy": 3 / 3, "unanswered": 0},
    authors={"accuracy": 2 / 3, "unanswered": 1 / 3},
    text=(
        "\n\n    Please answer the following multiple choice question based on the image above.\n"
        "    <multiple choice question start>\n    \n    Question: Which modality is it?\n"
        "    Choices : A. MRI | B. PET | C. CT | D. Ultrasound\n    \n    <multiple choice question end>\n\n"
        "    Respond only with the letter of the correct answer, do not include specific content of the choice.\n"
        "    Respond ONLY with 'A', 'B', 'C', or 'D'.\n    "
    ),
)
def medbookvqa(root):
    """Letters that are given, the right one not the first; paths that begin with `../`."""

    def record(name, kind, question, letter, answer, others, distractors, modality):
        return {
            "_id": name,
            "QAtype": kind,
            "Question": question,
            "Answer": answer,
            "correct_choice": letter,
            "Distractors": distractors,
            "other_choices": others,
            "image_path": f"../figures/book/{name}.png",
            "LABEL": {
                "Modality": ["Radiography", modality],
                "Anatomy": ["Digestive", "Upper", "Abdomen", "Liver"],
                "Department": ["Oncology", "Cancer"],
            },
        }

    write_json(
        root / "data.json",
        [
            record(
                "m1",
                "Modality Recognition",
                "Which modality is it?",
                "C",
                "CT",
                ["B", "A", "D"],
                ["PET", "MRI", "Ultrasound"],
                "CT",
            ),
            record(
                "d1",
                "Disease Diagnosis",
                "What is it?",
                "A",
                "Cyst",
                ["B", "C", "D"],
                ["Abscess", "Tumour", "Stone"],
                "MRI",
            ),
            record(
                "s1",
                "Symptom Recognition",
                "What is seen?",
                "B",
                "Oedema",
                ["C", "D", "A"],
                ["Rash", "Ulcer", "Scar"],
                "MRI",
            ),
        ],
    )
    write_zip(root / "figures.zip", "figures/book/m1.png", "figures/book/d1.png", "figures/book/s1.png")


CHEST = "What is seen?\nA) Nodule\nB) Effusion\nC) Pneumothorax\nD) Cavity\nE) Fracture\nF) None of these"


# 10_1 right, 10_2 wrong, 20_1 refused, 20_2 right. By the authors' rule "The answer is D" is none, and "I" is a wrong
# answer.
@sample(
    "chestagentbench_agent",
    cases=["10_1", "10_2", "20_1", "20_2"],
    replies={"10_1": "F", "10_2": "A) Nodule", "20_1": "I cannot answer this.", "20_2": "The answer is D"},
    scores={"accuracy_of_answered": 2 / 3, "accuracy": 2 / 4, "unanswered": 1 / 4},
    authors={"accuracy_of_answered": 1 / 3, "accuracy": 1 / 4, "unanswered": 1 / 4},
    text=(
        "You are an expert medical AI assistant who can answer any medical questions and analyze medical images "
        "similar to a doctor.\nSolve using your own vision and reasoning and use tools to complement your reasoning.\n"
        "Make multiple tool calls in parallel or sequence as needed for comprehensive answers.\nCritically think about "
        "and criticize the tool outputs.\nIf you need to look up some information before asking a follow up question, "
        "you are allowed to do that.\nAnswer this question correctly using chain of thought reasoning and carefully "
        "evaluating choices. Solve using our own vision and reasoning and thenuse tools to complement your reasoning. "
        f"Trust your own judgement over any tools.\n{CHEST}\n"
    ),
    settings={"metrics": ["accuracy_of_answered", "accuracy", "unanswered"]},  # texts alone have no trace
    images=2,
)
@sample(
    "chestagentbench",
    cases=["10_1", "10_2", "20_1", "20_2"],
    replies={"10_1": "F", "10_2": "A) Nodule", "20_1": "I cannot answer this.", "20_2": "The answer is D"},
    scores={"accuracy_of_answered": 2 / 3, "accuracy": 2 / 4, "unanswered": 1 / 4},
    authors={"accuracy_of_answered": 1 / 3, "accuracy": 1 / 4, "unanswered": 1 / 4},
    text=(
        "You are a medical imaging expert. Provide only the letter corresponding to your answer choice (A/B/C/D/E/F).\n"
        f"Given the following medical case:\nPlease answer this multiple choice question:\n{CHEST}\n"
        "Base your answer only on the provided images and case information."
    ),
    images=2,
)
def chestagentbench(root):
    """Six options inside the question and four; categories between commas, with and without blanks; one image, two."""

    def record(name, question, answer, categories, *images):
        return {
            "question_id": name.split("_")[1],
            "full_question_id": name,
            "case_id": name.split("_")[0],
            "question": question,
            "answer": answer,
            "explanation": "B) is seen.",
            "categories": categories,
            "type": "single choice",
            "sections": "history",
            "images": list(images),
            "image_source_urls": ["none"],
        }

    four = "Which side?\nA) Left\nB) Right\nC) Both\nD) Neither"
    write_lines(
        root / "metadata.jsonl",
        [
            record("10_1", CHEST, "F", "detection,diagnosis", "figures/10/1.jpg", "figures/10/2.jpg"),
            record("10_2", four, "B", "Localization, comparison", "figures/10/2.jpg"),
            record("20_1", CHEST, "C", "diagnosis", "20/1.jpg"),
            record("20_2", four, "D", "relationship, detection", "figures/20/1.jpg"),
        ],
    )
    for name in ("10/1.jpg", "10/2.jpg", "20/1.jpg"):
        picture(root / "figures" / name, len(name))
