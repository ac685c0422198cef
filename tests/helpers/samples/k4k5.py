"""Samples of the benchmarks of volumes and of trees of one JSON a sample."""

import json

import nibabel as nib
import numpy as np

from tests.helpers.catalogue import picture, sample, write_json

SCREEN = {"type": "click", "target": "the menu"}


def _step(number, software, box, **more):
    return {
        "step_id": number,
        "image_path": f"Images/{software}/Shot_({number}).png",
        "instruction": f"Click on button {number}",
        "actions": [{**SCREEN, "bbox": box}],
        **more,
    }


# Screens are 200 x 200 pixels, so a box of [10, 20, 30, 10] per cent is (20, 40, 80, 60).
# Weasis-1: step 1 is 5 pixels left of its box, which a patch of 14 forgives; step 2 has no click and is not asked; step
# 3 is missed by 8 pixels; step 4 is hit, too late. MITK-1: both hit. Weasis-2 gets no answer.
# Of 6 steps: before a failure 1 + 2 = 3, hit at all 4. TCA 1/3, S1A 2/3, WPS (1 + 1.8 + 0) / 3.
@sample(
    "medspot",
    cases=["MITK-1-1", "MITK-1-2", "Weasis-1-1", "Weasis-1-3", "Weasis-1-4", "Weasis-2-1"],
    replies={
        "MITK-1-1": "(60, 30)",
        "MITK-1-2": "I click at x=120, y=100.",
        "Weasis-1-1": "(15, 50)",
        "Weasis-1-3": "(88, 50)",
        "Weasis-1-4": "<think>(1, 1)</think>(50, 50)",
    },
    scores={
        "group_accuracy": 1 / 3,
        "step_hit_rate": 3 / 6,
        "first_step_accuracy": 2 / 3,
        "weighted_prefix_score": 2.8 / 3,
        "accuracy": 4 / 6,
        "unanswered": 1 / 6,
    },
    text="Click on button 1\nRespond ONLY with (x,y) pixel coordinates.",
    best={"weighted_prefix_score": (1.8 + 2.44 + 1) / 3},
)
def medspot(root):
    """A step without an action, one that types, one with two clicks; names of files with blanks and brackets."""
    for software in ("MITK", "Weasis"):
        for number in range(1, 5):
            picture(root / "Images" / software / f"Shot_({number}).png", number, size=200)
    twice = [{**SCREEN, "bbox": [50, 40, 20, 20]}, {**SCREEN, "bbox": [0, 0, 5, 5]}]
    write_json(
        root / "Annotations" / "MITK_Annotation.json",
        {
            "tasks": [
                {
                    "task_overview": "Open a study",
                    "steps": [_step(1, "MITK", [20, 10, 20, 10]), _step(2, "MITK", [1, 2, 3, 4], actions=twice)],
                }
            ]
        },
    )
    box = [10, 20, 30, 10]
    typed = [{"type": "type", "target": "a name", "bbox": [1, 2, 3, 4]}]
    write_json(
        root / "Annotations" / "Weasis_Annotation.json",
        {
            "tasks": [
                {
                    "task_overview": "Measure a lesion",
                    "steps": [
                        _step(1, "Weasis", box),
                        _step(2, "Weasis", box, actions=[]),
                        _step(3, "Weasis", box),
                        _step(4, "Weasis", box),
                    ],
                },
                {
                    "task_overview": "Close",
                    "steps": [_step(1, "Weasis", [90, 90, 5, 5]), _step(2, "Weasis", box, actions=typed)],
                },
            ]
        },
    )


def _lmod(root, folder, regions, metadata, image_type="Fundus RGB Images"):
    boxes = [
        {
            "bounding_box": {"top_left": [0.1, 0.2], "bottom_right": [0.3, 0.4]},
            "region_type": kind,
            "annotation_ID": number,
            "color": "red",
        }
        for number, kind in enumerate(regions, start=1)
    ]
    write_json(
        root / folder / "information.json",
        {
            "image_path": f"{folder}/visualization.png",
            "image_type": image_type,
            "image_description": "",
            "annotations": {"bounding_boxes": boxes, "segmentations": []},
            "metadata": metadata,
        },
    )
    picture(root / folder / "visualization.png", 1)
    drawn = "bbox_annotated.png" if image_type == "oct" else "annotated_bounding_box.png"
    picture(root / folder / "annotated" / drawn, 2)


def _lmod_images(root):
    eye = {"dataset_id": "oimhs", "patient_id": 97, "patient_age": 76, "patient_sex": "female"}
    _lmod(root, "OIMHS/100_17", ["mh", "retina", "choroid"], {**eye, "stage_of_macular_hole_decision": 4}, "oct")
    _lmod(root, "OIMHS/100_18", ["irc"], {**eye, "stage_of_macular_hole_decision": 2}, "oct")
    for split, label in (("test", "Glaucoma"), ("train", "Non-Glaucoma")):
        metadata = {"dataset_id": "Refuge Dataset", "glaucoma_label": label}
        _lmod(root, f"REFUGE/{split}/V0001", ["Optic Cup", "Optic Disc"], metadata)
    _lmod(root, "IDRiD/IDRiD_01", [], {"dataset_id": "IDRiD", "glaucoma_label": "Unspecified"})


# 100_17: 3 named, 2 right, 1 wrong; 100_18: 2 named, 1 right, 1 invented; test/V0001: 1 of 2 named, right; train/V0001:
# nothing. So 4 right of 6 named and of 8 due; resistance (1 + 1/2 + 1) / 3.
@sample(
    "lmod",
    cases=["OIMHS/100_17", "OIMHS/100_18", "REFUGE/test/V0001", "REFUGE/train/V0001"],
    replies={
        "OIMHS/100_17": "Region ID: 1; Type: mh; Region ID: 2; Type: choroid; Region ID: 3; Type: Choroid",
        "OIMHS/100_18": "Region ID: 1; Type: irc; Region ID: 2; Type: retina",
        "REFUGE/test/V0001": "Region ID: 2; Type: Optic disc",
    },
    scores={
        "region_precision": 4 / 6,
        "region_recall": 4 / 8,
        "region_f1": 8 / 14,
        "region_precision_ids": 2.5 / 3,
        "unanswered": 1 / 4,
    },
    text=(
        "This is an ophthalmology OCT image. Please identify the type of each labeled bounding box in this image. "
        "Options can be: irc, retina, choroid, mh. Please just follow the format: Region ID: 1; Type: <answer>; ..."
    ),
)
def lmod(root):
    """OCT and fundus, whose drawn images have other names; an image without boxes; a name in two split folders."""
    _lmod_images(root)


# One right; of the other, "glaucoma" is only a part of what is denied.
@sample(
    "lmod_glaucoma",
    cases=["REFUGE/test/V0001", "REFUGE/train/V0001"],
    replies={
        "REFUGE/test/V0001": "NON-GLAUCOMA; Explanation: There is no sign of glaucoma.",
        "REFUGE/train/V0001": "NON-GLAUCOMA; Explanation: A healthy rim.",
    },
    scores={"accuracy": 1 / 2, "unanswered": 0},
    text=(
        "This is a color fundus image of type Fundus RGB Images. Based on the image, please tell me whether this image "
        "contains glaucoma, then give detailed justifications. Follow the format: GLAUCOMA / NON-GLAUCOMA; "
        "Explanation: <JUSTIFICATION>."
    ),
)
def lmod_glaucoma(root):
    """A label that says nothing."""
    _lmod_images(root)


# The first is right, the second names no stage that there is.
@sample(
    "lmod_macular_hole",
    cases=["OIMHS/100_17", "OIMHS/100_18"],
    replies={
        "OIMHS/100_17": "Stage: 4; Justification: The hole is 600 um wide, unlike in stage 2.",
        "OIMHS/100_18": "Stage: 7; Justification: It is large.",
    },
    scores={"accuracy": 1 / 2, "unanswered": 1 / 2},
    text=(
        "This is an ophthalmology OCT image. Based on the image, please tell me the stage of macular hole decision. "
        "Then, give a detailed justification and explanation for your answer. Follow the format: Stage: <AN INTEGER>; "
        "Justification: <EXPLANATION>."
    ),
)
def lmod_macular_hole(root):
    """Stages as numbers."""
    _lmod_images(root)


def volume(path, shape):
    """Writes a volume whose voxels are 10 times their sagittal slice's number, in RAS."""
    path.parent.mkdir(parents=True, exist_ok=True)
    levels = 10 * np.arange(shape[0], dtype=np.float32)[:, None, None]
    nib.save(nib.Nifti1Image(np.broadcast_to(levels, shape).copy(), np.diag([1.0, 1.0, 2.0, 1.0])), path)


def _tumour(number, kind, subtype, question, answer, options, letter, **more):
    return {
        "qid": f"bench_{number}",
        "image_id": f"BDMAP_{number % 2}",
        "spacing": "[0.83 0.83 5.0]",
        "shape": "(512, 512, 116)",
        "sex": "Male",
        "age": 61.0,
        "question": question,
        "answer": answer,
        "mc_question": f"{question} {options}",
        "correct_option": letter,
        "organ": "liver",
        "lesion": False,
        "question_type": kind,
        "question_subtype": subtype,
        "requires_tools": ["segment_organ", "measure"],
        **more,
    }


def _tumours():
    volumes = "A: 120 cm³ B: 1500.5 cm³ C: 900 cm³ D: 40 cm³"
    grades = "A: Normal (no splenomegaly) B: Moderate C: Severe D: Mild"
    number = ("measurement", "organ volume measurement")
    return [
        _tumour(1, *number, "What is the volume of the liver?", "1500.5 cm³", volumes, "B"),
        _tumour(2, "recognition", "liver lesion existence", "Is there a lesion?", "No", "A: Yes B: No", "B", sex=None),
        _tumour(3, "medical reasoning", "splenomegaly grading", "How large is the spleen?", "Mild", grades, "D"),
        _tumour(4, *number, "What is the volume of the spleen?", "200", "A: 1 B: 200 C: 30 D: 2000", "B", age=None),
        _tumour(5, "recognition", "kidney cyst existence", "Is there a cyst?", "Yes", "A: Yes B: No", "A"),
    ]


SYSTEM = (
    "You are a radiology AI assistant. You read abdominal CT scans and answer clinical questions using the visual "
    "evidence and any patient context provided. Be concise and follow the answer-format instructions exactly."
)
PATIENT = (
    "The image is a single axial CT slice from the patient's abdomen (window width 400, level 50).\n"
    "Patient: sex=Male, age=61.0.\nVoxel spacing (mm): [0.83 0.83 5.0].  Volume shape: (512, 512, 116).\n"
)


# 1 and 3 right, 2 wrong, 4 and 5 not answered. The authors' rule takes the A of "Answer" for an option: 1 is wrong.
@sample(
    "deeptumorvqa_v2",
    cases=["bench_1", "bench_2", "bench_3", "bench_4", "bench_5"],
    replies={"bench_1": "Answer: B", "bench_2": "A", "bench_3": "<think>A?</think>D"},
    scores={"accuracy": 2 / 5, "unanswered": 2 / 5},
    authors={"accuracy": 1 / 5, "unanswered": 2 / 5},
    text=(
        f"{SYSTEM}\n{PATIENT}What is the volume of the liver? A: 120 cm³ B: 1500.5 cm³ C: 900 cm³ D: 40 cm³\n"
        "Answer with ONLY the single letter (A, B, C, or D)."
    ),
)
def deeptumorvqa_v2(root):
    """Options within the question; a patient of whom little is known; two questions on one volume."""
    write_json(root / "benchmark" / "test_qa.json", {"version": 2, "num_questions": 5, "questions": _tumours()})
    for place in range(2):
        picture(root / "benchmark" / "images_2d" / "whole" / f"BDMAP_{place}.png", place)


# 1: |1350.45 - 1500.5| / 1500.5 is 10 %, worth 0.9; 4: 350 for 200 is 75 % off, worth 0.25. 2 is right and 3 a phrase
# that contains "mild"; 5 is wrong. Of all numbers and yes-no questions, one of four is right.
@sample(
    "deeptumorvqa_v2_free",
    cases=["bench_1", "bench_2", "bench_3", "bench_4", "bench_5"],
    replies={
        "bench_1": "1350.45",
        "bench_2": "No.",
        "bench_3": "mild splenomegaly",
        "bench_4": "About 350 cm3",
        "bench_5": "no",
    },
    scores={
        "accuracy": 1 / 4,
        "relative_accuracy": (0.9 + 0.25) / 2,
        "accuracy_within_percent@5": 0,
        "accuracy_within_percent@10": 1 / 2,
        "accuracy_within_percent@50": 1 / 2,
        "yes_specificity": 1,
        "yes_sensitivity": 0,
        "exact_match": 0,
        "answer_contains_reference": 1,
        "unanswered": 0,
    },
    authors={"relative_accuracy": (0.9 + 0.25) / 2},
    text=(
        f"{SYSTEM}\n{PATIENT}What is the volume of the liver?\nAnswer with a single number (no units, no extra words)."
    ),
)
def deeptumorvqa_v2_free(root):
    """Numbers with a unit and without, yes and no, phrases."""
    deeptumorvqa_v2(root)


# 7 is right and 8 wrong.
@sample(
    "deeptumorvqa_v1",
    cases=["7", "8"],
    replies={"7": "C", "8": "B"},
    scores={"accuracy": 1 / 2, "unanswered": 0},
    authors={"accuracy": 1 / 2},
    text=(
        f"{SYSTEM}\nThe image is a single axial CT slice from the patient's abdomen (window width 400, level 50).\n"
        "Patient: sex=Female, age=65.0.\nVoxel spacing (mm): [0.8222656 0.8222656 2.5 ].  Volume shape: (6, 4, 5).\n"
        "How many lesions are there?\nA: 1\nB: 2\nC: 3\nD: 4\nAnswer with ONLY the single letter (A, B, C, or D)."
    ),
)
def deeptumorvqa_v1(root):
    """A table with a volume for each question."""
    volume(root / "ct" / "BDMAP_00000001" / "ct.nii.gz", (6, 4, 5))
    columns = (
        "question_id,image_id,spacing,shape,sex,age,scanner,contrast,question,answer,multiple_choice_question,"
        "correct_option,organ,lesion,question_type,question_subtype,split\n"
    )
    common = 'BDMAP_00000001,[0.8222656 0.8222656 2.5 ],"(6, 4, 5)",Female,65.0,siemens,Venous'
    (root / "validation.csv").write_text(
        f"{columns}7,{common},How many lesions are there?,3,"
        '"How many lesions are there?\nA: 1\nB: 2\nC: 3\nD: 4",C,liver,tumor,visual reasoning,lesion_counting,'
        "validation\n"
        f'8,{common},Is there a cyst?,Yes,"Is there a cyst?\nA: Yes\nB: No",A,kidney,cyst,recognition,'
        "kidney_cyst_existence,validation\n"
    )


VER_BENCH = (
    "Analyze the image, first answer the question. Then provide a description of the visual clues supporting the "
    "answer and the reasoning, paying special attention to those unobtrusive details that contain rich information. "
    "Avoid discussing image quality, shooting techniques or angles, and avoid diverging towards art, literature, etc. "
    "Note that the visual description should only involve the objectively existing content in the image. Note that "
    "some images have more than two clues, and you should find all clues that can support the answer (especially those "
    "visual information with a small visual proportion). Directly output a JSON format, and the example output is "
    "as follows. Note that no other characters should appear outside the JSON format\n```\n{\n"
    '  "answer": "...",\n  "visual clue": [\n    {\n      "clue1": "...",\n      "reasoning": "..."\n    },\n    {\n'
    '      "clue2": "...",\n      "reasoning": "..."\n    }\n  ]\n}\n```'
)


# The first has one word of {harbour, town} in {in, harbour}, so F1 1/2; the second is right, the third is not given.
@sample(
    "ver_bench",
    cases=["sa_1-1", "sa_2-1", "sa_2-2"],
    replies={
        "sa_1-1": '{"answer": "A harbour town", "visual clue": [{"clue1": "a mast", "reasoning": "A ship."}]}',
        "sa_2-1": '```json\n{"answer": "In winter.", "visual clue": []}\n```',
    },
    scores={"token_f1": (1 / 2 + 1 + 0) / 3, "exact_match": 1 / 3, "unanswered": 1 / 3},
    text=(f"Where was it taken?{VER_BENCH}"),
)
def ver_bench(root):
    """One question a file, and two, whose clues are lists of lists."""
    clues = [{"clue1": "a mast", "reasoning": "Ships have masts."}]
    write_json(
        root / "Annotation" / "sa_1.json",
        {"question": "Where was it taken?", "answer": "In a harbour.", "visual_clues": clues},
    )
    write_json(
        root / "Annotation" / "sa_2.json",
        {"question": ["When?", "By whom?"], "answer": ["In winter.", "A diver"], "visual_clues": [clues, clues]},
    )
    for number in (1, 2):
        picture(root / "Image" / f"sa_{number}.jpg", number)


KNEE = (
    'In this DESS MRI, grade the lesion. The output format should be a JSON object: {"MOAKS_scores": {"patella medial '
    'BML": {"Size of BML (including cyst)": (grade from 0-3), "Number of BML within subregion": (grade from 0-3)}}}'
)
LOOSE = 'In this DESS MRI, detect loose bodies. The form: {"loose_bodies_presence": {"presence": (0 | 1)}}'


# Question 1 of the first knee: one grade of two right; 69: right, with a name around it; the second knee has no
# answer to 69, and none is given to 1.
PATELLA = {"reasoning": ["Find the medial patella.", "Look for bright marrow.", "Measure its share."]}
PATELLA |= {"box": [0, 0, 0, 10, 10, 10]}


@sample(
    "reasonknee_3d",
    cases=["9010308_00M_20040915_10243212_1_1", "9010308_00M_20040915_10243212_1_69", "9010309_12M_20050915_1_2_1"],
    replies={
        "9010308_00M_20040915_10243212_1_1": (
            'The lesion is small. {"MOAKS_scores": {"patella medial BML": '
            '{"Size of BML (including cyst)": 1, "Number of BML within subregion": "3"}}}'
        ),
        "9010308_00M_20040915_10243212_1_69": '{"MOAKS_scores": {"loose_bodies_presence": {"presence": 1}}}',
    },
    scores={"grade_accuracy": (1 / 2 + 1 + 0) / 3, "unanswered": 1 / 3},
    text=f"You are a radiologist. You are given a question and a set of knee MRI images.\n{KNEE}",
    images=32,
)
def reasonknee_3d(root):
    """Every volume with every question; a location that was not graded; slices of a volume."""
    table = "patient_id,time,study_folder,series_folder,knee_side,path,image_filepath,label_filepath\n"
    knees = {"9010308,00M,20040915,10243212,1": "9010308/a_1.nii.gz", "9010309,12M,20050915,1,2": "9010309/b_2.nii.gz"}
    for row, name in knees.items():
        table += f"{row},../data/OAI/x,../data/images/{name},../data/masks/knee_000.nii.gz\n"
        volume(root / "data" / "images" / name, (160, 4, 4))
    (root / "data" / "split_files").mkdir(exist_ok=True)
    (root / "data" / "split_files" / "test_split.csv").write_text(table)
    for kind in ("zeroshot", "guided"):
        write_json(root / "data" / "question_files" / f"questions_nobbox_{kind}.json", {"1": KNEE, "69": LOOSE})

    def moaks(size, number):
        grades = {"Size of BML (including cyst)": size, "Number of BML within subregion": number}
        return {"MOAKS_scores": {"patella medial BML": grades}}

    first, second = (f"../data/images/{name}" for name in knees.values())
    write_json(
        root / "data" / "answers.json",
        [
            {"image_filepath": first, "question": "1", "answer": moaks(1, 2), **PATELLA},
            {"image_filepath": first, "question": "69", "answer": {"loose_bodies_presence": {"presence": 1}}},
            {"image_filepath": second, "question": "1", "answer": moaks(0, 3)},
        ],
    )


RIGHT_PATELLA = {"patella medial BML": {"Size of BML (including cyst)": 1, "Number of BML within subregion": 2}}


def knee_right(case):
    """The right answer, with the steps and the box that are known of it."""
    key = case.target.read()
    box = {"box": key.more["box"]} if key.more.get("box") else {}
    return "\n".join(key.more.get("reasoning") or ()) + json.dumps({**key.value, **box})


# Of the first: both grades right; (0, 0, 5) to (10, 10, 15) shares half with the box: 500 / 1500. Of 3 steps two are
# said, the last before the first: in order one. The other two have neither box nor steps; the last is not answered.
@sample(
    "reasonknee_3d_reasoning",
    cases=["9010308_00M_20040915_10243212_1_1", "9010308_00M_20040915_10243212_1_69", "9010309_12M_20050915_1_2_1"],
    replies={
        "9010308_00M_20040915_10243212_1_1": "1. I measure its share.\n2. I find the medial part of the patella.\n"
        + json.dumps({"MOAKS_scores": RIGHT_PATELLA, "box": [0, 0, 5, 10, 10, 15]}),
        "9010308_00M_20040915_10243212_1_69": '{"MOAKS_scores": {"loose_bodies_presence": {"presence": 1}}}',
    },
    scores={
        "grade_accuracy": 2 / 3,
        "graded_box_iou": 1 / 3,
        "grounded_grades@0.5": 0,
        "grounded_grades@0.3": 1,
        "reasoning_steps_said@0.5": 2 / 3,
        "reasoning_steps_ordered@0.5": 1 / 3,
        "unanswered": 1 / 3,
    },
    text=(
        "You are a radiologist. You are given a question and a set of knee MRI images.\n"
        f"{KNEE} Write your reasoning before it in numbered steps, and put the place into the same JSON object, as "
        '"box": [x1, y1, z1, x2, y2, z2] in mm from the first voxel of the volume, along its columns, rows and slices.'
    ),
    images=32,
    perfect=knee_right,
)
def reasonknee_3d_reasoning(root):
    """The guided questions; a box and steps of one knee."""
    reasonknee_3d(root)
