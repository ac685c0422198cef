"""How many changed copies the screen without weights finds, beside distances of pixels, and what that takes.

    python benchmarks/copies.py [--out RESULTS.json] [--patients 60] [--copies 40] [--large 10000] [--queries 1000]

Pictures are phantoms of four kinds, 256 x 256, in grey and in colour, split by patient and slide: one half is trained
on, the other are new patients. Copies of 18 kinds are made of the first at full size. A copy is found that passes what
1 % of the new pictures pass. Time is that of one thread, for `--queries` pictures against `--large` ones.
"""

import argparse
import io
import json
import os
import platform
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import cv2
import numpy as np
from PIL import Image
from scipy import ndimage

from medimg_eval.metrics.privacy import CopyFinder
from medimg_eval.models import Pixels
from medimg_eval.phantoms import endoscopy, mr, pathology, xray
from medimg_eval.phantoms.cohort import Member

EDGE = 256
ABOVE = 0.01


def as_picture(array):
    array = np.asarray(array, float)
    if array.ndim == 2:
        low, high = np.percentile(array, [0.5, 99.5])
        array = np.clip((array - low) / max(high - low, 1e-6), 0, 1) * 255
    picture = Image.fromarray(array.astype(np.uint8)).convert("RGB")
    short = min(picture.size)
    left, top = ((side - short) // 2 for side in picture.size)
    whole = picture.crop((left, top, left + short, top + short))
    return np.asarray(whole.resize((EDGE, EDGE), Image.Resampling.BOX))


def tiles(slide):
    rows, columns = (range(0, side - 511, 512) for side in slide.shape[:2])
    every = [slide[row : row + 512, column : column + 512] for row in rows for column in columns]
    return [tile for tile in every if tile.std() > 25][:2]


def shown(kind, member):
    if kind == "xray":
        return [xray.picture(member).image.array[0]]
    if kind == "mr":
        volume = mr.scan(member).image.array[0]
        return [np.rot90(volume[:, :, int(volume.shape[2] * share)]) for share in (0.4, 0.55)]
    if kind == "endoscopy":
        frames = endoscopy.clip(member).frames
        return [frames[0], frames[len(frames) // 2]]
    return tiles(pathology.slide(member).pixels)


def halves(patients):
    train, new = [], []
    for kind in ("xray", "mr", "endoscopy", "pathology"):
        count = 2 * patients if kind == "xray" else patients
        for number in range(count):
            member = Member(f"{kind}-{number:03d}", number, f"p{number}", number, "test", 3)
            (train if 2 * number < count else new).extend(as_picture(one) for one in shown(kind, member))
    return train, new


def changes(rng):
    """Name -> what makes a copy of a picture, uint8 (256, 256, 3)."""

    def clipped(values):
        return np.clip(values, 0, 255).astype(np.uint8)

    def moved(picture, degrees=0.0, shift=0):
        turn = cv2.getRotationMatrix2D((127.5, 127.5), degrees * rng.choice((-1, 1)), 1)
        turn[:, 2] += shift * rng.choice((-1, 1), 2)
        return cv2.warpAffine(picture, turn, (EDGE, EDGE), borderMode=cv2.BORDER_REFLECT_101)

    def cropped(picture, share):
        side = int(EDGE * share)
        row, column = rng.integers(0, EDGE - side + 1, 2)
        return cv2.resize(picture[row : row + side, column : column + side], (EDGE, EDGE))

    def jpeg(picture, quality):
        stream = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(picture)).save(stream, "JPEG", quality=quality)
        return np.asarray(Image.open(stream))

    def bent(picture, power):
        return clipped(255 * (picture / 255) ** power)

    return {
        "exact": lambda picture: picture,
        "flip": lambda picture: picture[:, ::-1] if rng.random() < 0.5 else picture[::-1],
        "brightness + 15": lambda picture: clipped(picture + 15.0),
        "brightness + 40": lambda picture: clipped(picture + 40.0),
        "contrast 0.8": lambda picture: clipped((picture - 128.0) * 0.8 + 128),
        "gamma 0.7": lambda picture: bent(picture, 0.7),
        "gamma 1.4": lambda picture: bent(picture, 1.4),
        "shift 4": lambda picture: moved(picture, shift=4),
        "shift 12": lambda picture: moved(picture, shift=12),
        "rotation 5": lambda picture: moved(picture, degrees=5),
        "rotation 15": lambda picture: moved(picture, degrees=15),
        "crop 95 %": lambda picture: cropped(picture, 0.95),
        "crop 85 %": lambda picture: cropped(picture, 0.85),
        "blur 2": lambda picture: cv2.GaussianBlur(picture, (0, 0), 2),
        "JPEG 30": lambda picture: jpeg(picture, 30),
        "noise 10": lambda picture: clipped(picture + rng.normal(0, 10, picture.shape)),
        "flip, crop, gamma": lambda picture: bent(cropped(picture[:, ::-1], 0.92), 1.3),
        "flip, turn, JPEG": lambda picture: jpeg(moved(np.ascontiguousarray(picture[:, ::-1]), 6, 5), 50),
    }


def squares(pictures):
    rows = Pixels(128).embed([Image.fromarray(np.ascontiguousarray(one)) for one in pictures])
    return rows.reshape(-1, 128, 128)


def nearest(pictures, train):
    """Distances of pixels to the nearest training picture, both of 64 x 64."""
    few = [ndimage.zoom(part, (1, 0.5, 0.5), order=1).reshape(len(part), -1) for part in (pictures, train)]
    norms = (few[1] ** 2).sum(1)
    return np.sqrt(np.maximum((norms[None] - 2 * few[0] @ few[1].T).min(1) + (few[0] ** 2).sum(1), 0))


def large(count, queries):
    rng = np.random.default_rng(1)
    pictures = np.stack([ndimage.gaussian_filter(rng.random((128, 128), np.float32), 2) for _ in range(count)])
    start = time.process_time()
    finder = CopyFinder(pictures)
    ready = time.process_time()
    finder.compare(pictures[:queries] + 0.01)
    took = time.process_time() - ready
    minutes = (ready - start + took * count / queries) / 60
    return {
        "training pictures": count,
        "pictures": queries,
        "getting ready, CPU s": round(ready - start, 1),
        "pictures, CPU s": round(took, 1),
        f"as many pictures, CPU min ({'measured' if queries == count else 'extrapolated'})": round(minutes, 1),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--patients", type=int, default=60)
    parser.add_argument("--copies", type=int, default=40)
    parser.add_argument("--large", type=int, default=10_000)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    wanted = parser.parse_args()
    cv2.setNumThreads(1)
    rng = np.random.default_rng(wanted.seed)
    train, new = halves(wanted.patients)
    known, others = squares(train), squares(new)
    finder = CopyFinder(known)
    bar = float(np.quantile(finder.compare(others).scores, 1 - ABOVE, method="higher"))
    near = float(np.quantile(nearest(others, known), ABOVE, method="lower"))
    recall, by_distance = {}, {}
    for name, change in changes(rng).items():
        chosen = rng.choice(len(train), min(wanted.copies, len(train)), replace=False)
        copies = squares([change(train[one]) for one in chosen])
        recall[name] = round(float((finder.compare(copies).scores > bar).mean()), 3)
        by_distance[name] = round(float((nearest(copies, known) < near).mean()), 3)
    result = {
        "machine": f"{platform.machine()}, one thread",
        "training pictures": len(train),
        "new pictures": len(new),
        "copies of each kind": min(wanted.copies, len(train)),
        "recall at 1 % of new pictures": {"all": round(float(np.mean(list(recall.values()))), 3), **recall},
        "distances of pixels": {"all": round(float(np.mean(list(by_distance.values()))), 3), **by_distance},
        "time": large(wanted.large, wanted.queries) if wanted.large else {},
    }
    text = json.dumps(result, indent=2)
    print(text)
    if wanted.out:
        wanted.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
