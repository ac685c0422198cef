"""CPU time of degradations beside TorchIO and medmnistc on the same inputs, in pairs, and of a sweep over MNI blocks.

    python benchmarks/degradations.py [--parts volumes pictures projections sweep] [--turns 3] [--out RESULTS.json]
        [--size 512 512 300] [--pictures 1000] [--slices 2] [--checkpoint RUN]

Volumes are float32 of one channel; the parameters of a pair are the same, chosen once, and TorchIO's transforms are the
fixed ones, which draw nothing. Pictures are uint8 arrays of 224 x 224 with three colours, as decoders give them: for
medmnistc Pillow's pictures are made of them, and `prepared` has the ratio where that was done before. Times
are the fewest CPU seconds of the turns, ours and theirs one after the other, on one thread each; of what takes over
three seconds one turn. Projections of CT have no peer in either package: of them our seconds a slice are stated. The
sweep fits the README's network unless --checkpoint names its run. Peers that are not installed are left out.
"""

import os

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from clocking import SLOW, clocked

from medimg_eval.case import Condition, Image
from medimg_eval.degradations import DrawKey, Move, degrade_image, find_degradation, read_suite
from medimg_eval.degradations.moves import Coarsening, about_middle, rotation
from medimg_eval.degradations.mri import bias, spline_field

SPACING = (0.8, 0.8, 1.0)
KEY = DrawKey(0, "a")
SEVERITY = 3

Pair = tuple[str, Callable[[], Any], Callable[[], Any]]


def make_volume(shape: tuple[int, ...]) -> Any:
    """A smooth body with noise about it, float32."""
    rng = np.random.default_rng(0)
    lines = [np.linspace(-1, 1, size, dtype=np.float32) for size in shape]
    far = lines[0][:, None, None] ** 2 + lines[1][:, None] ** 2 + lines[2] ** 2
    body = np.where(far < 0.8, 600 - 300 * far, np.float32(0))
    body += 40 * rng.random(shape, dtype=np.float32)
    return body.astype(np.float32)


def volume_pairs(volume: Any) -> Iterator[Pair]:
    """Yields ROOD-MRI's transforms as we and TorchIO have them, with the same parameters."""
    import SimpleITK
    import torch
    import torchio as tio

    torch.set_num_threads(1)
    SimpleITK.ProcessObject.SetGlobalDefaultNumberOfThreads(1)
    image = Image(volume[None], np.diag([*SPACING, 1.0]), modality="MR")
    theirs = tio.ScalarImage(tensor=torch.from_numpy(volume[None]), affine=image.affine)
    transforms, spacing = tio.transforms, np.array(SPACING)
    degrees, millimetres = np.array([10.0, -12, 8]), np.array([12.0, -9, 20])

    def moved() -> Any:
        linear = rotation(degrees).T * spacing / spacing[:, None]
        return Move(about_middle(linear, -millimetres / spacing, volume.shape)).image(image)

    yield "mri_affine", moved, lambda: transforms.Affine((1, 1, 1), degrees, millimetres)(theirs)

    coarse = Coarsening(about_middle(np.eye(3), np.zeros(3), volume.shape), axis=2, factor=6.4)
    # ROOD-MRI's transform of TorchIO: nearest voxels of the coarser grid, linearly back.
    down = transforms.Resample((SPACING[0], SPACING[1], 6.4), image_interpolation="nearest")
    back = transforms.Resample(theirs, image_interpolation="linear")
    yield "mri_anisotropy", lambda: coarse.image(image), lambda: back(down(theirs))

    factors = np.random.default_rng(1).uniform(-0.9, 0.9, 20)
    yield (
        "mri_bias_field",
        lambda: image.array * bias(factors, volume.shape),
        lambda: transforms.BiasField(list(factors), 3)(theirs),
    )

    points = np.random.default_rng(2).uniform(-18, 18, (7, 7, 7, 3))
    points[[0, 1, -2, -1]] = points[:, [0, 1, -2, -1]] = points[:, :, [0, 1, -2, -1]] = 0

    def bent() -> Any:
        field = spline_field(points, volume.shape) / spacing.astype(np.float32).reshape(3, 1, 1, 1)
        return Move(np.eye(3, 4), field.astype(np.float32)).image(image)

    yield "mri_elastic", bent, lambda: transforms.ElasticDeformation(points, (18, 18, 18))(theirs)

    def ours(name: str, **settings: Any) -> Callable[[], Any]:
        return lambda: degrade_image(image, Condition(name, SEVERITY, settings), KEY)

    axis = int(KEY.generator("mri_ghosting").integers(2))
    yield (
        "mri_ghosting",
        ours("mri_ghosting"),
        lambda: transforms.Ghosting(7, axis, 1.5, None)(theirs).data.clamp_(min=0),
    )
    moves = {"degrees": np.array([[3, -2, 1.0], [-1, 2, 3]]), "translation": np.array([[5.0, -4, 2], [1, 6, -3]])}
    yield (
        "mri_motion",
        ours("mri_motion", degrees=3, millimetres=6, movements=2),
        lambda: transforms.Motion(times=np.array([0.35, 0.7]), image_interpolation="linear", **moves)(theirs),
    )
    yield "mri_smoothing", ours("mri_smoothing"), lambda: transforms.Blur((2.4,) * 3)(theirs)
    place = tuple(np.array([[0.2, 0.2, 0.2]]))
    yield "mri_spikes", ours("mri_spikes"), lambda: transforms.Spike(np.array(place), 0.6)(theirs)


def make_pictures(count: int) -> list[Any]:
    """Smooth coloured pictures with noise, uint8 (224, 224, 3)."""
    rows, columns = np.mgrid[:224, :224] / 224
    made = []
    for number in range(count):
        rng = np.random.default_rng(number)
        waves = [
            np.sin(rng.uniform(2, 9) * rows + rng.random()) * np.cos(rng.uniform(2, 9) * columns) for _ in range(3)
        ]
        pixels = 128 + 80 * np.stack(waves, axis=-1) + rng.normal(0, 6, (224, 224, 3))
        made.append(np.clip(pixels, 0, 255).astype(np.uint8))
    return made


THEIR_NAMES = {"jpeg": "jpeg_compression", "gamma_up": "gamma_corr_up", "gamma_down": "gamma_corr_down"}


def picture_rows(count: int, turns: int) -> Iterator[dict[str, Any]]:
    """Yields a row for each corruption of MedMNIST-C, with the levels of the first of three sets that has it."""
    from medmnistc.corruptions.registry import CORRUPTIONS_DS
    from PIL import Image as Pillow

    np.fromstring = np.frombuffer  # which medmnistc 0.1.0 asks for, and NumPy has no more
    arrays = make_pictures(min(count, 100))
    arrays = [arrays[place % len(arrays)] for place in range(count)]
    prepared = [Pillow.fromarray(array) for array in arrays]
    images = [Image(np.moveaxis(array, -1, 0), np.eye(4), units="pixel") for array in arrays]
    done: set[str] = set()
    for group in ("path", "derma", "chest"):
        for name, levels in read_suite(f"medmnistc_{group}").items():
            if name in done:
                continue
            done.add(name)
            own = {**find_degradation(name).levels, **levels}
            condition = Condition(name, SEVERITY, {key: values[SEVERITY - 1] for key, values in own.items()})
            peer = CORRUPTIONS_DS[f"{group}mnist"][THEIR_NAMES.get(name, name)]

            peer.rng = np.random.default_rng(0)  # which its maker of data sets gives it

            def ours(condition: Condition = condition) -> None:
                for number, image in enumerate(images):
                    degrade_image(image, condition, DrawKey(0, str(number)))

            def theirs(peer: Any = peer) -> None:
                for array in arrays:
                    peer.apply(Pillow.fromarray(array), severity=SEVERITY - 1)

            def given(peer: Any = peer) -> None:
                for picture in prepared:
                    peer.apply(picture, severity=SEVERITY - 1)

            degrade_image(images[0], condition, KEY)  # what is imported at the first call is not counted
            peer.apply(prepared[0], severity=SEVERITY - 1)
            row = compare(name, ours, theirs, turns, "medmnistc")
            ready = min(clocked(given, 1)[0] for _ in range(1 if row["theirs"] > SLOW else turns))
            row["prepared"] = round(ready / row["ours"], 2)
            yield row


def compare(name: str, ours: Callable[[], Any], theirs: Callable[[], Any], turns: int, peer: str) -> dict[str, Any]:
    """A row of the fewest CPU seconds of both, in turns, and of their ratio."""
    best = [np.inf, np.inf]
    for turn in range(turns):
        for place, call in enumerate((ours, theirs)):
            best[place] = min(best[place], clocked(call, 1)[0])
        if turn == 0 and max(best) > SLOW:
            break
    return {"name": name, "peer": peer, "ours": best[0], "theirs": best[1], "ratio": round(best[1] / best[0], 2)}


def projection_rows(size: int, slices: int) -> Iterator[dict[str, Any]]:
    """Yields our CPU seconds a slice of what is made by projections, beside scikit-image's and their inverse."""
    from skimage.transform import iradon, radon

    rows, columns = np.mgrid[:size, :size] - (size - 1) / 2
    disc = np.where(np.hypot(rows, columns) < 0.4 * size, 40.0, -1000.0)[..., None]
    scan = Image(np.repeat(disc, slices, axis=2).astype(np.float32)[None], np.diag([0.8, 0.8, 1, 1.0]), modality="CT")
    angles = np.arange(0, 180, 0.5)
    there, sinogram = clocked(lambda: radon(disc[..., 0] + 1000, angles, circle=True), 1)
    back, _ = clocked(lambda: iradon(sinogram, angles, circle=True), 1)
    for name in ("ct_low_dose", "ct_sparse_view", "ct_limited_angle", "ct_metal", "ct_motion"):
        taken, _ = clocked(lambda name=name: degrade_image(scan, Condition(name, SEVERITY), KEY), 1)
        yield {
            "name": name,
            "slice": round(taken / slices, 2),
            "scikit-image, radon and iradon": round(there + back, 2),
        }
    for name in ("ct_soft_kernel", "ct_sharp_kernel", "ct_thick_slices"):
        taken, _ = clocked(lambda name=name: degrade_image(scan, Condition(name, SEVERITY), KEY), 1)
        yield {"name": name, "slice": round(taken / slices, 4)}


def sweep_row(checkpoint: str | None) -> dict[str, Any]:
    """CPU seconds of the README's network on the 23 MNI blocks under ROOD-MRI's transforms at five severities."""
    command = [sys.executable, "-m", "medimg_eval"]
    with tempfile.TemporaryDirectory() as folder:
        if checkpoint is None:
            checkpoint = f"{folder}/fit"
            words = ["fit", "task=brain_tissue", "model=unet_small", f"run={checkpoint}", "trainer.accelerator=cpu"]
            subprocess.run([*command, *words], check=True, stdout=subprocess.DEVNULL)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        words = ["test", "task=brain_tissue", "model=unet_small", f"model.checkpoint={checkpoint}"]
        words += ["degrade=suite/mri", "severities=1..5", f"run={folder}/sweep", "trainer.accelerator=cpu"]
        subprocess.run([*command, *words], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    taken = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"name": "23 MNI blocks, 10 degradations at 5 severities and as published", "cpu": round(taken, 1)}


def main() -> None:
    """Prints what was measured, and writes it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ("volumes", "pictures", "projections", "sweep")
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--size", nargs=3, type=int, default=(512, 512, 300))
    parser.add_argument("--pictures", type=int, default=1000)
    parser.add_argument("--slices", type=int, default=2)
    parser.add_argument("--checkpoint")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {}

    def note(part: str, row: dict[str, Any]) -> None:
        print(part, row, flush=True)
        found.setdefault(part, []).append(row)

    warnings.simplefilter("ignore")
    if "volumes" in given.parts:
        for name, ours, theirs in volume_pairs(make_volume(tuple(given.size))):
            note("volumes", compare(name, ours, theirs, given.turns, "torchio"))
    if "pictures" in given.parts:
        for row in picture_rows(given.pictures, given.turns):
            note("pictures", row)
    if "projections" in given.parts:
        for row in projection_rows(given.size[0], given.slices):
            note("projections", row)
    if "sweep" in given.parts:
        note("sweep", sweep_row(given.checkpoint))
    if given.out:
        names = ("numpy", "scipy", "pillow", "torchio", "medmnistc", "scikit-image", "SimpleITK")
        known = {dist.metadata["Name"].lower() for dist in metadata.distributions() if dist.metadata["Name"]}
        versions = {name: metadata.version(name) for name in names if name.lower() in known}
        about = {"cpus": os.cpu_count(), "python": platform.python_version(), **versions}
        about |= {"size": list(given.size), "pictures": given.pictures, "severity": SEVERITY}
        given.out.write_text(json.dumps({"about": about, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
