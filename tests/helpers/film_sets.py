"""Fixtures of public sets of surgical films and poses, in their authors' layout."""

import json
import pickle

import numpy as np

from medimg_eval.imaging.video import write_video
from tests.helpers.benchmark_files import config, picture

PHASES = ["Preparation", "CalotTriangleDissection", "ClippingCutting", "GallbladderDissection"]
PHASES += ["GallbladderPackaging", "CleaningCoagulation", "GallbladderRetraction"]
TOOLS = ["Grasper", "Bipolar", "Hook", "Scissors", "Clipper", "Irrigator", "SpecimenBag"]
ENDOSCAPES = ["cystic_plate", "calot_triangle", "cystic_artery", "cystic_duct", "gallbladder", "tool"]


def write_cholec80(root):
    """Eighty videos of seven seconds, a phase each, whose number is that of the tool; frames between are of phase 0."""
    for folder in ("phase_annotations", "tool_annotations"):
        (root / folder).mkdir()
    phases = "".join(f"{k}\t{PHASES[k // 25 if k % 25 == 0 else 0]}\n" for k in range(175))
    tools = "".join(f"{25 * k}\t" + "\t".join(str(int(k == j)) for j in range(7)) + "\n" for k in range(7))
    for number in range(1, 81):
        (root / f"phase_annotations/video{number:02d}-phase.txt").write_text(f"Frame\tPhase\n{phases}")
        (root / f"tool_annotations/video{number:02d}-tool.txt").write_text("\t".join(["Frame", *TOOLS]) + f"\n{tools}")


def write_pitvis(root):
    """A video of ten seconds; 2 s are outside, 1 s is of a step that is not judged."""
    steps = [0, 0, 0, 0, 1, 1, -1, 11, 2, 2]
    tools = [(1, -2), (3, -2), (3, -2), (1, 3), (-1, -2), (-1, -2), (-1, -2), (-1, -2), (0, 18), (1, -2)]
    rows = [f"{k},{step},{one},{two}\n" for k, (step, (one, two)) in enumerate(zip(steps, tools, strict=True))]
    (root / "annotations_01.csv").write_text("int_time,int_step,int_instrument1,int_instrument2\n" + "".join(rows))
    return steps, tools


def triplet_vector(triplet, instrument=0):
    return [triplet, instrument, 1, 0.1, 0.1, 0.2, 0.2, 0, 0, -1, -1, -1, -1, -1, 1]


def write_cholect50(root, frames=3):
    """Fifty videos; frame k shows triplet k and, in the first, also the last one."""
    names = list(config("cholect50").presence)
    content = {
        "categories": {"triplet": {str(k): name for k, name in enumerate(names)}, "phase": {"1": "dissection"}},
        "annotations": {str(k): [triplet_vector(k), *([triplet_vector(99)] if k == 0 else [])] for k in range(frames)},
    }
    splits = config("cholect50").layout.splits.names
    (root / "labels").mkdir()
    for video in [video for part in splits.values() for video in part]:
        (root / f"labels/{video}.json").write_text(json.dumps(content))
    return names


def write_cholect45(root, frames=2):
    """Forty-five tables of triplets; frame k shows triplet k. Returns the names of the videos."""
    (root / "triplet").mkdir()
    videos = [video for fold in config("cholect45").layout.splits.names.values() for video in fold]
    for video in videos:
        rows = [f"{k}," + ",".join(str(int(j == k)) for j in range(100)) for k in range(frames)]
        (root / f"triplet/{video}.txt").write_text("\n".join(rows) + "\n")
    return videos


def write_multibypass(root):
    spans = [(0, 6000, "preparation"), (2000, 3000, "out_of_body"), (4000, 5000, "severe_index")]
    spans += [(6000, 8000, "gastric_pouch_creation")]
    phases = [{"start": a, "end": b, "label_name": name, "label_id": 0} for a, b, name in spans]
    steps = [{"start": 1000, "end": 3000, "label_name": "s1_cavity_exploration", "label_id": 1}]
    for centre, video in (("bern", "BBP01"), ("bern", "BBP02"), ("strasbourg", "SBP01")):
        folder = root / f"labels/{centre}/labels_by70"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{video}.mp4.json").write_text(json.dumps({"phases": phases, "steps": steps}))
        for part, name in (("train", "1fps_100_0"), ("val", "1fps_0"), ("test", "1fps_0")):
            folder = root / f"labels/{centre}/labels_by70_splits/labels/{part}"
            folder.mkdir(parents=True, exist_ok=True)
            held = {"train": ["BBP01"], "val": [], "test": ["BBP02" if centre == "bern" else "SBP01"]}[part]
            rows = {
                video: [{"Frame_id": "x", "Phase_gt": 0}] for video in held if held != ["BBP01"] or centre == "bern"
            }
            (folder / f"{name}.pickle").write_bytes(pickle.dumps(rows))


def write_jigsaws(root):
    (root / "Suturing/transcriptions").mkdir(parents=True)
    lines = ""
    for surgeon in "BCDEFGHI":
        for trial in (1, 2):
            name = f"Suturing_{surgeon}{trial:03d}"
            (root / f"Suturing/transcriptions/{name}.txt").write_text("1 2 G1 \n3 3 G5 \n")
            lines += f"{name}\t\tN\t{10 + trial}\t\t1\t2\t2\t3\t3\t2\n"
    (root / "Suturing/meta_file_Suturing.txt").write_text(lines)


def write_endoscapes(root):
    """Two frames of a video in each part, with the means of three raters, and a gallbladder in one."""
    for split, video in (("train", 1), ("val", 121), ("test", 162)):
        (root / split).mkdir()
        images = [
            {"file_name": f"{video}_5850.jpg", "ds": [0.0, 2 / 3, 1.0]},
            {"file_name": f"{video}_5975.jpg", "ds": [1 / 3, 1.0, 0.0]},
        ]
        (root / split / "annotation_ds_coco.json").write_text(json.dumps({"images": images}))
        boxes = {
            "images": [{"id": 7, "file_name": f"{video}_5850.jpg", "height": 48, "width": 85}],
            "annotations": [
                {"id": 1, "image_id": 7, "category_id": 5, "bbox": [10, 4, 30, 20], "area": 600, "iscrowd": 0}
            ],
            "categories": [{"id": number, "name": name} for number, name in enumerate(ENDOSCAPES, start=1)],
        }
        (root / split / "annotation_coco.json").write_text(json.dumps(boxes))
        picture(root / split / f"{video}_5850.jpg", np.zeros((48, 85, 3)))


def write_heichole(root):
    """Twenty-four videos of a hundred frames, some at 50 a second."""
    for name in ("Phase", "Instrument", "Action"):
        (root / "Annotations" / name).mkdir(parents=True)
        for number in range(1, 25):
            every = 50 if number in (16, 17, 18, 19, 20, 23, 24) else 25
            lines = {"Phase": "{p}", "Instrument": "0,1" + ",0" * 19, "Action": "0,0,1,0"}[name]
            rows = [f"{k}," + lines.format(p=k // every if k % every == 0 else 6) for k in range(100)]
            (root / f"Annotations/{name}/Hei-Chole{number}_Annotation_{name}.csv").write_text("\n".join(rows) + "\n")


def write_autolaparo(root):
    """Twenty-one videos of three seconds."""
    (root / "labels").mkdir()
    for number in range(1, 22):
        (root / f"labels/label_{number:02d}.txt").write_text("Frame\tPhase\n1\t0\n2\t0\n3\t6\n")


def write_sar_rarp(root):
    """Two videos to fit on and two to test, ten frames each."""
    for split, video in (("train1", 1), ("train2", 2), ("test", 41), ("test", 42)):
        folder = root / f"{split}/video_{video:02d}"
        folder.mkdir(parents=True)
        (folder / "action_discrete.txt").write_text("".join(f"{6 * k},{k // 5}\n" for k in range(10)))


def write_sar_masks(root):
    """Two videos to fit on and two to test, of two frames and one: a clasper, and in the first frame a thread."""
    for name, frames in (("train1/video_01", 1), ("train2/video_02", 1), ("test/video_41", 2), ("test/video_42", 1)):
        for frame in range(0, 60 * frames, 6):
            picture(root / name / f"rgb/{frame:09d}.png", np.full((40, 40, 3), frame))
        for frame in range(0, 60 * frames, 60):
            mask = np.zeros((40, 40))
            mask[2:32, 4:8] = 1
            mask[35, 10:30] = 5 * (frame == 0)
            picture(root / name / f"segmentation/{frame:09d}.png", mask)


def write_bleedorigin(root):
    """A clip of three frames of 240 x 320, bleeding from the second on."""
    for frame in range(3):
        picture(root / f"frames/esd1/{frame:06d}.png", np.zeros((240, 320, 3)))
    (root / "points.csv").write_text(
        "clip,frame,x,y,visible,source\nesd1,0,,,0,expert\nesd1,1,5,3,1,expert\nesd1,2,6,3,1,expert\n"
    )


def write_scoliosis(root):
    """A sequence of each class, of which one is tested."""
    poses = np.zeros((4, 17, 3))
    for number, name in enumerate(["Positive", "Neutral", "Negative"]):
        folder = root / f"Scoliosis1K-pose-pkl/{number:05d}/{name}/000_180"
        folder.mkdir(parents=True)
        (folder / "000_180.pkl").write_bytes(pickle.dumps(poses + number))
    split = {"TRAIN_SET": ["00000", "00001"], "TEST_SET": ["00002"]}
    (root / "Scoliosis1K_118.json").write_text(json.dumps(split))


def write_strokevision(root):
    """Two clips of two subjects."""
    (root / "keypoints").mkdir()
    for number in (1, 2):
        np.savez(root / f"keypoints/{number}.npz", poses=np.full((3, 17, 3), number))
    rows = "1,s01,grasp,train,keypoints/1.npz\n2,s02,release,test,keypoints/2.npz\n"
    (root / "clips.csv").write_text("clip,subject,label,split,keypoints\n" + rows)


def write_strokevision_clips(root):
    """Films of an action each, of four subjects; one is tested."""
    table = "clip,subject,label,split,video\n"
    rows = [
        ("s01", "grasp", "train"),
        ("s02", "release", "train"),
        ("s03", "release", "tune"),
        ("s04", "grasp", "test"),
    ]
    for number, (subject, label, split) in enumerate(rows, 1):
        write_video(root / f"{number}.mp4", np.full((6, 16, 16, 3), 60 * number, np.uint8), 4)
        table += f"{number},{subject},{label},{split},{number}.mp4\n"
    (root / "clips.csv").write_text(table)
