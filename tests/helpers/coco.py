"""Annotations and results in COCO's form, made up, and what pycocotools says of them."""

import contextlib
import io

import numpy as np
from pycocotools import mask as pycoco
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

ASKED = (
    *(f"coco_ap{of}" for of in ("", "@50", "@75", "@small", "@medium", "@large")),
    *(f"coco_ar{of}" for of in ("@1", "@10", "@100", "@small", "@medium", "@large")),
)
"""Our names of the twelve numbers, in the order of pycocotools."""

SIDE = 200


class WithIgnored(COCOeval):
    """COCO's evaluation where a key `ignore` of an annotation counts, which the original overwrites by `iscrowd`."""

    def _prepare(self):
        stated = {annotation["id"]: annotation.get("ignore", 0) for annotation in self.cocoGt.dataset["annotations"]}
        super()._prepare()
        for annotations in self._gts.values():
            for annotation in annotations:
                annotation["ignore"] = int(annotation["ignore"] or stated[annotation["id"]])


def content_of(annotations, images, categories):
    return {
        "info": {},
        "images": [{"id": n, "file_name": f"{n:04}.png", "height": SIDE, "width": SIDE} for n in range(1, images + 1)],
        "categories": [{"id": n, "name": f"class {n}"} for n in range(1, categories + 1)],
        "annotations": annotations,
    }


def pycocotools_says(content, results, kind="bbox", evaluation=WithIgnored):
    """The twelve numbers, NaN where pycocotools has -1."""
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = content
        truth.createIndex()
        run = evaluation(truth, truth.loadRes([dict(result) for result in results]), kind)
        run.evaluate()
        run.accumulate()
        run.summarize()
    return np.where(run.stats == -1, np.nan, run.stats)


def rectangle(box):
    left, top, width, height = box
    return [[left, top, left + width, top, left + width, top + height, left, top + height]]


def made_up(seed, *, masks=False):
    """Annotations and results with ties, crowds, ignored objects, empty images and classes, and more than 100 a case.

    Boxes are of whole pixels, so that areas meet the ends of the ranges and IoUs their thresholds.
    """
    random = np.random.default_rng(seed)
    images, categories = int(random.integers(1, 6)), int(random.integers(1, 5))
    annotations, results = [], []

    def box():
        size = random.choice([4, 8, 16, 24, 32, 40, 64, 96, 120], 2)
        return [*random.integers(0, SIDE - size).tolist(), *size.tolist()]

    for image in range(1, images + 1):
        own = [(int(random.integers(1, categories + 1)), box()) for _ in range(random.integers(0, 7))]
        for category, place in own:
            area = float(place[2] * place[3] * random.choice([1, 0.6]))
            flags = {"iscrowd": int(random.random() < 0.2)} | ({"ignore": 1} if random.random() < 0.15 else {})
            annotations.append(
                {"id": len(annotations) + 1, "image_id": image, "category_id": category, "bbox": place, "area": area}
                | flags
                | {"segmentation": rectangle(place)}
            )
        for _ in range(random.integers(0, 150 if seed % 10 == 0 else 15)):
            category, place = int(random.integers(1, categories + 1)), box()
            if own and random.random() < 0.7:
                category, place = own[random.integers(len(own))]
                place = np.maximum(np.array(place) + random.integers(-3, 4, 4), [0, 0, 1, 1]).tolist()
            score = float(random.random().__round__(1 if seed % 2 else 9))
            result = {"image_id": image, "category_id": category, "bbox": place, "score": score}
            if masks:
                drawn = np.zeros((SIDE, SIDE), np.uint8)
                left, top, width, height = place
                drawn[top : top + height, left : left + width] = 1
                drawn[random.random((SIDE, SIDE)) < 0.05] = 0
                encoded = pycoco.encode(np.asfortranarray(drawn))
                result["segmentation"] = {"size": [SIDE, SIDE], "counts": encoded["counts"].decode()}
                del result["bbox"]
            results.append(result)
    return content_of(annotations, images, categories), results
