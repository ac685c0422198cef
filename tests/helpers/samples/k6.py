"""Samples of the benchmarks that are conversations."""

from medimg_eval.question import Reply
from tests.helpers.catalogue import picture, sample, stored_picture, write_json, write_parquet

CHOICE = "(a) Yes (b) No (c) I don't know"
CRITERION = "(a) The width of the heart\n(b) The height of the aorta\n(c) None of the above"
PARTS = "Which images show the parts? (a) 1st image (b) 2nd image (c) 3rd image"
RANGES = "(a) [0.40, 0.45] (b) [0.45, 0.50] (c) [0.50, 0.55]"


def _stage(root, folder, case, question, answer, img_path=()):
    record = {"question": question, "answer": answer, "img_path": list(img_path), "measured_value": ""}
    write_json(root / "qa" / folder / f"{case}.json", record)


def _chain(root, task, case, right, *, custom=True):
    """The files of one chain; `right` is the letter of the right measurement."""
    masks = [f"/{task}/{case}_{number}.png" for number in range(3)]
    for number, name in enumerate(masks):
        picture(root / f"segmask_bodypart{name}", number)
    picture(root / "files" / "p10" / f"{case}.jpg", 7)
    picture(root / "pnt_on_cxr" / task / f"{case}.png", 8)
    shown = [f"p10/{case}.jpg"]
    value = {"a": "[0.40, 0.45]", "b": "[0.45, 0.50]", "c": "[0.50, 0.55]"}[right]
    for path in ("path1", "re-path1"):
        _stage(root, f"{task}/{path}/init/basic", case, f"Is it so in {case}? {CHOICE}", "(a) Yes", shown)
        _stage(
            root,
            f"{task}/{path}/stage1/refined",
            case,
            [f"Which criterion? {CRITERION}", f"And then? {CRITERION}"],
            ["(a) The width of the heart", "(b) The height of the aorta"],
        )
        _stage(
            root, f"{task}/{path}/stage2/basic", case, [PARTS], ["(a) 1st image, (c) 3rd image"], [masks]
        )  # a list of images for each question
        _stage(root, f"{task}/{path}/stage3/basic", case, f"Which range? {RANGES}", f"({right}) {value}")
        _stage(root, f"{task}/{path}/stage4/basic", case, f"So? VALUE and {CHOICE}", "(a) Yes, (b) No")
    if custom:
        _stage(root, f"{task}/path1/stage1.5/basic", case, f"By 0.5? {CHOICE}", "(a) Yes")
    _stage(
        root, f"{task}/path2/stage1/basic", case, [PARTS, PARTS], ["(b) 2nd image", "(c) 3rd image"], masks
    )  # images that both questions share
    _stage(
        root,
        f"{task}/path2/stage2/basic",
        case,
        f"Which range? {RANGES}",
        f"({right}) {value}",
        [f"/{task}/{case}.png"],
    )
    _stage(root, f"{task}/path2/stage3/basic", case, f"So? {CHOICE}", "(b) No")


def _final(text):
    return f"FINAL ANSWER: {text}"


RIGHT = [_final(text) for text in ("(a) Yes", "(a) The width of the heart", "(b) The height of the aorta")]
PATH_1 = [*RIGHT, _final("(a) Yes"), _final("(A) 1st image, (C) 3rd image")]


def _perfect(case):
    right = {"cardiomegaly-d1": "(b)", "cardiomegaly-d2": "(c)", "inclusion-d3": "(a)"}[case.id]
    value = {"(b)": "0.47", "(c)": "0.52", "(a)": "0.44"}[right]
    replies = [*PATH_1, _final(right), f"VALUE: {value}\n{_final('(b) No')}"]
    return Reply(tuple(replies if case.id != "inclusion-d3" else replies[:3] + replies[4:]))


# d1 does all six stages, and its value is in [0.45, 0.50]. d2 does not know at first: no stage of path 1, all three of
# path 2 with a value that is not in [0.50, 0.55], and not the first of five about d1. d3, which has no stage 1.5, is
# wrong at first, names the criteria, and says nothing of body parts: 1 of 5. So 10 of 6 + (6 + 3 + 5) + 5 stages.
# Sets are the first question and each path: d1 finishes 2 of 2, d2 1 of 4 (path 2), d3 0 of 2.
# Stages that were asked: 6, 1 + 3 + 1, 3, of which one has no answer.
@sample(
    "cxreasonbench",
    cases=["cardiomegaly-d1", "cardiomegaly-d2", "inclusion-d3"],
    replies={
        "cardiomegaly-d1": Reply((*PATH_1, _final("(b) [0.45, 0.50]"), f"VALUE: 0.47. {_final('(a) Yes')}")),
        "cardiomegaly-d2": Reply(
            (
                _final("(c) I don't know"),
                _final("(b) 2nd image"),
                _final("(c) 3rd image"),
                _final("(c) [0.50, 0.55]"),
                f"VALUE: 0.49\n{_final('(b) No')}",
                _final("(c) I don't know"),
            )
        ),
        "inclusion-d3": Reply((_final("(b) No"), *RIGHT[1:], "")),
    },
    scores={
        "accuracy": 10 / 25,
        "group_accuracy": 3 / 8,
        "step_hit_rate": 10 / 25,
        "accuracy_in_range": 1 / 2,
        "unanswered": 1 / 14,
    },
    text=(
        "You are a well-trained radiologist answering multiple-choice questions about a chest X-ray. Base your "
        "assessment solely on the chest X-ray itself, without considering labels or annotations in the upper corners. "
        "Rely purely on anatomical and radiographic features. Provide your response in the format: FINAL ANSWER: [YOUR "
        "FINAL ANSWER], including the letter of your choice followed by the selected option (e.g., FINAL ANSWER: (A) "
        "Yes). Always state your selected option first, then explain your reasoning if needed.\n"
        f"Is it so in d1? {CHOICE}"
    ),
    # Of d1, the X-ray and three masks by three names (in path 1, path 2 and path 1 again), and points; and those of d2.
    images=2 * (1 + 3 + 3 + 1 + 3),
    perfect=_perfect,
)
def cxreasonbench(root):
    """A file for each stage; one or several questions a stage; images a list, or a list for each question."""
    _chain(root, "cardiomegaly", "d1", "b")
    _chain(root, "cardiomegaly", "d2", "c")
    _chain(root, "inclusion", "d3", "a", custom=False)


LISTED = [
    *("eczema", "hives", "herpes", "allergic contact dermatitis", "contact dermatitis", "seborrheic dermatitis"),
    *("rosacea", "conjunctivitis", "tonsillitis", "chronic lichen", "keratosis pilaris", "molluscum contagiosum"),
    *("lichen planus", "periodontitis", "caries", "psoriasis", "ingrown nail", "stye", "acne", "onychomycosis"),
    *("seborrheic keratosis", "chalazion", "vitiligo", "shingles", "mycosis", "actinic keratosis", "onycholysis"),
    *("chickenpox", "dental calculus", "warts", "stomatitis", "abscess", "gingivitis", "nail dystrophy"),
]
DOCTOR = (
    "You are a highly experienced doctor with extensive medical expertise in a simulated world.\n"
    "Your task is to diagnose the patient and provide the recommendations.\n"
    f"The diagnosis should be chosen from this list: {LISTED}\n"
    "Pay attention to the provided image and use it to make your decisions. Mention the info obtained from the image "
    "in the dialogue.\n\n"
    "In a conversation, you need to provide a single diagnosis. If you do not have sufficient information yet, then "
    "inquire this information from the patient. Ask only one question at a time."
)


# 1 is right by a synonym, in a turn before the last; 2 is right; 3 says acne; 4 has two diagnoses, which is none. The
# F1 of hives and rosacea is 1, that of psoriasis and eczema 0, and each is right once.
@sample(
    "mdbench_3m",
    cases=[f"test-00000-of-00001-{number}" for number in range(1, 5)],
    replies={
        "test-00000-of-00001-1": Reply(("Since when?", "This is urticaria. Take a pill.", "You are welcome!")),
        "test-00000-of-00001-2": "Your diagnosis is Rosacea.",
        "test-00000-of-00001-3": "It looks like acne, not psoriasis.",
        "test-00000-of-00001-4": "It could be eczema or psoriasis.",
    },
    scores={"weighted_f1": 2 / 4, "accuracy": 2 / 4, "accuracy_matched": 2 / 4, "unanswered": 1 / 4},
    text=f"{DOCTOR}\nMy arm itches.\nRed spots; since a day",
)
def mdbench_3m(root):
    """Photographs in the table, diagnoses with and without a capital."""
    said = [
        ("My arm itches.", "Red spots; since a day", "sanguine", "Hives"),
        ("My cheeks burn.", "Redness", "choleric", "rosacea"),
        ("My elbow is scaly.", "Silver scales", "melancholic", "psoriasis"),
        ("My hand is dry.", "Cracks", "phlegmatic", "eczema"),
    ]
    write_parquet(
        root / "data" / "test-00000-of-00001.parquet",
        [
            {
                "image": stored_picture(number),
                "general_complaint": complaint,
                "complaints": symptoms,
                "personality": personality,
                "diagnosis": diagnosis,
            }
            for number, (complaint, symptoms, personality, diagnosis) in enumerate(said)
        ],
    )
