"""What `score FILES=` takes above a script of one's own that reads the same files and calls the metrics, in turns.

    python benchmarks/score_files.py [--turns 5] [--out RESULTS.json]

CPU seconds are those of all processes of either, start included; the command's also hold intervals, stored scores and
the table. Modules are compiled before the first turn, as those of an installed package are. Made-up data (seeded).
Figures are medians over turns.
"""

import argparse
import csv
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import nibabel as nib
import numpy as np
from PIL import Image
from scipy.ndimage import gaussian_filter

HERE = Path(__file__).resolve().parent

SCRIPTS = {
    "masks": """
from pathlib import Path
import nibabel as nib, numpy as np
from medimg_eval.metrics import segmentation_scores
for path in sorted(Path("right").iterdir()):
    one, other = nib.load(Path("mine") / path.name), nib.load(path)
    segmentation_scores(np.asarray(one.dataobj), np.asarray(other.dataobj), other.header.get_zooms(),
                        labels={1: "liver", 2: "tumour"}, metrics=["dice", "iou", "hd95", "assd", "nsd@1"])
""",
    "pictures": """
from pathlib import Path
import numpy as np
from PIL import Image
from medimg_eval.metrics import fidelity
def features(folder):
    files = sorted(Path(folder).iterdir())
    return np.stack([np.asarray(Image.open(one).resize((16, 16), Image.BOX), float).ravel() / 255 for one in files])
made, real = features("made"), features("real")
for name in ("frechet_distance", "kernel_distance", "precision", "recall", "density", "coverage", "vendi_score"):
    getattr(fidelity, name)(real, made)
""",
    "boxes": """
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
right = COCO("right.json")
judge = COCOeval(right, right.loadRes("found.json"), "bbox")
judge.evaluate(), judge.accumulate(), judge.summarize()
""",
    "points": """
import csv, math
right = {(row["case"], row["label"]): row for row in csv.DictReader(open("landmarks.csv"))}
found = [(row, right[row["case"], row["label"]]) for row in csv.DictReader(open("points.csv"))]
print(sum(math.dist(*[(float(one["x"]), float(one["y"])) for one in pair]) for pair in found) / len(found))
""",
    "classes": """
import pandas as pd
from sklearn.metrics import average_precision_score, brier_score_loss, f1_score, roc_auc_score
table = pd.read_csv("classes.csv")
for metric in (roc_auc_score, average_precision_score, brier_score_loss):
    print(metric(table["label"], table["probability"]))
print(f1_score(table["label"], table["probability"] > 0.5))
""",
    "answers": """
import csv
rows = list(csv.DictReader(open("answers.csv")))
print(sum(row["prediction"].strip("(). ").upper().startswith(row["reference"]) for row in rows) / len(rows))
""",
    "reports": """
import csv
from medimg_eval.metrics.text import text_scores
rows = list(csv.DictReader(open("reports.csv")))
text_scores([row["reference"] for row in rows], [row["prediction"] for row in rows],
            metrics=["bleu@1", "bleu@4", "rouge_l", "meteor_no_synonyms", "cider_d"])
""",
}
COMMANDS = {
    "masks": ["masks=mine", "references=right", "labels={1: liver, 2: tumour}"],
    "pictures": ["pictures=made", "real=real"],
    "boxes": ["boxes=found.json", "references=right.json"],
    "points": ["points=points.csv", "references=landmarks.csv"],
    "classes": ["classes=classes.csv"],
    "answers": ["answers=answers.csv"],
    "reports": ["reports=reports.csv"],
}
SIZES = {
    "masks": "20 volumes of 96 x 96 x 40, 2 labels",
    "pictures": "300 against 300 of 128 x 128, features of pixels",
    "boxes": "500 images, 3 classes, 2,500 results",
    "points": "200 images of 19 landmarks",
    "classes": "2,000 cases, one class",
    "answers": "1,000 choices",
    "reports": "500 reports; labels by our rules are the command's alone",
}


def write_table(name: str, header: str, rows: list[tuple[object, ...]]) -> None:
    with Path(name).open("w", newline="") as file:
        csv.writer(file).writerows([header.split(","), *rows])


def write_data() -> None:
    rng = np.random.default_rng(0)
    for folder in ("mine", "right", "made", "real"):
        Path(folder).mkdir()
    for case in range(20):
        labels = np.zeros((96, 96, 40), np.uint8)
        labels[20:60, 20:60, 5:30], labels[70:80, 70:80, 10:20] = 1, 2
        for folder, shift in (("right", 0), ("mine", 1 + case % 3)):
            nib.save(
                nib.Nifti1Image(np.roll(labels, shift, 0), np.diag([-1, -1, 2, 1.0])), f"{folder}/{case:02d}.nii.gz"
            )
    for folder in ("made", "real"):
        for number in range(300):
            grey = gaussian_filter(rng.normal(size=(128, 128)), 6)
            Image.fromarray(np.uint8(255 * (grey - grey.min()) / np.ptp(grey))).save(f"{folder}/{number:03d}.png")
    images = [{"id": n, "file_name": f"{n}.png", "height": 512, "width": 512} for n in range(500)]
    boxes = [(n % 500, n % 3, rng.integers(0, 400, 2), rng.integers(10, 100, 2)) for n in range(2500)]
    right = [
        {
            "id": n + 1,
            "image_id": i,
            "category_id": c,
            "bbox": [*map(int, (*p, *s))],
            "area": int(s.prod()),
            "iscrowd": 0,
        }
        for n, (i, c, p, s) in enumerate(boxes)
    ]
    found = [
        {
            "image_id": i,
            "category_id": c,
            "bbox": [*map(float, (*(p + rng.normal(0, 4, 2)), *s))],
            "score": rng.random(),
        }
        for i, c, p, s in boxes
    ]
    categories = [{"id": n, "name": f"class {n}"} for n in range(3)]
    Path("right.json").write_text(json.dumps({"images": images, "annotations": right, "categories": categories}))
    Path("found.json").write_text(json.dumps(found))
    points = [(n, f"l{k}", *rng.integers(0, 2000, 2)) for n in range(200) for k in range(19)]
    write_table("landmarks.csv", "case,label,x,y", points)
    write_table("points.csv", "case,label,x,y", [(n, k, *np.add((x, y), rng.normal(0, 5, 2))) for n, k, x, y in points])
    truth = rng.integers(0, 2, 2000)
    said = 1 / (1 + np.exp(-rng.normal(truth - 0.5, 1)))
    write_table(
        "classes.csv", "case,label,probability", [(n, *one) for n, one in enumerate(zip(truth, said, strict=True))]
    )
    letters = rng.choice([*"ABCD"], (1000, 2))
    write_table(
        "answers.csv", "id,reference,prediction", [(n, right, f"({said})") for n, (right, said) in enumerate(letters)]
    )
    words = ["no", "effusion", "mild", "edema", "heart", "is", "normal", "opacity", "in", "the", "left", "base"]
    texts = [" ".join(rng.choice(words, 40)) for _ in range(1000)]
    write_table("reports.csv", "id,reference,prediction", [(n, texts[n], texts[n + 500]) for n in range(500)])


def cpu_of(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    paths = os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": ""}
    environment |= {"MEDIMG_EVAL_CACHE": tempfile.mkdtemp(dir=".")}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "score_files.json")
    asked = parser.parse_args()
    out, rows = asked.out.resolve(), {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_data()
        for kind, words in COMMANDS.items():
            turns = []
            for turn in range(asked.turns + 1):
                own = cpu_of([sys.executable, "-c", SCRIPTS[kind]])
                turns.append((own, cpu_of([sys.executable, "-m", "medimg_eval", "score", *words, f"runs=runs{turn}"])))
            turns = turns[1:]  # the first compiles
            own, command = (statistics.median(one) for one in zip(*turns, strict=True))
            above = statistics.median(command - own for own, command in turns)
            rows[kind] = {"data": SIZES[kind], "script CPU s": own, "command CPU s": command, "above CPU s": above}
            print(kind, rows[kind], flush=True)
    rounded = {
        kind: {k: round(v, 2) if isinstance(v, float) else v for k, v in row.items()} for kind, row in rows.items()
    }
    said = {"turns": asked.turns, "python": platform.python_version(), "processors": os.cpu_count(), "rows": rounded}
    out.write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main()
