"""What the harness itself costs: start-up, time per case outside the model, and the metrics beside two peers.

    python benchmarks/spine.py [RESULTS.json]

Every figure comes from one run on one machine; compare ratios, not seconds.
"""

import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import nibabel as nib
import numpy as np
from writing import write

CASES = 200
REPEATS = 3
TISSUES = {1: "grey matter", 2: "white matter"}


def best(function: Callable[[], object]) -> float:
    """The least CPU time of a few calls, in seconds."""
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def program(*words: str, cwd: Path) -> tuple[float, str]:
    """Wall time and standard error of one call of the program."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "medimg_eval", *words], cwd=cwd, check=True, capture_output=True, text=True
    )
    return time.perf_counter() - start, done.stderr


def start_up(folder: Path) -> dict[str, float]:
    """Seconds to an answer of the commands that load no model."""
    return {words: min(program(*words.split(), cwd=folder)[0] for _ in range(REPEATS)) for words in ("--help", "list")}


def per_case(folder: Path) -> dict[str, float]:
    """Milliseconds per case of a model that answers at once, on small volumes; reading, storing, scoring and all."""
    rng = np.random.default_rng(0)
    for name in ("images", "labels"):
        (folder / name).mkdir()
    for index in range(CASES):
        labels = (rng.random((24, 24, 24)) > 0.5).astype(np.uint8)
        for name, array in (("images", labels * 100), ("labels", labels)):
            nib.save(nib.Nifti1Image(array, np.eye(4)), folder / name / f"c{index:03d}.nii.gz")
    (folder / "conf" / "task").mkdir(parents=True)
    (folder / "conf" / "task" / "small.yaml").write_text(
        f"""
_target_: medimg_eval.tasks.SegmentationTask
name: small
labels: {{1: a}}
metrics: [dice]
layout:
  _target_: medimg_eval.data.layouts.Volumes
  root: {folder}
  image: images/{{case}}.nii.gz
  mask: labels/{{case}}.nii.gz
"""
    )
    words = ["test", "--config-dir", str(folder / "conf"), "task=small", "model=precomputed"]
    words += [f"model.root={folder / 'labels'}"]
    whole, _ = program(*words, cwd=folder)
    again, _ = program(*words, cwd=folder)
    return {"first run, s": whole, "same command again, s": again, "ms per case": (whole - again) / CASES * 1000}


def metrics() -> dict[str, float]:
    """CPU seconds for Dice, HD95, ASSD and NSD of two tissues of the whole MNI152 brain, ours and the peers'."""
    import surface_distance
    import torch
    from monai.metrics import compute_average_surface_distance as asd
    from monai.metrics import compute_hausdorff_distance as hausdorff
    from monai.metrics import compute_surface_dice as surface_dice

    from medimg_eval.data.mni152 import tissue_labels
    from medimg_eval.metrics import segmentation_scores

    torch.set_num_threads(1)
    reference = tissue_labels()
    prediction = np.roll(reference, 1, axis=1)
    asked = ["dice", "hd95", "assd", "nsd@1"]

    def ours(surface: str) -> None:
        segmentation_scores(reference, prediction, (1, 1, 1), labels=TISSUES, metrics=asked, surface=surface)

    def monai() -> None:
        for label in TISSUES:
            one, other = (torch.from_numpy(m == label)[None, None].float() for m in (prediction, reference))
            hausdorff(one, other, include_background=True, percentile=95)
            asd(one, other, include_background=True, symmetric=True)
            surface_dice(one, other, class_thresholds=[1.0], include_background=True)

    def deepmind() -> None:
        for label in TISSUES:
            found = surface_distance.compute_surface_distances(reference == label, prediction == label, (1, 1, 1))
            surface_distance.compute_robust_hausdorff(found, 95)
            surface_distance.compute_average_surface_distance(found)
            surface_distance.compute_surface_dice_at_tolerance(found, 1)

    seconds = {"voxel": best(lambda: ours("voxel")), "surfel": best(lambda: ours("surfel"))}
    seconds |= {"MONAI (voxel)": best(monai), "surface-distance (surfel)": best(deepmind)}
    seconds["MONAI / ours"] = seconds["MONAI (voxel)"] / seconds["voxel"]
    seconds["surface-distance / ours"] = seconds["surface-distance (surfel)"] / seconds["surfel"]
    return seconds


def main() -> None:
    """Measures, prints, and writes where it is told to."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = {"start-up, wall s": start_up(folder), "harness": per_case(folder), "metrics, CPU s": metrics()}
    write(found, numpy=np.__version__)


if __name__ == "__main__":
    main()
