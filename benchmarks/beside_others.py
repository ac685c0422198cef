"""CPU time and lines typed of `score FILES=` beside what others have for the same files, in turns.

    python benchmarks/beside_others.py [--peer-python PYTHON] [--vlmevalkit CLONE] [--turns 5] [--out RESULTS.json]

Lines are those that a user types: of a program that is not blank, of a command one. CPU seconds are those of all
processes, start included; modules are compiled before the first turn. A ratio is the median over turns of the other's
CPU time to ours. Made-up data (seeded), those of `score_files.py`. A peer that is not installed is said to be so.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from score_files import cpu_of, write_data, write_table

HERE = Path(__file__).resolve().parent
LETTERS = "ABCD"

MONAI = """
from pathlib import Path
import torch
from monai.metrics import DiceMetric, HausdorffDistanceMetric, MeanIoU, SurfaceDiceMetric, SurfaceDistanceMetric
from monai.transforms import AsDiscrete, LoadImage
load, one_hot = LoadImage(ensure_channel_first=True), AsDiscrete(to_onehot=3)
metrics = {"dice": DiceMetric(include_background=False), "iou": MeanIoU(include_background=False)}
metrics["hd95"] = HausdorffDistanceMetric(include_background=False, percentile=95)
metrics["assd"] = SurfaceDistanceMetric(include_background=False, symmetric=True)
metrics["nsd"] = SurfaceDiceMetric([1.0, 1.0], include_background=False)
for path in sorted(Path("right").iterdir()):
    right, mine = load(path), load(Path("mine", path.name))
    spacing = right.pixdim.tolist()
    right, mine = (one_hot(one).as_tensor()[None] for one in (right, mine))
    for name, metric in metrics.items():
        metric(mine, right, **({} if name in ("dice", "iou") else {"spacing": spacing}))
for name, metric in metrics.items():
    print(name, metric.aggregate().mean().item())
"""
TORCH_FIDELITY = """
import torch
from torch_fidelity import calculate_metrics, register_feature_extractor
from torch_fidelity.feature_extractor_base import FeatureExtractorBase
class Pixels(FeatureExtractorBase):
    def __init__(self, name, features_list, **kwargs):
        super().__init__(name, features_list)
    @staticmethod
    def get_provided_features_list():
        return ("grey",)
    @staticmethod
    def get_default_feature_layer_for_metric(metric):
        return "grey"
    @staticmethod
    def can_be_compiled():
        return False
    @staticmethod
    def get_dummy_input_for_compile():
        return torch.zeros(1, 3, 128, 128, dtype=torch.uint8)
    def forward(self, x):
        small = torch.nn.functional.interpolate(x.double().mean(dim=1, keepdim=True) / 255, size=(16, 16), mode="area")
        return (small.flatten(1),)
register_feature_extractor("pixels", Pixels)
print(calculate_metrics(input1="made", input2="real", feature_extractor="pixels", cuda=False, fid=True, kid=True,
                        prc=True, kid_subset_size=100, verbose=False))
"""
VLMEVALKIT = """
from vlmeval.dataset import build_dataset
print(build_dataset("letters").evaluate("model_letters.xlsx", model="exact_matching", nproc=1))
"""

PEERS: dict[str, dict[str, Any]] = {
    "masks": {
        "ours": ["masks=mine", "references=right", "labels={1: liver, 2: tumour}"],
        "data": "20 volumes of 96 x 96 x 40, 2 labels",
        "others": {"MONAI": ("monai", MONAI), "nnU-Net": ("nnunetv2", "nnUNetv2_evaluate_simple right mine -l 1 2")},
    },
    "pictures": {
        "ours": ["pictures=made", "real=real"],
        "data": "300 against 300 of 128 x 128, features of pixels",
        "others": {"torch-fidelity": ("torch_fidelity", TORCH_FIDELITY)},
    },
    "answers": {
        "ours": ["answers=letters.csv"],
        "data": "1,000 choices of four options",
        "others": {"VLMEvalKit": ("vlmeval", VLMEVALKIT)},
    },
}


def write_choices() -> None:
    """The same answers as a table of ours, and as VLMEvalKit has them: a set as TSV, and replies as XLSX."""
    import pandas as pd

    rng = np.random.default_rng(1)
    right, said = rng.choice([*LETTERS], (2, 1000))
    options = [[f"finding {n} {letter}" for letter in LETTERS] for n in range(1000)]
    rows = [(n, f"Which finding is on picture {n}?", *options[n], right[n], f"({said[n]})") for n in range(1000)]
    write_table("letters.csv", "id,question,A,B,C,D,reference,prediction", rows)
    table = pd.DataFrame(rows, columns=["index", "question", *LETTERS, "answer", "prediction"])
    table.drop(columns="prediction").to_csv("letters.tsv", sep="\t", index=False)
    table.to_excel("model_letters.xlsx", index=False)


def lines(typed: str) -> int:
    return sum(bool(line.strip()) for line in typed.splitlines())


def command_of(typed: str, python: str) -> list[str]:
    """How what is typed is run: a program, or a command of the environment that Python belongs to."""
    if "\n" in typed:
        return [python, "-c", typed]
    name, *words = typed.split()
    return [python, str(Path(python).parent / name), *words]


def available(python: str, module: str) -> str | None:
    """The version of a peer in an environment; None where it is not there."""
    code = f"import importlib.metadata as m, importlib.util as u; assert u.find_spec({module!r})"
    if subprocess.run([python, "-c", code], check=False, capture_output=True).returncode:
        return None
    code = f"import importlib.metadata as m; print(m.version(m.packages_distributions()[{module!r}][0]))"
    said = subprocess.run([python, "-c", code], check=False, capture_output=True, text=True).stdout.strip()
    return said or "a clone"


def values_of(typed: str, python: str) -> str:
    """What the other prints last, as far as it holds numbers."""
    done = subprocess.run(command_of(typed, python), check=True, capture_output=True, text=True)
    return " ".join(line for line in done.stdout.splitlines()[-9:] if re.search(r"\d", line))


def compare(kind: str, turns: int, python: str) -> dict[str, Any]:
    peers = PEERS[kind]
    said: dict[str, Any] = {"data": peers["data"], "ours": {"lines": 1}, "others": {}}
    found = {name: version for name, (module, _) in peers["others"].items() if (version := available(python, module))}
    taken: dict[str, list[float]] = {name: [] for name in ["ours", *found]}
    for turn in range(turns + 1):
        ours = [sys.executable, "-m", "medimg_eval", "score", *peers["ours"], f"runs=runs-{kind}-{turn}"]
        taken["ours"].append(cpu_of(ours))
        for name in found:
            taken[name].append(cpu_of(command_of(peers["others"][name][1], python)))
    said["ours"]["CPU s"] = round(statistics.median(taken["ours"][1:]), 2)
    for name, (_, typed) in peers["others"].items():
        row: dict[str, Any] = {"lines": lines(typed)}
        if name in found:
            ratios = [other / own for own, other in zip(taken["ours"][1:], taken[name][1:], strict=True)]
            row |= {"version": found[name], "CPU s": round(statistics.median(taken[name][1:]), 2)}
            row |= {"to ours": round(statistics.median(ratios), 2), "prints": values_of(typed, python)}
        said["others"][name] = row if name in found else row | {"CPU s": "not installed"}
        print(kind, name, said["others"][name], flush=True)
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", default=sys.executable, help="of an environment with the others")
    parser.add_argument("--vlmevalkit", type=Path, help="a clone of open-compass/VLMEvalKit, which is on no index")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "beside_others.json")
    asked = parser.parse_args()
    python = os.path.abspath(asked.peer_python)  # noqa: PTH100 - a link to Python says which environment it is of
    out, clone = asked.out.resolve(), str(asked.vlmevalkit.resolve()) if asked.vlmevalkit else ""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ |= {"PYTHONPATH": clone, "LMUData": folder, "MMEVAL_ROOT": folder}
        os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HF_HUB_OFFLINE": "1"}
        os.environ |= {f"nnUNet_{name}": folder for name in ("raw", "preprocessed", "results")}
        write_data()
        write_choices()
        rows = {kind: compare(kind, asked.turns, python) for kind in PEERS}
    said = {"turns": asked.turns, "python": platform.python_version(), "processors": os.cpu_count()}
    said |= {"medimg_eval": importlib.metadata.version("medimg_eval"), "rows": rows}
    out.write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main()
