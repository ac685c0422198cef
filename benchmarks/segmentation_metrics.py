"""What all segmentation metrics of whole label maps cost, beside what people use, and whether they agree.

    python benchmarks/segmentation_metrics.py [--parts mni ct13 ct104 ct13e8 masks lesions] [--peers NAME ...]
        [--size 512 512 300] [--masks 1000] [--all] [--repeat 3] [--out RESULTS.json]
        [--brats CLONE] [--pictures 100]

Dice, HD95, ASSD and NSD at 2 mm of every label; in the part `lesions`, Dice and HD95 of every lesion. Each
implementation runs in a process of its own and on one thread. What counts is CPU time, since machines are shared; wall
time and the most memory the process held above its inputs stand beside it. A peer that judges one label at a time and
is slow gets a sample of the labels or masks, and its times are scaled up: those are marked with ~ (`--all`: no
sampling). With `--pictures` masks of pictures are judged by each implementation in turn, in one process: the median CPU
time of a call, without compiling. Labels that one map lacks are left to ours: several peers raise.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from readers import highest, start_of_peak

Array = np.ndarray[Any, Any]
Values = dict[str, float]
Spacing = tuple[float, ...]
TOLERANCE = 2.0
METRICS = ("dice", "hd95", "assd", f"nsd@{TOLERANCE:g}")
LESION_METRICS = ("lesion_dice", "lesion_hd95")
CT_SPACING = (0.8, 0.8, 1.5)
SAMPLED_SECONDS = 20.0  # of one peer and part, after which no further label is judged


class Part(NamedTuple):
    """What is judged: pairs of label maps of the same labels."""

    pairs: list[tuple[Array, Array]]
    spacing: Spacing
    labels: int


def bumps(random: np.random.Generator, shape: tuple[int, ...], voxels: Array) -> Array:
    """A smooth field of mean 0 and deviation below 1, that changes over so many voxels."""
    from scipy.ndimage import zoom

    coarse = random.standard_normal([round(size / step) + 3 for size, step in zip(shape, voxels, strict=True)])
    field = zoom(coarse.astype(np.float32), [(n + 1) / m for n, m in zip(shape, coarse.shape, strict=True)], order=1)
    return field[tuple(slice(0, size) for size in shape)]


def ct_like(labels: int, error: float, options: argparse.Namespace) -> Part:
    """Bumpy organs of 2 l to 2 ml that touch; the prediction errs by `error` mm, misses one, and has far blobs."""
    random = np.random.default_rng(0)
    shape, spacing = tuple(options.size), np.array(CT_SPACING)
    reference, prediction = np.zeros((2, *shape), np.uint8)
    extent = shape * spacing
    largest, smallest = np.array([75, 14] if labels < 40 else [60, 8]) * min(extent / (409.6, 409.6, 450))
    for label in range(1, labels + 1):
        radii = largest * (smallest / largest) ** ((label - 1) / (labels - 1)) * random.uniform(0.8, 1.25, 3)
        for _ in range(20):
            centre = extent / 2 + random.uniform(-1, 1, 3) * np.maximum(extent * (0.37, 0.3, 0.45) - radii, 0)
            if not reference[tuple((centre / spacing).astype(int))]:
                break
        low = np.maximum((centre - 1.5 * radii - 4 * error) / spacing, 0).astype(int)
        high = np.minimum((centre + 1.5 * radii + 4 * error) / spacing + 1, shape).astype(int)
        box = tuple(slice(*ends) for ends in zip(low, high, strict=True))
        axes = zip(np.ogrid[box], spacing, centre, radii, strict=True)
        outside = np.sqrt(sum(((at * step - middle) / radius) ** 2 for at, step, middle, radius in axes)) - 1
        outside = radii.min() * (outside + 0.15 * bumps(random, outside.shape, 25 / spacing))
        reference[box][(outside < 0) & (reference[box] == 0)] = label
        outside += 1.2 * error * bumps(random, outside.shape, 8 / spacing)
        if label < labels:
            prediction[box][(outside < 0) & (prediction[box] == 0)] = label
    for label in range(1, labels - 1, max(1, labels // 5)):
        corner = [int(random.integers(0, size - 6)) for size in shape]
        prediction[tuple(slice(at, at + 6) for at in corner)] = label
    return Part([(reference, prediction)], CT_SPACING, labels)


def mni_tissues(options: argparse.Namespace) -> Part:
    """Grey matter, white matter and what else the MNI152 brain holds; the prediction is smoothed, with noise."""
    from scipy.ndimage import binary_fill_holes, gaussian_filter

    from medimg_eval.data.mni152 import tissue_labels

    reference = tissue_labels().astype(np.uint8)
    reference[binary_fill_holes(reference > 0) & (reference == 0)] = 3
    random = np.random.default_rng(0)
    noise = (random.standard_normal(reference.shape).astype(np.float32) for _ in range(4))
    likely = [gaussian_filter((reference == k) + 0.5 * one, 0.9) for k, one in zip(range(4), noise, strict=True)]
    return Part([(reference, np.argmax(likely, axis=0).astype(np.uint8))], (1.0, 1.0, 1.0), 3)


def masks_2d(options: argparse.Namespace) -> Part:
    """One bumpy blob an image of 512 x 512, as in endoscopy or ultrasound; every 50th is missed."""
    random = np.random.default_rng(0)
    rows, columns = np.ogrid[:512, :512]
    pairs = []
    for index in range(options.masks):
        middle, radii = random.uniform(150, 360, 2), random.uniform(30, 120, 2)
        angle = np.arctan2(rows - middle[0], columns - middle[1])
        radius = np.hypot((rows - middle[0]) / radii[0], (columns - middle[1]) / radii[1]).astype(np.float32)
        for wave in range(2, 7):
            radius += random.normal(0, 0.06) * np.cos(wave * angle + random.uniform(0, 6))
        wrong = sum(random.normal(0, 1 / radii.mean()) * np.cos(k * angle + random.uniform(0, 6)) for k in range(3, 11))
        pairs.append(((radius < 1).astype(np.uint8), (radius + wrong < (index % 50 > 0)).astype(np.uint8)))
    return Part(pairs, (1.0, 1.0), 1)


def lesions(options: argparse.Namespace) -> Part:
    """Many small lesions and a few large ones in a brain of 240 x 240 x 155; some are missed, some made up."""
    random = np.random.default_rng(0)
    reference, prediction = np.zeros((2, 240, 240, 155), np.uint8)
    for index in range(40):
        radius = 18 if index < 2 else random.uniform(1.5, 7)
        middle = random.uniform(25, np.array(reference.shape) - 25)
        box = tuple(slice(int(at - radius - 4), int(at + radius + 5)) for at in middle)
        distance = np.sqrt(sum((at - centre) ** 2 for at, centre in zip(np.ogrid[box], middle, strict=True)))
        distance += 0.2 * radius * bumps(random, distance.shape, np.full(3, 4))
        reference[box] |= (distance < radius) & (index % 8 != 7)
        prediction[box] |= (distance + bumps(random, distance.shape, np.full(3, 3)) < radius) & (index % 8 != 3)
    return Part([(reference, prediction)], (1.0, 1.0, 1.0), 1)


PARTS: dict[str, Callable[[argparse.Namespace], Part]] = {
    "mni": mni_tissues,
    "ct13": lambda options: ct_like(13, 1.0, options),
    "ct104": lambda options: ct_like(104, 1.0, options),
    "ct13e8": lambda options: ct_like(13, 8.0, options),
    "masks": masks_2d,
    "lesions": lesions,
}


def ours(surface: str) -> Callable[[Part], list[Values]]:
    """Every label of every pair, one call a pair."""

    def judge(part: Part) -> list[Values]:
        from medimg_eval.metrics import segmentation_scores

        names = [str(label) for label in range(1, part.labels + 1)]
        found = []
        for pair in part.pairs:
            scores = segmentation_scores(
                *pair, part.spacing, labels=range(1, part.labels + 1), metrics=METRICS, surface=surface
            )
            rows = {name: {} for name in names}
            for score in scores:
                rows[score.label][score.metric] = score.value
            found.extend(rows.values())
        return found

    return judge


def our_lesions(part: Part) -> list[Values]:
    from medimg_eval.metrics import segmentation_scores

    scores = segmentation_scores(*part.pairs[0], part.spacing, labels=[1], metrics=LESION_METRICS)
    return [{score.metric: score.value for score in scores}]


def kd_tree(reference: Array, prediction: Array, spacing: Spacing) -> Values:
    """The plain way: crop, erode, a KD-tree for each direction."""
    from scipy.ndimage import binary_erosion, find_objects
    from scipy.spatial import cKDTree

    box = find_objects((reference | prediction).view(np.uint8))[0]
    one, other = reference[box], prediction[box]
    a, b = (np.argwhere(mask & ~binary_erosion(mask)) * spacing for mask in (one, other))
    there, back = cKDTree(b).query(a)[0], cKDTree(a).query(b)[0]
    both = np.concatenate([there, back])
    dice = 2 * np.count_nonzero(one & other) / (np.count_nonzero(one) + np.count_nonzero(other))
    hd95 = max(np.percentile(there, 95), np.percentile(back, 95))
    return dict(zip(METRICS, map(float, (dice, hd95, both.mean(), np.mean(both <= TOLERANCE))), strict=True))


def monai(reference: Array, prediction: Array, spacing: Spacing) -> Values:
    import torch
    from monai.metrics import compute_average_surface_distance as average
    from monai.metrics import compute_dice, compute_surface_dice
    from monai.metrics import compute_hausdorff_distance as hausdorff

    torch.set_num_threads(1)
    y, y_pred = (torch.from_numpy(mask)[None, None].float() for mask in (reference, prediction))
    whole: dict[str, Any] = {"include_background": True, "spacing": spacing}
    found = (
        compute_dice(y_pred, y),
        hausdorff(y_pred, y, percentile=95, **whole),
        average(y_pred, y, symmetric=True, **whole),
        compute_surface_dice(y_pred, y, [TOLERANCE], **whole),
    )
    return dict(zip(METRICS, (value.item() for value in found), strict=True))


def deepmind(reference: Array, prediction: Array, spacing: Spacing) -> Values:
    import surface_distance

    found = surface_distance.compute_surface_distances(reference, prediction, spacing)
    areas = found["surfel_areas_gt"].sum(), found["surfel_areas_pred"].sum()
    values = (
        surface_distance.compute_dice_coefficient(reference, prediction),
        surface_distance.compute_robust_hausdorff(found, 95),
        np.average(surface_distance.compute_average_surface_distance(found), weights=areas),
        surface_distance.compute_surface_dice_at_tolerance(found, TOLERANCE),
    )
    return dict(zip(METRICS, map(float, values), strict=True))


def simpleitk(reference: Array, prediction: Array, spacing: Spacing) -> Values:
    """The recipe of SimpleITK's notebooks: contours looked up in distance maps."""
    import SimpleITK as sitk  # noqa: N813

    images = [sitk.GetImageFromArray(mask.view(np.uint8)) for mask in (reference, prediction)]
    for image in images:
        image.SetSpacing(spacing[::-1])
    maps = [sitk.Abs(sitk.SignedMaurerDistanceMap(one, squaredDistance=False, useImageSpacing=True)) for one in images]
    contours = [sitk.GetArrayFromImage(sitk.LabelContour(one)) > 0 for one in images]
    there, back = (sitk.GetArrayFromImage(maps[1 - side])[contours[side]] for side in (0, 1))
    both = np.concatenate([there, back])
    overlap = sitk.LabelOverlapMeasuresImageFilter()
    overlap.Execute(*images)
    values = overlap.GetDiceCoefficient(), np.percentile(both, 95), both.mean(), np.mean(both <= TOLERANCE)
    return dict(zip(METRICS, map(float, values), strict=True))


def medpy(reference: Array, prediction: Array, spacing: Spacing) -> Values:
    """Has no NSD."""
    from medpy.metric import binary

    functions = binary.dc, lambda *masks: binary.hd95(*masks, spacing), lambda *masks: binary.assd(*masks, spacing)
    values = (float(function(prediction, reference)) for function in functions)
    return dict(zip(METRICS[:3], values, strict=True))


def lesions_on_whole_volumes(reference: Array, prediction: Array, spacing: Spacing) -> Values:
    """BraTS 2023 (glioma) as its own functions go about it: every lesion dilated and measured in the whole volume."""
    import surface_distance
    from scipy.ndimage import binary_dilation, generate_binary_structure, label

    near, all_around = generate_binary_structure(3, 2), generate_binary_structure(3, 3)
    merged = label(binary_dilation(reference, near, 3), all_around)[0] * reference
    parts, count = label(prediction, all_around)
    dices, distances, touched = [], [], set()
    for number in range(1, merged.max() + 1):
        lesion = merged == number
        around = binary_dilation(lesion, near, 3)
        hit = np.unique(parts[around])
        touched |= set(hit.tolist())
        if lesion.sum() * np.prod(spacing) <= 50:
            continue
        found = np.isin(parts, hit[hit > 0])
        dices.append(surface_distance.compute_dice_coefficient(lesion, found))
        distances.append(374.0)
        if found.any():
            distances[-1] = surface_distance.compute_robust_hausdorff(
                surface_distance.compute_surface_distances(lesion, found, spacing), 95
            )
    false = len(set(range(1, count + 1)) - touched)
    whole = len(dices) + false
    return dict(zip(LESION_METRICS, (sum(dices) / whole, (sum(distances) + 374 * false) / whole), strict=True))


def challenge_script(part: Part) -> list[Values]:
    """BraTS 2023's own script on the files it asks for: the lesion-wise part of its table, for one label."""
    import runpy

    import nibabel

    clone = os.environ["BRATS_2023"]
    vars(np)["Inf"] = np.inf  # its surface_distance is of before NumPy 2
    sys.path.insert(0, clone)
    script = runpy.run_path(f"{clone}/metrics.py")
    sys.path.remove(clone)
    with tempfile.TemporaryDirectory() as folder:
        for name, mask in zip(("reference", "prediction"), part.pairs[0], strict=True):
            nibabel.save(nibabel.Nifti1Image(mask, np.diag([*part.spacing, 1])), f"{folder}/{name}.nii")
        files = f"{folder}/prediction.nii", f"{folder}/reference.nii"
        found = script["get_LesionWiseScores"](*files, "WT", 3)
    false, rows = len(found[2]), [row for row in found[4] if row[2] > 50]
    distances = sum(min(row[4], 374.0) for row in rows)
    sums = sum(row[3] for row in rows), distances + 374 * false
    return [dict(zip(LESION_METRICS, (float(one) / (len(rows) + false) for one in sums), strict=True))]


class Peer(NamedTuple):
    """An implementation: what it needs, of what surfaces it speaks, and how it judges a mask or a whole part."""

    package: str
    surface: str
    one: Callable[[Array, Array, Spacing], Values] | None = None
    whole: Callable[[Part], list[Values]] | None = None


PEERS = {
    "ours, voxel": Peer("medimg_eval", "voxel", whole=ours("voxel")),
    "ours, surfel": Peer("medimg_eval", "surfel", whole=ours("surfel")),
    "MONAI": Peer("monai", "voxel", monai),
    "KD-tree per label": Peer("scipy", "voxel", kd_tree),
    "surface-distance": Peer("surface_distance", "surfel", deepmind),
    "SimpleITK": Peer("SimpleITK", "its own", simpleitk),
    "MedPy": Peer("medpy", "pooled voxel", medpy),
}
LESION_PEERS = {
    "ours, surfel": Peer("medimg_eval", "surfel", whole=our_lesions),
    "whole volumes, surface-distance": Peer("surface_distance", "surfel", lesions_on_whole_volumes),
    "BraTS 2023's script": Peer("cc3d", "surfel", whole=challenge_script),
}
PACKAGES = ("numpy", "scipy", "torch", "monai", "surface-distance", "SimpleITK", "MedPy")


def peers_of(part: str) -> dict[str, Peer]:
    return LESION_PEERS if part == "lesions" else PEERS


def masks_of(part: Part) -> Iterator[tuple[int, Array, Array]]:
    """The masks of each label that both maps of a pair hold, in an order that a sample of the first ones is fair."""
    order = np.random.default_rng(0).permutation(len(part.pairs) * part.labels)
    for place in order.tolist():
        pair, label = divmod(place, part.labels)
        one, other = (label_map == label + 1 for label_map in part.pairs[pair])
        if one.any() and other.any():
            yield place, one, other


def measure(name: str, part: Part, *, peer: Peer, repeat: int, complete: bool) -> dict[str, Any]:
    """Times and memory of one peer, and its values by place."""
    small = np.zeros((2, *(64 for _ in part.spacing)), np.uint8)
    small[0, 8:16, 8:16], small[1, 9:16, 8:16], small[1, 50:60, 50:60] = 1, 1, 1
    run(peer, Part([(small[0], small[1])], part.spacing, 1), complete=True)  # what is imported is loaded by now
    before, start = start_of_peak(), time.perf_counter()
    best = run(peer, part, complete=complete)
    peak = (highest() - before) / 1024
    for _ in range(repeat - 1):
        if time.perf_counter() - start < SAMPLED_SECONDS:
            best = min(best, run(peer, part, complete=complete), key=lambda answer: float(answer["CPU s"]))
    return {"peer": name, "surface": peer.surface, **best, "peak MiB": peak}


def run(peer: Peer, part: Part, *, complete: bool) -> dict[str, Any]:
    """Judges a part once, or as much of it as is sampled."""
    values: dict[int, Values] = {}
    wall, cpu = time.perf_counter(), time.process_time()
    if peer.whole:
        values = dict(enumerate(peer.whole(part)))
        return {"wall s": time.perf_counter() - wall, "CPU s": time.process_time() - cpu, "part": 1.0, "values": values}
    assert peer.one is not None  # noqa: S101
    walls = cpus = 0.0
    present = 0
    for place, one, other in masks_of(part):
        present += 1
        if complete or walls < SAMPLED_SECONDS:
            wall, cpu = time.perf_counter(), time.process_time()
            values[place] = peer.one(one, other, part.spacing)
            walls, cpus = walls + time.perf_counter() - wall, cpus + time.process_time() - cpu
    return {
        "wall s": walls * present / len(values),
        "CPU s": cpus * present / len(values),
        "part": len(values) / present,
        "values": values,
    }


def load(folder: Path) -> Part:
    facts = json.loads((folder / "part.json").read_text(encoding="utf-8"))
    maps = np.load(folder / "maps.npy")
    return Part([(one, other) for one, other in maps], tuple(facts["spacing"]), facts["labels"])


def run_part(name: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Makes a part, lets each peer judge it in a process of its own, and compares what they say."""
    part = PARTS[name](options)
    np.save(folder / "maps.npy", np.stack([np.stack(pair) for pair in part.pairs]))
    (folder / "part.json").write_text(json.dumps({"spacing": part.spacing, "labels": part.labels}), encoding="utf-8")
    del part
    found: dict[str, Any] = {}
    for peer, about in peers_of(name).items():
        if options.peers and peer not in options.peers:
            continue
        if about.whole is challenge_script and not options.brats:
            found[peer] = {"error": "no clone"}
            continue
        if importlib.util.find_spec(about.package) is None:
            found[peer] = {"error": "not installed"}
            continue
        words = [sys.executable, __file__, "--one", name, peer, str(folder), "--repeat", str(options.repeat)]
        words += ["--all"] * options.all
        environment = os.environ | {"OMP_NUM_THREADS": "1", "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS": "1"}
        environment["BRATS_2023"] = str(options.brats or "")
        done = subprocess.run(words, check=False, capture_output=True, text=True, env=environment)
        ended = done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or ["no answer"]
        found[peer] = json.loads(ended[-1]) if done.returncode == 0 else {"error": ended[-1]}
    compare(found)
    return found


def compare(found: dict[str, Any]) -> None:
    """Puts beside each peer how many times ours' CPU and wall time it takes, and how far its values are from ours."""
    for one in found.values():
        base = found.get("ours, voxel" if "voxel" in one.get("surface", "") else "ours, surfel", {})
        if "CPU s" not in one or "CPU s" not in base:
            continue
        one["CPU / ours"], one["wall / ours"] = one["CPU s"] / base["CPU s"], one["wall s"] / base["wall s"]
        apart: dict[str, float] = {}
        for place, values in one["values"].items():
            for metric, value in values.items():
                apart[metric] = max(apart.get(metric, 0.0), abs(value - base["values"][place][metric]))
        one["farthest from ours"] = apart
    for one in found.values():
        values = list(one.pop("values", {}).values())
        if values:
            one["median"] = {metric: float(np.median([row[metric] for row in values])) for metric in values[0]}


def show(found: dict[str, dict[str, Any]]) -> None:
    """Prints a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Metrics of segmentations; ~ scaled up from a sample")
    texts = "part", "implementation", "surface"
    for column in (*texts, "CPU s", "wall s", "CPU / ours", "wall / ours", "peak MiB", "farthest from ours"):
        table.add_column(column, justify="left" if column in texts else "right")
    for name, peers in found.items():
        for peer, one in peers.items():
            if "error" in one:
                table.add_row(name, peer, one["error"])
                continue
            sign = "" if one["part"] == 1 else "~"
            times = [f"{sign}{one[key]:.3f}" for key in ("CPU s", "wall s")]
            ratios = [f"{sign}{one[key]:.1f}" if key in one else "" for key in ("CPU / ours", "wall / ours")]
            apart = " ".join(f"{key} {value:.1g}" for key, value in one.get("farthest from ours", {}).items())
            table.add_row(name, peer, one["surface"], *times, *ratios, f"{one['peak MiB']:.0f}", apart)
        table.add_section()
    Console(width=170).print(table)


def in_turn(number: int) -> dict[str, Any]:
    """Median CPU time in ms of a call for one mask of 512 x 512, of implementations in turn, and ratios of pairs."""
    sys.path.remove(str(Path(__file__).parent))  # numba imports `coverage`, which is not this folder's
    from medimg_eval.metrics.segmentation import compiled, label_maps

    def alone(judge: Callable[[Part], Any]) -> Callable[[Part], Any]:
        def judged(part: Part) -> Any:
            label_maps.kernels = lambda longest: None
            found = judge(part)
            label_maps.kernels = compiled.kernels
            return found

        return judged

    runs = {f"NumPy, {surface}": alone(ours(surface)) for surface in ("voxel", "surfel")}
    if compiled.kernels(1):
        runs |= {f"compiled, {surface}": ours(surface) for surface in ("voxel", "surfel")}
    for name, judge in (("MONAI", monai), ("surface-distance", deepmind)):
        runs[name] = lambda part, judge=judge: [judge(*(one > 0 for one in part.pairs[0]), part.spacing)]
    part = masks_2d(argparse.Namespace(masks=number + number // 49 + 2))
    # The first of two calls finds another's data in the processor's cache; their best is that of a call after a call.
    first: dict[str, list[float]] = {name: [] for name in runs}
    best: dict[str, list[float]] = {name: [] for name in runs}
    random = np.random.default_rng(0)
    for pair in [pair for pair in part.pairs if pair[1].any()][: number + 1]:
        for name in random.permutation(list(runs)).tolist():
            took = []
            for _ in range(2):
                start = time.process_time()
                runs[name](Part([pair], part.spacing, 1))
                took.append(time.process_time() - start)
            first[name].append(took[0])
            best[name].append(min(took))
    return {"masks": number, **_medians(best), "first of two calls": _medians(first)}


def _medians(times: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    took = {name: np.array(some[1:]) for name, some in times.items()}  # the first loads and compiles
    own = [name for name in took if name not in ("MONAI", "surface-distance")]
    pairs = [(name, peer) for name in own for peer in took if peer not in own]
    return {
        "ms": {name: 1e3 * float(np.median(some)) for name, some in took.items()},
        "times less": {f"{name}, than {peer}": float(np.median(took[peer] / took[name])) for name, peer in pairs},
    }


def stacked(pairs: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Masks of pictures, cropped, one below the other as labels 1, 2, ... of two tall pictures."""
    parts = []
    for label, pair in enumerate(pairs, start=1):
        down, across = (np.flatnonzero(np.logical_or(*pair).any(axis=axis)) for axis in (1, 0))
        box = slice(down[0], down[-1] + 2), slice(across[0], across[-1] + 1)
        parts.append([np.pad(mask[box] * np.uint8(label), ((0, 0), (0, 512 - len(across)))) for mask in pair])
    return np.concatenate([one for one, _ in parts]), np.concatenate([other for _, other in parts])


def of_calls(pairs: list[tuple[Array, Array]]) -> dict[str, float]:
    """Median CPU time in ms of a mask, by itself, 16 in a stack, and of 8 x 8: what does not depend on the pixels."""
    from medimg_eval.metrics import segmentation_scores
    from medimg_eval.metrics.segmentation import compiled, label_maps

    corner = np.pad(np.ones((3, 2), np.uint8), ((2, 3), (3, 3)))
    kinds = {"NumPy": lambda longest: None, "compiled": compiled.kernels}
    times: dict[str, list[float]] = {}
    for group in (pairs[start : start + 16] for start in range(0, len(pairs) - 15, 16)):
        for kind, label_maps.kernels in kinds.items():
            for name, maps in {"alone": group, "8 x 8": [(corner, corner.T.copy())] * 16, "stacked": None}.items():
                begun = time.process_time()
                for pair in maps or [stacked(group)]:
                    labels = [1] if maps else range(1, 17)
                    segmentation_scores(*pair, (1.0, 1.0), labels=labels, metrics=METRICS)
                times.setdefault(f"{kind}, {name}", []).append((time.process_time() - begun) / 16)
    return {name: 1e3 * float(np.median(some[1:])) for name, some in times.items()}


def of_a_task(number: int) -> dict[str, Any]:
    """CPU time in s of `score` of so many PNG masks, and of one, and the share that a stack of masks could save."""
    from PIL import Image

    pairs = masks_2d(argparse.Namespace(masks=number)).pairs
    took: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for some in (pairs, pairs[1:2]):
            for side, masks in zip(("references", "masks"), zip(*some, strict=True), strict=True):
                Path(folder, str(len(some)), side).mkdir(parents=True)
                for place, mask in enumerate(masks):
                    Image.fromarray(mask).save(Path(folder, str(len(some)), side, f"{place}.png"))
        for name in [str(number), "1"] * 5:
            shutil.rmtree(Path(folder, name, "runs"), ignore_errors=True)
            before = os.times()
            said = ["score", "masks=masks", "references=references", "labels={1: lesion}"]
            command = [sys.executable, "-m", "medimg_eval", *said]
            subprocess.run(command, cwd=Path(folder, name), check=True, capture_output=True)
            after = os.times()
            took.setdefault(name, []).append(sum(after[2:4]) - sum(before[2:4]))
    seconds = {name: float(np.median(some)) for name, some in took.items()}
    calls = of_calls([pair for pair in pairs if pair[1].any()])
    share = number / 1e3 / seconds[str(number)]
    shares = {
        "calls": share * calls["NumPy, alone"],
        "of them whatever the pixels": share * calls["NumPy, 8 x 8"],
        "saved by stacks": share * (calls["NumPy, alone"] - calls["NumPy, stacked"]),
    }
    return {"CPU s, by masks": seconds, "ms a mask": calls, "share of the task": shares}


def main() -> None:
    """Measures, prints, and writes where it is told to."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--peers", nargs="+", choices=[*PEERS, *LESION_PEERS], help="these only")
    parser.add_argument("--size", nargs=3, type=int, default=[512, 512, 300], help="voxels of the CT-like volumes")
    parser.add_argument("--masks", type=int, default=1000, help="how many 2-D masks")
    parser.add_argument("--all", action="store_true", help="sample nothing; takes hours")
    parser.add_argument("--repeat", type=int, default=3, help="the best of so many, for those that are quick")
    parser.add_argument("--brats", type=Path, help="a clone of rachitsaluja/BraTS-2023-Metrics; needs cc3d")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--pictures", type=int, help="judge so many 2-D masks in turn, and nothing else")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, peer, folder = options.one
        about = peers_of(name)[peer]
        answer = measure(peer, load(Path(folder)), peer=about, repeat=options.repeat, complete=options.all)
        print(json.dumps(answer))
        return
    if options.pictures:
        turns = in_turn(options.pictures) | {"task": of_a_task(options.pictures)}
        print(json.dumps(turns, indent=2))
        if options.out:
            held = json.loads(options.out.read_text(encoding="utf-8"))
            options.out.write_text(json.dumps(held | {"pictures": turns}, indent=2) + "\n", encoding="utf-8")
        return
    found = {}
    for name in options.parts:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = run_part(name, options, Path(folder))
        show({name: found[name]})
    if options.out:
        machine = {"cpus": os.cpu_count(), "python": platform.python_version()}
        installed = {dist.metadata["Name"]: dist.version for dist in importlib.metadata.distributions()}
        machine |= {name: installed[name] for name in PACKAGES if name in installed}
        result = {"size": options.size, "masks": options.masks, "machine": machine, "found": found}
        options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
