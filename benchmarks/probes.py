"""Heads on features beside scikit-learn and a plain training loop: time, and whether the answer is as good.

    python benchmarks/probes.py [--parts linear,neighbours,ridge,bags,fits] [--cases 100000] [--width 1024]
        [--queries 10000] [--tiles 5000] [--bags 24] [--epochs 2] [--threads 1] [--out RESULTS.json]

Made-up features with correlations, of classes that overlap. CPU seconds of one process with the threads that are named,
one side after the other on the same arrays. Objectives are computed in float64, by one function for both sides. Bags
lie in HDF5 as TRIDENT writes them, in chunks of one row; both sides start there, and read whole bags. `fits` are
commands from their start to their end, reading, hashing and looking for leaks among it.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import sklearn
import torch
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from medimg_eval.models.heads import Targets, make_head

CLASSES = 10
C = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0)
K = 20
TOLERANCE = 1e-6
"""Of scikit-learn: at its usual 1e-4 and from a warm start, it stops far above the minimum."""


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    """What a function returns, and its CPU seconds."""
    start = time.process_time()
    found = run()
    return found, round(time.process_time() - start, 2)


def features(cases: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Features whose eigenvalues fall as 1 / rank, and classes."""
    random = np.random.default_rng(0)
    spectrum = np.arange(1, width + 1) ** -0.5
    turn = np.linalg.qr(random.standard_normal((width, width)))[0].astype(np.float32)
    classes = random.integers(0, CLASSES, cases)
    centres = random.standard_normal((CLASSES, width)) * spectrum * 0.05
    found = np.empty((cases, width), np.float32)
    for at in range(0, cases, 10_000):
        some = classes[at : at + 10_000]
        made = random.standard_normal((len(some), width)) * spectrum + centres[some]
        found[at : at + 10_000] = made.astype(np.float32) @ turn
    return found, classes


def linear(cases: int, width: int) -> dict[str, Any]:
    """Seven values of C, each from the end of the one before."""
    shown, classes = features(cases, width)
    shown = StandardScaler(copy=False).fit_transform(shown)
    targets = Targets("exclusive", tuple(map(str, range(CLASSES))), np.eye(CLASSES)[classes])

    def objective(weight: np.ndarray, bias: np.ndarray, amount: float) -> float:
        total = 0.5 / amount * float((weight.astype(np.float64) ** 2).sum())
        for at in range(0, cases, 10_000):
            logits = torch.from_numpy(shown[at : at + 10_000].astype(np.float64) @ weight.T + bias)
            truth = torch.from_numpy(classes[at : at + 10_000])
            total += float(torch.nn.functional.cross_entropy(logits, truth, reduction="sum"))
        return total

    heads, ours = timed(
        lambda: make_head({"name": "logistic", "scale": "none"}).fit_path(
            shown, targets, None, [{"C": amount} for amount in C]
        )
    )
    mine = [objective(head.arrays["weight"], head.arrays["bias"], head.facts["C"]) for head in heads]
    print(f"ours {ours}", [head.facts["n_iter"] for head in heads], flush=True)
    peer = LogisticRegression(warm_start=True, max_iter=1000, tol=TOLERANCE)
    theirs, steps, others = 0.0, [], []
    for amount in C:
        peer.C = amount
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs += timed(lambda: peer.fit(shown, classes))[1]
        steps.append(int(peer.n_iter_[0]))
        others.append(objective(peer.coef_, peer.intercept_, amount))
    return {
        "cases": cases,
        "width": width,
        "C": C,
        "CPU s": ours,
        "scikit-learn lbfgs CPU s": round(theirs, 2),
        "ratio": round(theirs / ours, 2),
        "iterations": [head.facts["n_iter"] for head in heads],
        "scikit-learn iterations": steps,
        "objective of scikit-learn above ours, as a share": [
            float(f"{(b - a) / a:.2e}") for a, b in zip(mine, others, strict=True)
        ],
    }


def neighbours(cases: int, width: int, queries: int) -> dict[str, Any]:
    """Twenty nearest by cosine."""
    shown, classes = features(cases + queries, width)
    known, asked = shown[:cases], shown[cases:]
    targets = Targets("exclusive", tuple(map(str, range(CLASSES))), np.eye(CLASSES)[classes[:cases]])
    head = make_head({"name": "knn", "k": K, "temperature": None}).fit(known, targets)

    def product() -> None:
        base = torch.from_numpy(known)
        for at in range(0, queries, 1024):
            _ = torch.from_numpy(asked[at : at + 1024]) @ base.T

    _, alone = timed(product)
    predicted, ours = timed(lambda: head.predict(asked))
    rough = make_head({"name": "knn", "k": K, "temperature": None, "precision": "bfloat16"}).fit(known, targets)
    about, quick = timed(lambda: rough.predict(asked))
    peer = KNeighborsClassifier(K, metric="cosine", algorithm="brute").fit(known, classes[:cases])
    others, theirs = timed(lambda: peer.predict_proba(asked))
    return {
        "cases": cases,
        "width": width,
        "queries": queries,
        "CPU s": ours,
        "float32 product alone CPU s": alone,
        "scikit-learn CPU s": theirs,
        "of the product": round(ours / alone, 2),
        "ratio to scikit-learn": round(theirs / ours, 2),
        "bfloat16 CPU s": quick,
        "bfloat16, ratio to scikit-learn": round(theirs / quick, 2),
        "bfloat16, cases with equal votes": round(float((np.abs(about - others) < 1e-6).all(1).mean()), 5),
        "cases with equal votes": round(float((np.abs(predicted - others) < 1e-6).all(1).mean()), 5),
    }


def ridge(width: int) -> dict[str, Any]:
    """256 principal components, and ridge regression of 50 numbers with ten values of alpha.

    scikit-learn's usual PCA is random for this shape; its exact one is what predictions are compared with.
    """
    cases, numbers, amounts = 30_000, 50, np.logspace(-3, 6, 10)
    shown, _ = features(cases, width)
    random = np.random.default_rng(1)
    values = shown @ random.standard_normal((width, numbers)) + random.standard_normal((cases, numbers))
    targets = Targets("numbers", tuple(map(str, range(numbers))), values)
    heads, ours = timed(
        lambda: make_head({"name": "ridge", "components": 256}).fit_path(
            shown, targets, None, [{"alpha": float(amount)} for amount in amounts]
        )
    )

    def theirs(solver: str) -> list[np.ndarray]:
        scores = PCA(256, random_state=1, svd_solver=solver).fit_transform(StandardScaler().fit_transform(shown))
        return [Ridge(alpha=amount).fit(scores, values).predict(scores) for amount in amounts]

    _, usual = timed(lambda: theirs("auto"))
    predicted, other = timed(lambda: theirs("covariance_eigh"))
    apart = [float(np.abs(head.predict(shown) - one).max()) for head, one in zip(heads, predicted, strict=True)]
    return {
        "cases": cases,
        "width": width,
        "CPU s": ours,
        "scikit-learn PCA and Ridge CPU s": usual,
        "ratio": round(usual / ours, 2),
        "the same with an exact PCA (covariance_eigh) CPU s": other,
        "ratio to the exact": round(other / ours, 2),
        "largest difference of a prediction, in deviations": round(max(apart) / float(values.std()), 5),
    }


class Plain(torch.nn.Module):
    """Gated attention as tutorials write it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = torch.nn.Sequential(torch.nn.Linear(width, 512), torch.nn.ReLU(), torch.nn.Dropout(0.25))
        self.one = torch.nn.Sequential(torch.nn.Linear(512, 128), torch.nn.Tanh())
        self.gate = torch.nn.Sequential(torch.nn.Linear(512, 128), torch.nn.Sigmoid())
        self.weigh, self.classify = torch.nn.Linear(128, 1), torch.nn.Linear(512, 2)

    def forward(self, bag: torch.Tensor) -> torch.Tensor:
        rows = self.project(bag)
        shares = torch.softmax(self.weigh(self.one(rows) * self.gate(rows)), 0)
        logits: torch.Tensor = self.classify((shares * rows).sum(0, keepdim=True))
        return logits


def bags(width: int, tiles: int, count: int, epochs: int) -> dict[str, Any]:
    """Whole bags, one a step: reading, training, and answering for as many new ones."""
    random = np.random.default_rng(0)
    classes = np.arange(2 * count) % 2
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{place}.h5") for place in range(2 * count)]
        for path, present in zip(paths, classes, strict=True):
            bag = random.standard_normal((tiles, width), dtype=np.float32)
            bag[: tiles // 20, :8] += 2 * present
            with h5py.File(path, "w") as file:
                file.create_dataset("features", data=bag, chunks=(1, width))

        def read(path: Path) -> np.ndarray:
            with h5py.File(path) as file:
                found: np.ndarray = file["features"][:]
                return found

        def plain() -> np.ndarray:
            torch.manual_seed(0)
            model = Plain(width)
            optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=1e-5)
            for _ in range(epochs):
                for place in np.random.default_rng(0).permutation(count):
                    logits = model(torch.from_numpy(read(paths[place])))
                    loss = torch.nn.functional.cross_entropy(logits, torch.tensor([classes[place]]))
                    optimiser.zero_grad()
                    loss.backward()
                    optimiser.step()
            model.eval()
            with torch.inference_mode():
                return np.array([float(model(torch.from_numpy(read(p))).softmax(1)[0, 1]) for p in paths[count:]])

        def ours(precision: str) -> np.ndarray:
            head = make_head({"name": "abmil", "epochs": epochs, "tiles": None, "precision": precision})
            targets = Targets("exclusive", ("absent", "present"), np.eye(2)[classes[:count]])
            head.fit((read(path) for path in paths[:count]), targets)
            found: np.ndarray = head.predict(read(path) for path in paths[count:])[:, 1]
            return found

        told: dict[str, Any] = {"width": width, "tiles": tiles, "bags": count, "epochs": epochs}
        scores, base = timed(plain)
        told |= {"plain loop CPU s": base, "plain loop AUROC": round(float(roc_auc_score(classes[count:], scores)), 4)}
        for precision in ("float32", "bfloat16"):
            scores, seconds = timed(lambda precision=precision: ours(precision))
            told[precision] = {
                "CPU s": seconds,
                "ratio": round(base / seconds, 2),
                "AUROC": round(float(roc_auc_score(classes[count:], scores)), 4),
            }
        return told


TASK = """
_target_: medimg_eval.tasks.ClassificationTask
name: made
layout: {layout}
classes: {classes}
exclusive: true
metrics: [auroc@macro]
splits: {{fit: fit}}
"""
"""A task over a table with the columns `id`, `split` and `class`."""


def fits(cases: int, width: int, count: int) -> dict[str, Any]:
    """`fit` of a linear probe on vectors with one C, and of ABMIL (20 epochs) on bags of 200 tiles."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "conf" / "task").mkdir(parents=True)
        found, classes = features(cases, width)
        np.save(folder / "features.npy", found)
        told = {"cases": cases, "width": width}
        vectors = {"_target_": "medimg_eval.data.layouts.FeatureVectors", "features": "features.npy"}
        told["linear probe"] = _fitted(folder, "vectors", classes, vectors, ["model=probe", "model.grid={}"])
        _write_bags(folder / "bags", np.arange(count) % 2, width)
        stored = {
            "_target_": "medimg_eval.data.layouts.Slides",
            "store": "bags",
            "bag": "{id}",
            "id": "id",
            "patient": "id",
        }
        told["bags"] = count
        told["ABMIL"] = _fitted(folder, "bags", np.arange(count) % 2, stored, ["model=abmil"])
        return told


def _write_bags(folder: Path, classes: np.ndarray, width: int, tiles: int = 200) -> None:
    folder.mkdir()
    random = np.random.default_rng(0)
    for place, present in enumerate(classes):
        bag = random.standard_normal((tiles, width), dtype=np.float32)
        bag[: tiles // 20, :8] += 2 * present
        with h5py.File(folder / f"c{place}.h5", "w") as file:
            file.create_dataset("features", data=bag, chunks=(1, width))
            file["coords"] = np.stack([np.arange(tiles), np.zeros(tiles)], 1).astype(np.int64) * 256


def _fitted(folder: Path, task: str, classes: np.ndarray, layout: dict[str, str], words: list[str]) -> dict[str, float]:
    """CPU and wall seconds of the command `fit`."""
    names = [f"k{one}" for one in range(int(classes.max()) + 1)]
    lines = [f"c{place},fit,k{one}" for place, one in enumerate(classes)]
    (folder / f"{task}.csv").write_text("\n".join(["id,split,class", *lines]) + "\n", encoding="utf-8")
    target = {"_target_": "medimg_eval.data.targets.ClassName", "column": "class", "classes": names}
    layout = {**layout, "root": str(folder), "table": f"{task}.csv", "split": "split", "target": target}
    written = TASK.format(layout=json.dumps(layout), classes=json.dumps(names))
    (folder / "conf" / "task" / f"{task}.yaml").write_text(written, encoding="utf-8")
    command = [sys.executable, "-m", "medimg_eval", "fit", "--config-dir", str(folder / "conf"), f"task={task}"]
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([*command, *words, f"run={folder / 'runs' / task}"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"CPU s": round(spent, 1), "wall s": round(time.perf_counter() - begun, 1)}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="linear,neighbours,ridge,bags")
    for name, usual in (("cases", 100_000), ("width", 1024), ("queries", 10_000), ("tiles", 5000)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    for name, usual in (("bags", 24), ("epochs", 2), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    parts = {
        "linear": lambda: linear(options.cases, options.width),
        "neighbours": lambda: neighbours(options.cases, options.width, options.queries),
        "ridge": lambda: ridge(options.width),
        "bags": lambda: bags(options.width, options.tiles, options.bags, options.epochs),
        "fits": lambda: fits(options.cases, options.width, 1000),
    }
    found: dict[str, Any] = {
        "machine": {
            "cpu": platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "scikit-learn": sklearn.__version__,
        }
    }
    for name in options.parts.split(","):
        row = name if options.threads == 1 else f"{name}, {options.threads} threads"
        load = [round(value, 2) for value in os.getloadavg()]
        found[row] = parts[name]() | {"load": load}
        print(row, json.dumps(found[row], indent=1), flush=True)
    if options.out:
        known = json.loads(options.out.read_text(encoding="utf-8")) if options.out.is_file() else {}
        options.out.write_text(json.dumps(known | found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
