"""What each peer answers for the same two masks: where they agree with ours, and where with nobody.

    python benchmarks/peers.py [--oracles PYTHON] [RESULTS.json]

Peers that cannot live in our environment are asked through the Python of another one, into which
`pip install MedPy panoptica seg-metrics SimpleITK surface-distance` was done. Peers that are in neither are left out
and named. Prints the tables of docs/definitions/peers.md.
"""

import contextlib
import importlib.util
import json
import math
import os
import pickle
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np

TOLERANCE = 1.0
Values = dict[str, "float | str"]
Calls = dict[str, Callable[[], float]]
SEG_METRICS = {"dice": "dice", "hd": "hd", "hd95": "hd95", "assd": "msd"}
Masks = tuple[np.ndarray, np.ndarray, tuple[float, ...], float]


def box(shape: tuple[int, ...], *spans: tuple[int, int]) -> np.ndarray:
    """A mask that is True within a span of each axis."""
    mask = np.zeros(shape, bool)
    mask[tuple(slice(*span) for span in spans)] = True
    return mask


def blobs(shape: tuple[int, ...], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two smooth masks of several parts that agree in part."""
    from scipy.ndimage import gaussian_filter

    rng = np.random.default_rng(seed)
    one, other = (gaussian_filter(rng.standard_normal(shape), 2.5) for _ in range(2))
    return one > 0.6 * one.std(), one + 0.4 * other > 0.7 * one.std()


def cases() -> dict[str, Masks]:
    """Reference, prediction, spacing in mm, and the tolerance of the NSD, by name."""
    cube = box((40, 40, 40), (10, 20), (10, 20), (10, 20))
    none = np.zeros_like(cube)
    hollow = cube.copy()
    hollow[14:16, 14:16, 14:16] = False
    far = cube.copy()
    far[34:38, 33:36, 33:36] = True
    full = np.ones((30, 30, 30), bool)
    unit = (1.0, 1.0, 1.0)
    found: dict[str, Masks] = {
        f"smooth shapes {seed}": (*blobs((36, 40, 32), seed), (0.8, 1.1, 2.5), 1.337) for seed in range(3)
    }
    return found | {
        "both empty": (none, none, unit, TOLERANCE),
        "prediction empty": (cube, none, unit, TOLERANCE),
        "reference empty": (none, cube, unit, TOLERANCE),
        "one voxel, one step off": (
            box((9, 9, 9), (4, 5), (4, 5), (4, 5)),
            box((9, 9, 9), (5, 6), (4, 5), (4, 5)),
            unit,
            TOLERANCE,
        ),
        "cavity in the prediction": (cube, hollow, unit, TOLERANCE),
        "reference fills the image": (full, box(full.shape, (0, 27), (0, 30), (0, 30)), unit, TOLERANCE),
        "far false positive": (cube, far, unit, TOLERANCE),
        "one slice off, 5 mm slices": (
            box((20, 40, 40), (5, 12), (10, 30), (10, 30)),
            box((20, 40, 40), (6, 13), (10, 30), (10, 30)),
            (5.0, 1.0, 1.0),
            TOLERANCE,
        ),
        "3 x 0.8 mm off, tolerance 2.4": (cube, np.roll(cube, 3, axis=0), (0.8, 0.8, 0.8), 2.4),
    }


def ours(surface: str) -> Callable[..., Calls]:
    """Our metrics in one convention, with the variants that peers mean by the same names."""

    def answer(reference: np.ndarray, prediction: np.ndarray, spacing: tuple[float, ...], tolerance: float) -> Calls:
        from medimg_eval.metrics import segmentation_scores

        names = {"dice": "dice", "hd": "hd", "hd95": "hd95", "hd95 pooled": "hd95_pooled", "assd": "assd"}
        names |= {"masd": "masd", "nsd": f"nsd@{tolerance:g}"}
        maps = (reference.astype(np.uint8), prediction.astype(np.uint8))

        def value(metric: str) -> float:
            return segmentation_scores(*maps, spacing, labels=[1], metrics=[metric], surface=surface)[0].value

        return {name: partial(value, metric) for name, metric in names.items()}

    return answer


def monai(reference: np.ndarray, prediction: np.ndarray, spacing: tuple[float, ...], tolerance: float) -> Calls:
    """MONAI's functions; its average distance is asked for as symmetric."""
    import monai.metrics as peer
    import torch

    y, y_pred = (torch.from_numpy(mask[None, None].astype(np.float32)) for mask in (reference, prediction))
    common = {"include_background": True, "spacing": spacing}
    return {
        "dice": lambda: float(peer.compute_dice(y_pred, y)),
        "hd": lambda: float(peer.compute_hausdorff_distance(y_pred, y, **common)),
        "hd95": lambda: float(peer.compute_hausdorff_distance(y_pred, y, percentile=95, **common)),
        "assd": lambda: float(peer.compute_average_surface_distance(y_pred, y, symmetric=True, **common)),
        "nsd": lambda: float(peer.compute_surface_dice(y_pred, y, [tolerance], **common)),
    }


def deepmind(reference: np.ndarray, prediction: np.ndarray, spacing: tuple[float, ...], tolerance: float) -> Calls:
    """surface-distance; the two average distances that it gives are averaged, which is MASD."""
    import surface_distance as peer

    def found() -> object:
        return peer.compute_surface_distances(reference, prediction, spacing)

    return {
        "dice": lambda: float(peer.compute_dice_coefficient(reference, prediction)),
        "hd": lambda: float(peer.compute_robust_hausdorff(found(), 100)),
        "hd95": lambda: float(peer.compute_robust_hausdorff(found(), 95)),
        "masd": lambda: float(np.mean(peer.compute_average_surface_distance(found()))),
        "nsd": lambda: float(peer.compute_surface_dice_at_tolerance(found(), tolerance)),
    }


def medpy(reference: np.ndarray, prediction: np.ndarray, spacing: tuple[float, ...], tolerance: float) -> Calls:
    """MedPy, which has no NSD."""
    from medpy.metric import binary as peer

    return {
        "dice": lambda: float(peer.dc(prediction, reference)),
        "hd": lambda: float(peer.hd(prediction, reference, spacing)),
        "hd95": lambda: float(peer.hd95(prediction, reference, spacing)),
        "assd": lambda: float(peer.assd(prediction, reference, spacing)),
    }


def panoptica(reference: np.ndarray, prediction: np.ndarray, spacing: tuple[float, ...], tolerance: float) -> Calls:
    """Panoptica's metrics of one instance."""
    from panoptica.metrics import Metric

    maps = (reference.astype(int), prediction.astype(int), 1, 1)
    return {
        "dice": lambda: float(Metric.DSC(*maps)),
        "hd": lambda: float(Metric.HD(*maps, voxelspacing=spacing)),
        "hd95": lambda: float(Metric.HD95(*maps, voxelspacing=spacing)),
        "assd": lambda: float(Metric.ASSD(*maps, voxelspacing=spacing)),
        "nsd": lambda: float(Metric.NSD(*maps, voxelspacing=spacing, threshold=tolerance)),
    }


def simpleitk(reference: np.ndarray, prediction: np.ndarray, spacing: tuple[float, ...], tolerance: float) -> Calls:
    """The recipe of SimpleITK's notebooks: label contours, measured to the absolute signed Maurer distance map."""
    import SimpleITK as sitk  # noqa: N813 - everyone calls it so

    images = []
    for mask in (reference, prediction):
        image = sitk.GetImageFromArray(mask.astype(np.uint8))
        image.SetSpacing([float(step) for step in spacing[::-1]])
        images.append(image)

    def overlap() -> float:
        measures = sitk.LabelOverlapMeasuresImageFilter()
        measures.Execute(*images)
        return float(measures.GetDiceCoefficient())

    def both() -> np.ndarray:
        maps = [sitk.Abs(sitk.SignedMaurerDistanceMap(i, squaredDistance=False, useImageSpacing=True)) for i in images]
        contours = [sitk.GetArrayFromImage(sitk.LabelContour(image)) > 0 for image in images]
        there, back = (sitk.GetArrayFromImage(maps[1 - k])[contours[k]] for k in (0, 1))
        return np.concatenate([there, back])

    return {
        "dice": overlap,
        "hd": lambda: float(both().max()),
        "hd95": lambda: float(np.percentile(both(), 95)),
        "assd": lambda: float(both().mean()),
        "nsd": lambda: float((both() <= tolerance).mean()),
    }


def seg_metrics(reference: np.ndarray, prediction: np.ndarray, spacing: tuple[float, ...], tolerance: float) -> Calls:
    """seg-metrics, by its own defaults."""
    from seg_metrics import seg_metrics as peer

    maps = {"gdth_img": reference.astype(np.uint8), "pred_img": prediction.astype(np.uint8)}

    def value(name: str) -> float:
        found = peer.write_metrics(labels=[1], **maps, spacing=list(spacing), metrics=[name])
        return float((found[0] if isinstance(found, list) else found)[name][0])

    return {ours: partial(value, name) for ours, name in SEG_METRICS.items()}


PEERS: dict[str, tuple[str, Callable[..., Calls]]] = {
    "MONAI": ("monai", monai),
    "surface-distance": ("surface_distance", deepmind),
    "SimpleITK recipe": ("SimpleITK", simpleitk),
    "MedPy": ("medpy", medpy),
    "panoptica": ("panoptica", panoptica),
    "seg-metrics": ("seg_metrics", seg_metrics),
}


# Which of our numbers a peer means by its own: the surface, and by its metric the name of ours.
MEANT: dict[str, tuple[str, dict[str, str]]] = {
    "MONAI": ("voxel", {"dice": "dice", "hd": "hd", "hd95": "hd95", "assd": "assd", "nsd": "nsd"}),
    "surface-distance": ("surfel", {"dice": "dice", "hd": "hd", "hd95": "hd95", "masd": "masd", "nsd": "nsd"}),
    "MedPy": ("voxel", {"dice": "dice", "hd": "hd", "hd95": "hd95 pooled", "assd": "assd"}),
    "panoptica": ("voxel", {"dice": "dice", "hd": "hd", "hd95": "hd95 pooled", "assd": "masd"}),
}


def differences(found: Mapping[str, Mapping[str, Values]]) -> dict[str, float]:
    """The largest relative difference from ours in each peer's own convention, where both are numbers.

    Empty masks are left out, for which everyone has a rule of his own; and for NSD the case whose distance is the
    tolerance, where a peer answers by its rounding.
    """
    worst: dict[str, float] = {}
    for peer, (surface, names) in MEANT.items():
        for case, values in found.get(peer, {}).items():
            mine = found[f"ours, {surface}"][case]
            for theirs, name in names.items():
                pair = values.get(theirs, math.nan), mine[name]
                if "empty" in case or (theirs == "nsd" and "tolerance" in case):
                    continue
                if all(isinstance(value, float) and math.isfinite(value) for value in pair):
                    apart = abs(pair[0] - pair[1]) / max(abs(pair[1]), 1e-9)
                    worst[f"{peer} {theirs}"] = max(worst.get(f"{peer} {theirs}", 0.0), apart)
    return worst


def ask(function: Callable[..., Calls], masks: Masks) -> Values:
    """The peer's values, each a number or "raises"."""
    values: Values = {}
    with (
        warnings.catch_warnings(),
        np.errstate(all="ignore"),
        contextlib.redirect_stdout(None),
        contextlib.redirect_stderr(None),
    ):
        warnings.simplefilter("ignore")
        for name, call in function(*masks).items():
            try:
                values[name] = call()
            except Exception:  # noqa: BLE001 - whatever a peer does is its answer
                values[name] = "raises"
    return values


def answers(names: list[str], given: Mapping[str, Masks]) -> dict[str, dict[str, Values]]:
    """The answers of those peers that can be imported here."""
    return {
        name: {case: ask(PEERS[name][1], masks) for case, masks in given.items()}
        for name in names
        if importlib.util.find_spec(PEERS[name][0]) is not None
    }


def elsewhere(python: str, names: list[str], given: Mapping[str, Masks]) -> dict[str, dict[str, Values]]:
    """The answers of peers in another environment."""
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        pickle.dump((names, dict(given)), file)
        file.flush()
        done = subprocess.run([python, __file__, "--worker", file.name], check=True, capture_output=True, text=True)
    found: dict[str, dict[str, Values]] = json.loads(done.stdout.splitlines()[-1])
    return found


def cell(values: Values, metric: str) -> str:
    """How a value stands in a table."""
    value = values.get(metric, "")
    if isinstance(value, str):
        return value
    return "nan" if math.isnan(value) else f"{value:.3g}" if abs(value) < 1e6 else f"{value:.1e}"


def main() -> None:
    """Asks every peer about every case."""
    words = sys.argv[1:]
    if words[:1] == ["--worker"]:
        names, given = pickle.loads(Path(words[1]).read_bytes())
        print(json.dumps(answers(names, given)))
        return
    python = None
    if words[:1] == ["--oracles"]:
        python, words = words[1], words[2:]
    given = cases()
    found = {f"ours, {kind}": {c: ask(ours(kind), masks) for c, masks in given.items()} for kind in ("voxel", "surfel")}
    found |= answers(list(PEERS), given)
    missing = [name for name in PEERS if name not in found]
    if python is not None and missing:
        found |= elsewhere(python, missing, given)
    print("not asked: " + (", ".join(name for name in PEERS if name not in found) or "none"))
    for metric in ("dice", "hd95", "hd95 pooled", "assd", "masd", "nsd"):
        rows = {name: values for name, values in found.items() if any(metric in v for v in values.values())}
        print(f"\n| {metric} | " + " | ".join(rows) + " |\n| --- |" + " --- |" * len(rows))
        for case in given:
            print(f"| {case} | " + " | ".join(cell(values[case], metric) for values in rows.values()) + " |")
    apart = differences(found)
    print("\n| in its own convention | largest relative difference from ours |\n| --- | --- |")
    for name, difference in apart.items():
        print(f"| {name} | {difference:.1e} |")
    if words:
        Path(words[0]).write_text(
            json.dumps({"values": found, "largest relative difference": apart}, indent=1) + os.linesep
        )


if __name__ == "__main__":
    main()
