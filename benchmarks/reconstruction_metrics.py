"""What SSIM and the other metrics of images take, beside scikit-image, MONAI, torchmetrics, piq and sewar.

    python benchmarks/reconstruction_metrics.py [--out RESULTS.json] [--images 16] [--size 512] [--repeats 3]
        [--peers NAME ...] [--turns 9]

Pairs of images with structures of several sizes are judged one by one, by peers that work on batches all at once.
Each implementation has a process of its own, on one thread; of a few turns the one of least CPU time counts, from
arrays to numbers. Memory is what that process held above its inputs. A peer that is not installed is left out
(`pip install piq sewar` adds two that no other part of this package needs). Compare ratios, not seconds. With `--turns`
MS-SSIM alone is computed by ours and by MONAI in turn, in one process, which bears a machine that others use.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from readers import highest, start_of_peak

Array = np.ndarray[Any, Any]
Score = Callable[[Array, Array], list[float]]
METRICS = ("ssim", "ssim uniform", "ms-ssim", "vif", "haarpsi", "gmsd", "psnr")
PEERS = {"scikit-image": "skimage", "MONAI": "monai", "torchmetrics": "torchmetrics", "piq": "piq", "sewar": "sewar"}
PRECISE = ("ours", "scikit-image", "sewar")


def pictures(count: int, size: int) -> tuple[Array, Array]:
    """Images from 0 to 1 and worse copies of them, float64, (image, row, column)."""
    from scipy.ndimage import gaussian_filter

    rng = np.random.default_rng(0)
    first = sum(gaussian_filter(rng.standard_normal((count, size, size)), (0, s, s)) * s for s in (1, 4, 16))
    lows, highs = first.min(axis=(1, 2), keepdims=True), first.max(axis=(1, 2), keepdims=True)
    first = (first - lows) / (highs - lows)
    second = gaussian_filter(first, (0, 0.7, 0.7)) + 0.03 * rng.standard_normal(first.shape)
    return first, np.clip(second, 0, 1)


def ours() -> dict[str, Score]:
    from medimg_eval.metrics.reconstruction import metrics as here

    def over(judge: Callable[..., float], **options: Any) -> Score:
        return lambda one, two: [judge(a, b, data_range=1.0, **options) for a, b in zip(one, two, strict=True)]

    plain = {"ms-ssim": here.ms_ssim, "vif": here.vif, "haarpsi": here.haarpsi, "gmsd": here.gmsd, "psnr": here.psnr}
    found = {name: over(judge) for name, judge in plain.items()}
    return {"ssim": over(here.ssim), "ssim uniform": over(here.ssim, window="uniform"), **found}


def scikit_image() -> dict[str, Score]:
    from skimage.metrics import peak_signal_noise_ratio, structural_similarity

    wang = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}

    def over(judge: Callable[..., float], **options: Any) -> Score:
        return lambda one, two: [judge(a, b, data_range=1.0, **options) for a, b in zip(one, two, strict=True)]

    return {
        "ssim": over(structural_similarity, **wang),
        "ssim uniform": over(structural_similarity),
        "psnr": over(peak_signal_noise_ratio),
    }


def batched(judge: Callable[[Any, Any], Any]) -> Score:
    """A peer that takes single-precision tensors (image, 1, row, column)."""
    import torch

    def score(one: Array, two: Array) -> list[float]:
        tensors = [torch.from_numpy(each.astype(np.float32))[:, None] for each in (one, two)]
        return [float(value) for value in judge(*tensors).flatten()]

    return score


def monai() -> dict[str, Score]:
    from monai.metrics import MultiScaleSSIMMetric, SSIMMetric

    ssim, multi = SSIMMetric(2, data_range=1.0), MultiScaleSSIMMetric(2, data_range=1.0)
    return {"ssim": batched(lambda a, b: ssim(b, a)), "ms-ssim": batched(lambda a, b: multi(b, a))}


def torchmetrics() -> dict[str, Score]:
    from torchmetrics.functional import image

    ssim, multi = image.structural_similarity_index_measure, image.multiscale_structural_similarity_index_measure
    return {
        "ssim": batched(lambda a, b: ssim(b, a, data_range=1.0, reduction="none")),
        "ms-ssim": batched(lambda a, b: multi(b, a, data_range=1.0, reduction="none")),
    }


def piq() -> dict[str, Score]:
    import piq as peer

    return {
        "ssim": batched(lambda a, b: peer.ssim(b, a, downsample=False, reduction="none")),
        "ms-ssim": batched(lambda a, b: peer.multi_scale_ssim(b, a, reduction="none")),
        "vif": batched(lambda a, b: peer.vif_p(b, a, reduction="none")),
        "haarpsi": batched(lambda a, b: peer.haarpsi(b, a, reduction="none")),
        "gmsd": batched(lambda a, b: peer.gmsd(b, a, reduction="none")),
    }


def sewar() -> dict[str, Score]:
    from sewar.full_ref import vifp

    return {"vif": lambda one, two: [float(vifp(255 * a, 255 * b)) for a, b in zip(one, two, strict=True)]}


MAKERS = {"ours": ours, "scikit-image": scikit_image, "MONAI": monai, "torchmetrics": torchmetrics, "piq": piq}
MAKERS["sewar"] = sewar


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """CPU seconds, memory in MB and values of every metric that one implementation has."""
    warnings.filterwarnings("ignore")
    scores = MAKERS[name]()
    if name not in PRECISE:
        import torch

        torch.set_num_threads(1)
    one, two = pictures(options.images, options.size)
    found = {}
    for metric, score in scores.items():
        score(one[:1], two[:1])
        start = start_of_peak()
        turns = []
        for _ in range(options.repeats):
            begin = time.process_time()
            values = score(one, two)
            turns.append(time.process_time() - begin)
        found[metric] = {"seconds": min(turns), "megabytes": (highest() - start) / 1024, "values": values}
    return found


def versions() -> dict[str, str]:
    packages = ("numpy", "scipy", "scikit-image", "monai", "torch", "torchmetrics", "piq", "sewar")
    return {name: importlib.metadata.version(name) for name in packages if importlib.util.find_spec(_module(name))}


def _module(package: str) -> str:
    return PEERS.get(package, package.replace("scikit-image", "skimage"))


def child(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The same in a process of its own."""
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, __file__, "--child", name, "--images", str(options.images), "--size", str(options.size)]
    done = subprocess.run(
        [*command, "--repeats", str(options.repeats)],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | single,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def in_turn(options: argparse.Namespace) -> dict[str, Any]:
    """How many times MONAI's CPU time for MS-SSIM is ours, turn by turn."""
    import torch

    torch.set_num_threads(1)
    pair = pictures(options.images, options.size)
    runs = [(ours()["ms-ssim"], pair), (monai()["ms-ssim"], tuple(one.astype(np.float32) for one in pair))]
    ratios = []
    for _ in range(options.turns + 1):
        times = []
        for judge, given in runs:
            start = time.process_time()
            judge(*given)
            times.append(time.process_time() - start)
        ratios.append(times[1] / times[0])
    ratios = sorted(round(ratio, 2) for ratio in ratios[1:])  # the first loads what is imported late
    return {"turns": options.turns, "median": float(np.median(ratios)), "least": ratios[0], "most": ratios[-1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peers", nargs="*", default=list(PEERS))
    parser.add_argument("--turns", type=int, help="of MS-SSIM, ours and MONAI's, and nothing else")
    parser.add_argument("--child")
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.child, options)))
        return
    if options.turns:
        turns = in_turn(options)
        print(json.dumps(turns))
        if options.out:
            held = json.loads(options.out.read_text(encoding="utf-8"))
            options.out.write_text(json.dumps(held | {"ms-ssim in turn": turns}, indent=1) + "\n", encoding="utf-8")
        return
    names = ["ours", *(name for name in options.peers if importlib.util.find_spec(PEERS[name]))]
    found = {name: child(name, options) for name in names}
    rows = []
    for metric in METRICS:
        base = found["ours"][metric]
        for name in names:
            if metric not in found[name]:
                continue
            one = found[name][metric]
            apart = max(abs(a - b) for a, b in zip(one["values"], base["values"], strict=True))
            rows.append(
                {
                    "metric": metric,
                    "by": name,
                    "cpu_seconds": round(one["seconds"], 4),
                    "ratio": round(one["seconds"] / base["seconds"], 2),
                    "megabytes": round(one["megabytes"], 1),
                    "farthest_from_ours": float(f"{apart:.1e}"),
                    "mean": round(float(np.mean(one["values"])), 6),
                }
            )
    print(f"{'metric':14}{'by':15}{'CPU s':>9}{'ratio':>8}{'MB':>9}{'apart':>10}{'mean':>11}")
    for row in rows:
        metric, name, seconds, ratio, memory, apart, mean = row.values()
        print(f"{metric:14}{name:15}{seconds:9.3f}{ratio:8.2f}{memory:9.1f}{apart:10.1e}{mean:11.6f}")
    if options.out:
        said = {
            "images": options.images,
            "size": options.size,
            "repeats": options.repeats,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "packages": versions(),
        }
        options.out.write_text(json.dumps({"settings": said, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
