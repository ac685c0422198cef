"""Samples of questions about videos."""

import numpy as np

from medimg_eval.imaging.video import write_video
from tests.helpers.catalogue import agents, picture, sample, write_lines

CITING = (
    "Answer, and cite the evidence as the time in seconds from the beginning of the video where it is shown.\n"
    "End with two lines:\nEvidence: [start, end]\nAnswer: the answer"
)


def write_clip(path, frames=40, fps=2):
    """A video of twenty seconds whose frames are told apart by how bright they are: 6 more each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shades = 6 * np.arange(frames, dtype=np.uint8)
    write_video(path, np.broadcast_to(shades[:, None, None, None], (frames, 32, 48, 3)).copy(), fps=fps)


def clinvideo(root):
    """One video, with two choices and an open question; the second choice has evidence in two places."""
    write_clip(root / "videos" / "a.mp4")
    options = {"A": "grasper", "B": "hook", "C": "clipper"}
    base = {"video": "a.mp4", "source": "OphVL", "domain": "in"}
    write_lines(
        root / "clinvideo_qa.jsonl",
        [
            {
                "id": "1",
                "kind": "choice",
                "question": "Which tool?",
                "options": options,
                "answer": "B",
                "evidence": [[10, 20]],
            }
            | base,
            {"id": "2", "kind": "choice", "question": "Which now?", "options": options, "answer": "clipper"}
            | {"evidence": [[2, 4], [6, 8]], **base, "domain": "out", "source": "SurgVidLM"},
            {"id": "3", "kind": "open", "question": "What is cut?", "options": {}, "answer": "cystic duct"}
            | {"evidence": [[0, 4]], **base},
        ],
    )
    write_lines(
        root / "clinvideo_grounding.jsonl",
        [
            {"id": "1", "question": "When is the clip placed?", "answer": "10-20 s"} | base,
            {"id": "2", "question": "When is it cut?", "answer": ["2-4 s", "6-8 s"]} | base | {"domain": "out"},
        ],
    )


def cited_right(case):
    """The right answer with its first evidence."""
    key = case.target.read()
    start, end = key.more["evidence"][0]
    return f"Evidence: [{start}, {end}]\nAnswer: {key.value}"


# 1: right, (15, 25) against (10, 20): 1/3, of two spans the first. 2: A, and C is right; (6, 9) against (6, 8): 2/3.
# 3: not answered. The union of 1: 15-25 and 0-1 against 10-20 is 5 / 16; of 2: 6-9 against 2-4 and 6-8 is 2 / 5.
@sample(
    "clinvideo_qa",
    cases=["1", "2", "3"],
    replies={"1": "Evidence: [15, 25], [0, 1]\nAnswer: B", "2": "From 1-2 s on.\nEvidence: 6 s to 9 s.\nAnswer: A"},
    scores={
        "accuracy_or_exact_match": 1 / 3,
        "evidence_iou": (1 / 3 + 2 / 3) / 3,
        "evidence_iou_at@0.3": 2 / 3,
        "evidence_iou_at@0.5": 1 / 3,
        "evidence_union_iou": (5 / 16 + 2 / 5) / 3,
        "grounded_accuracy@0.5": 0,
        "grounded_accuracy@0.3": 1 / 3,
        "unanswered": 1 / 3,
    },
    images=16,
    perfect=cited_right,
    best={"evidence_union_iou": (1 + 1 / 2 + 1) / 3},
    text=f"Which tool?\nA. grasper\nB. hook\nC. clipper\n{CITING}, a letter of A, B, C",
)
def clinvideo_qa(root):
    """Choices by letter and by text, and an open question, in one file."""
    clinvideo(root)


@sample(
    "clinvideo_grounding",
    cases=["1", "2"],
    replies={"1": "15-25", "2": "About 00:06 to 00:08."},
    scores={"span_iou": (1 / 3 + 1) / 2, "span_iou_at@0.3": 1, "span_iou_at@0.5": 1 / 2, "unanswered": 0},
    images=16,
    perfect=lambda case: case.target.read().value if case.id == "1" else "6-8",
    text=(
        "When is the clip placed?\nAnswer with the time in seconds from the beginning of the video alone, as start-end."
    ),
)
def clinvideo_grounding(root):
    """One right span, and several of which each is right."""
    clinvideo(root)


@agents(
    "clinvideo_qa_agent",
    cases=["1", "2", "3"],
    replies={"1": "Evidence: [15, 25]\nAnswer: B", "2": "Evidence: 6 s to 9 s\nAnswer: A"},
    scores={"accuracy_or_exact_match": 1 / 3, "evidence_iou": (1 / 3 + 2 / 3) / 3, "unanswered": 1 / 3},
    images=16,
    text=f"Which tool?\nA. grasper\nB. hook\nC. clipper\n{CITING}, a letter of A, B, C",
)
def clinvideo_qa_agent(root):
    """The same questions."""
    clinvideo(root)


LETTER = "Answer with the letter alone."


def listed(answers):
    """Options as they are put."""
    return "\n".join(f"{chr(65 + place)}. {answer}" for place, answer in enumerate(answers))


KIDNEY = ["kidney", "Idle", "Grasping", "Retraction", "Tissue_Manipulation", "Tool_Manipulation", "Cutting"]
KIDNEY += ["Cauterization", "Suction", "Looping", "Suturing", "Clipping", "Staple", "Ultrasound_Sensing"]
KIDNEY += ["left-top", "right-top", "left-bottom", "right-bottom"]
GALLBLADDER = ["no", "calot triangle dissection", "yes", "1", "2", "gallbladder dissection", "clipping cutting"]
GALLBLADDER += ["gallbladder retraction", "0", "cleaning coagulation", "gallbladder packaging", "preparation", "3"]


def endovis(root):
    """A file for each frame, a line for each question, without names of columns; a frame of training."""
    for sequence, frame in ((1, "frame000"), (5, "frame001"), (16, "frame002"), (2, "frame000")):
        folder = root / f"seq_{sequence}" / "vqa" / "Classification"
        folder.mkdir(parents=True, exist_ok=True)
        lines = ["What organ is being operated?|kidney", "What is the state of forceps?|Tissue_Manipulation"]
        (folder / f"{frame}_QA.txt").write_text("\n".join(lines[: 2 if sequence == 1 else 1]) + "\n")
        picture(root / f"seq_{sequence}" / "left_frames" / f"{frame}.png", sequence)
    for sequence in (3, 4, 6, 7, 9, 10, 11, 12, 14, 15):
        folder = root / f"seq_{sequence}" / "vqa" / "Classification"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "frame000_QA.txt").write_text("What organ is being operated?|kidney\n")


# Right, wrong (C is Grasping), right, not answered: kidney is 2 of 3; F1 of kidney 2 x 2 / (2 + 3), of the other two 0.
@sample(
    "endovis18_vqa",
    cases=["seq_1-frame000-1", "seq_1-frame000-2", "seq_5-frame001-1", "seq_16-frame002-1"],
    replies={"seq_1-frame000-1": "A", "seq_1-frame000-2": "C", "seq_5-frame001-1": "A. kidney"},
    scores={"accuracy": 2 / 4, "unanswered": 1 / 4},
    text=f"What organ is being operated?\nChoose from:\n{listed(KIDNEY)}\n{LETTER}",
)
def endovis18_vqa(root):
    """The sequences that the authors validate on."""
    endovis(root)


@sample(
    "cholec80_vqa",
    cases=["5-0-1", "5-100-1", *(f"{video}-0-1" for video in (11, 12, 17, 19, 26, 27, 31))],
    replies={"5-0-1": "L", "5-100-1": "C"},
    scores={"accuracy": 2 / 9, "unanswered": 7 / 9},
    text=f"What is the phase of image?\nChoose from:\n{listed(GALLBLADDER)}\n{LETTER}",
)
def cholec80_vqa(root):
    """Every hundredth frame of a video; the others are left out."""
    for video in (5, 11, 12, 17, 19, 26, 27, 31):
        folder = root / "Classification" / str(video)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "0_QA.txt").write_text("What is the phase of image?|preparation\n")
        picture(root / "cropped_image" / str(video) / "0.png", video)
        if video == 5:
            (folder / "25_QA.txt").write_text("Is it safe?|no\n")
            (folder / "100_QA.txt").write_text("Is a grasper used?|yes\n")
            picture(root / "cropped_image" / "5" / "100.png", 99)
