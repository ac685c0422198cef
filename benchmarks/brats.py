"""Every column that the BraTS challenges' own scripts of 2023 and 2024 print, beside ours, and what both cost.

    python benchmarks/brats.py --clone-2023 DIR --clone-2024 DIR [--volumes 20] [--speed] [--out RESULTS.json]

The clones are of `rachitsaluja/BraTS-2023-Metrics` and `BraTS-2024-Metrics`; they need `connected-components-3d` and
`medpy`. Volumes are made up: blobs of all tissues, some missed, some made up, some below the thresholds, and some
volumes without a tissue. Each script reads its masks from files, as it asks for. It runs twice: as it is, and with the
numbers of lesions made binary before its whole-image columns, as its code of 2024 does not. `--speed` times a volume of
240 x 240 x 155.
"""

import argparse
import contextlib
import importlib.util
import io
import json
import os
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import nibabel
import numpy as np
import pandas as pd

from medimg_eval.metrics import segmentation_scores

Array = np.ndarray[Any, Any]
SHAPE, FULL = (56, 48, 40), (240, 240, 155)
COLUMNS = {
    "Num_TP": "lesion_tp",
    "Num_FP": "lesion_fp",
    "Num_FN": "lesion_fn",
    "Sensitivity": "legacy_sensitivity",
    "Specificity": "legacy_specificity",
    "Legacy_Dice": "legacy_dice",
    "Legacy_HD95": "legacy_hd95",
    "Legacy NSD @ 0.5": "legacy_nsd@0.5",
    "Legacy NSD @ 1.0": "legacy_nsd@1",
    "LesionWise_Score_Dice": "lesion_dice",
    "LesionWise_Score_HD95": "lesion_hd95",
    "LesionWise_Score_NSD @ 0.5": "lesion_nsd@0.5",
    "LesionWise_Score_NSD @ 1.0": "lesion_nsd@1",
}
"""The scripts' columns, but the reference's volume, and ours."""

ADULT = {"WT": [1, 2, 3], "TC": [1, 3], "ET": [3]}


class Challenge(NamedTuple):
    """A script, and the regions that it judges."""

    year: int
    script: str
    name: str
    lesions: str
    regions: dict[str, list[int]]
    function: str = "get_LesionWiseResults"


CHALLENGES = {
    **{f"2023 {one}": Challenge(2023, "metrics", f"BraTS-{one}", f"brats2023-{one.lower()}", ADULT)
       for one in ("GLI", "SSA", "MEN", "PED", "MET")},
    "2024 GLI": Challenge(2024, "metrics_GLI", "BraTS-GLI", "brats2024-gli",
                          {"WT": [1, 2, 3], "TC": [1, 3], "NETC": [1], "SNFH": [2], "ET": [3], "RC": [4]}),
    "2024 SSA": Challenge(2024, "metrics_SSA", "BraTS-SSA", "brats2024-ssa", {**ADULT, "NETC": [1]}),
    "2024 PED": Challenge(2024, "metrics_PED", "BraTS-PED", "brats2024-ped",
                          {"WT": [1, 2, 3, 4], "TC": [1, 2, 3], "ET": [1], "NETC": [2], "CC": [3], "ED": [4]}),
    "2024 MET": Challenge(2024, "metrics_MET", "BraTS-MET", "brats2024-met", {**ADULT, "RC": [4], "NETC": [1]}),
    "2024 MET, legacy": Challenge(2024, "metrics_MET", "", "brats2024-met", {**ADULT, "RC": [4], "NETC": [1]},
                                  "get_LegacyResults"),
    "2024 MEN": Challenge(2024, "metrics_MEN", "BraTS-MEN", "brats2024-men", ADULT),
    "2024 MEN-RT": Challenge(2024, "metrics_MEN_RT", "BraTS-MEN-RT", "brats2024-men-rt", {"GTV": [1]}),
}  # fmt: skip


def volumes(
    count: int, shape: tuple[int, ...], labels: int, blobs: int, radius: float
) -> Iterator[tuple[Array, Array]]:
    """Pairs of a reference and a prediction, uint8."""
    random = np.random.default_rng(0)
    grid = np.ogrid[tuple(slice(0, size) for size in shape)]
    for number in range(count):
        reference, prediction = np.zeros((2, *shape), np.uint8)
        for _ in range(random.integers(blobs // 2, blobs + 1)):
            label, middle = random.integers(1, labels + 1), random.uniform(2, np.array(shape) - 2)
            radii = random.uniform(0.8, radius, 3)
            fate = random.random()
            for mask, part in ((reference, fate < 0.85), (prediction, fate > 0.15)):
                place = middle + random.normal(0, 1.0, 3) * (mask is prediction)
                axes = zip(grid, place, radii, strict=True)
                inside = sum(((at - centre) / length) ** 2 for at, centre, length in axes) < 1
                mask[inside & part] = label
        for mask in (reference, prediction):
            if random.random() < 0.2:
                mask[mask == random.integers(1, labels + 1)] = 0
            if number % 10 == 9 and random.random() < 0.5:
                mask[:] = 0
        yield reference, prediction


def replace_numbers(frame: pd.DataFrame, old: float, new: float, inplace: bool = False) -> pd.DataFrame:
    """`DataFrame.replace` as of pandas 1, which left alone columns that hold arrays."""
    changed = frame if inplace else frame.copy()
    for column in frame.select_dtypes("number"):
        changed[column] = frame[column].where(frame[column] != old, new)
    return changed


def load(clone: Path, script: str) -> ModuleType:
    """The script as a module, with what libraries have since dropped."""
    vars(np)["Inf"] = np.inf
    pd.DataFrame.append = lambda self, other: pd.concat([self, other])  # type: ignore[attr-defined]
    pd.DataFrame.replace = replace_numbers  # type: ignore[assignment,method-assign]
    for name in [name for name in sys.modules if name.partition(".")[0] == "surface_distance"]:
        del sys.modules[name]
    sys.path.insert(0, str(clone))
    try:
        found = importlib.util.spec_from_file_location(
            f"{clone.name}_{script}".replace("-", "_"), clone / f"{script}.py"
        )
        assert found is not None  # noqa: S101
        assert found.loader is not None  # noqa: S101
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
    finally:
        sys.path.remove(str(clone))
    return module


@contextlib.contextmanager
def binary(module: ModuleType, *, wanted: bool) -> Iterator[None]:
    """Lets the whole-image columns be of masks, whose lesions have no numbers."""
    rates, surfaces = module.get_sensitivity_and_specificity, module.surface_distance.compute_surface_distances
    if wanted:
        module.get_sensitivity_and_specificity = lambda result_array, target_array: rates(  # type: ignore[attr-defined]
            result_array > 0, target_array > 0
        )
        module.surface_distance.compute_surface_distances = lambda reference, prediction, spacing: surfaces(
            reference > 0, prediction > 0, spacing
        )
    try:
        yield
    finally:
        module.get_sensitivity_and_specificity = rates  # type: ignore[attr-defined]
        module.surface_distance.compute_surface_distances = surfaces


def theirs(module: ModuleType, challenge: Challenge, folder: Path) -> dict[str, dict[str, float]]:
    """What the script prints of the files in a folder: label -> column -> value."""
    arguments = [str(folder / "prediction.nii.gz"), str(folder / "reference.nii.gz")]
    arguments += [challenge.name] if challenge.name else []
    with contextlib.redirect_stdout(io.StringIO()), contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = getattr(module, challenge.function)(*arguments)
    table = (found[0] if isinstance(found, tuple) else found).set_index("Labels")
    return {label: {name: float(value) for name, value in row.items()} for label, row in table.iterrows()}


def ours(challenge: Challenge, reference: Array, prediction: Array, columns: list[str]) -> dict[str, dict[str, float]]:
    """The same of ours."""
    rule: Any = challenge.lesions
    if challenge.function == "get_LegacyResults":
        rule = {"preset": rule, "small_predictions": "keep"}
    scores = segmentation_scores(
        reference,
        prediction,
        (1.0, 1.0, 1.0),
        labels=challenge.regions,
        metrics=[COLUMNS[name] for name in columns],
        empty=f"brats{challenge.year}",
        lesions=rule,
    )
    names = {COLUMNS[name]: name for name in columns}
    found: dict[str, dict[str, float]] = {}
    for score in scores:
        found.setdefault(score.label, {})[names[score.metric]] = score.value
    for label, parts in challenge.regions.items():
        found[label]["GT_Complete_Volume"] = float(np.isin(reference, parts).sum())
    return found


def save(folder: Path, reference: Array, prediction: Array) -> None:
    for name, mask in (("reference", reference), ("prediction", prediction)):
        nibabel.save(nibabel.Nifti1Image(mask, np.eye(4)), folder / f"{name}.nii.gz")


def compare(challenge: Challenge, module: ModuleType, count: int) -> dict[str, Any]:
    """Column -> how many values are equal, as the script is and with binary masks."""
    found: dict[str, dict[str, Any]] = {}
    labels = 4 if challenge.script != "metrics_MEN_RT" else 1
    for reference, prediction in volumes(count, SHAPE, labels, 14, 6.0):
        with tempfile.TemporaryDirectory() as name:
            save(Path(name), reference, prediction)
            answers = {}
            for wanted in (False, True):
                with binary(module, wanted=wanted):
                    answers[wanted] = theirs(module, challenge, Path(name))
        columns = [column for column in next(iter(answers[True].values())) if column in COLUMNS]
        scores = ours(challenge, reference, prediction, columns)
        for label, row in answers[False].items():
            for column, value in row.items():
                gaps = [abs(scores[label][column] - answer) for answer in (value, answers[True][label][column])]
                one = found.setdefault(column, {"values": 0, "equal": 0, "equal, masks binary": 0, "farthest": 0.0})
                one["values"] += 1
                one["equal"] += gaps[0] < 1e-6
                one["equal, masks binary"] += gaps[1] < 1e-6
                one["farthest"] = max(one["farthest"], gaps[0])
    return found


def speed(challenge: Challenge, module: ModuleType) -> dict[str, float]:
    """CPU seconds of one whole volume, from files for the script; the lesser of two turns."""
    (pair,) = volumes(1, FULL, 4 if challenge.script != "metrics_MEN_RT" else 1, 40, 10.0)
    seconds: dict[str, list[float]] = {"script": [], "ours": []}
    with tempfile.TemporaryDirectory() as name:
        save(Path(name), *pair)
        for turn in range(2):
            start = time.process_time()
            printed = theirs(module, challenge, Path(name)) if turn == 0 or seconds["script"][0] < 60 else {}
            seconds["script"] += [time.process_time() - start] if printed else []
            columns = [column for column in COLUMNS if not printed or column in next(iter(printed.values()))]
            start = time.process_time()
            masks = [np.asarray(nibabel.load(f"{name}/{side}.nii.gz").dataobj) for side in ("reference", "prediction")]
            ours(challenge, *masks, columns)
            seconds["ours"].append(time.process_time() - start)
    least = {side: min(turns) for side, turns in seconds.items()}
    return {
        "script CPU s": round(least["script"], 2),
        "ours CPU s": round(least["ours"], 3),
        "script / ours": round(least["script"] / least["ours"], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clone-2023", type=Path, required=True)
    parser.add_argument("--clone-2024", type=Path, required=True)
    parser.add_argument("--volumes", type=int, default=20)
    parser.add_argument("--only", nargs="*", choices=list(CHALLENGES))
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {}
    for title, challenge in CHALLENGES.items():
        if options.only and title not in options.only:
            continue
        module = load(options.clone_2023 if challenge.year == 2023 else options.clone_2024, challenge.script)
        found[title] = {"columns": compare(challenge, module, options.volumes)}
        if options.speed:
            found[title]["240 x 240 x 155"] = speed(challenge, module)
        print(title, json.dumps(found[title], indent=1), flush=True)
    machine = {"cpu": platform.machine(), "cores": os.cpu_count(), "numpy": np.__version__, "pandas": pd.__version__}
    if options.out:
        whole = {"machine": machine, "volumes": options.volumes, "grid": SHAPE, "challenges": found}
        options.out.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
