"""What is worth measuring on a GPU, in one go: `python benchmarks/gpu.py --out benchmarks/results/gpu.json`.

Where there is no GPU it runs at toy size on the CPU, which shows that it works and says so in its conditions. What is
not installed is skipped by name; parts that begin too late are skipped, too, so that it ends in time.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).parent
LIMIT_S = 480.0
"""For all parts; a part that is left when it is over is skipped."""

Figures = dict[str, Any]


class Skipped(Exception):  # noqa: N818 - no error
    """A part, or a peer in it, that cannot be measured here; why."""


def need(*libraries: str) -> None:
    """Raises Skipped for a library that is not installed."""
    for library in libraries:
        if importlib.util.find_spec(library) is None:
            raise Skipped(f"{library} is not installed")


def unmeasured(peer: str) -> str:
    """Why a peer has no figure: nobody has yet had a machine on which a call of it could be tried."""
    there = importlib.util.find_spec(peer) is not None
    return (
        f"not measured: {peer} is installed, but is not called here yet"
        if there
        else f"skipped: {peer} is not installed"
    )


class Bench:
    """The machine, and how large things are.

    Args:
        toy: whether all is small, as on a CPU.
    """

    def __init__(self, *, toy: bool) -> None:
        self.toy = toy
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def size(self, real: Any, toy: Any) -> Any:
        return toy if self.toy else real

    def seconds(self, work: Callable[[], Any], repeats: int = 3) -> float:
        """Of the fastest of some repeats, after one that is not counted."""
        work()
        times = []
        for _ in range(1 if self.toy else repeats):
            self._wait()
            begin = time.perf_counter()
            work()
            self._wait()
            times.append(time.perf_counter() - begin)
        return min(times)

    def peak_gib(self, work: Callable[[], Any]) -> float | None:
        """Memory of the GPU at the most; None on a CPU."""
        if self.device.type != "cuda":
            return None
        torch.cuda.reset_peak_memory_stats()
        work()
        return round(torch.cuda.max_memory_allocated() / 2**30, 3)

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def attempt(work: Callable[[], Any]) -> Any:
    """What a peer gives, or why it gives nothing."""
    try:
        return work()
    except Skipped as reason:
        return f"skipped: {reason}"
    except Exception as error:  # noqa: BLE001 - one peer is not all
        return f"failed: {type(error).__name__}: {error}"[:300]


def segresnet(bench: Bench) -> torch.nn.Module:
    from monai.networks.nets import SegResNet

    torch.manual_seed(0)
    filters = bench.size(32, 8)
    return SegResNet(in_channels=1, out_channels=4, init_filters=filters).to(bench.device).eval()


def mixed_precision(bench: Bench) -> Figures:
    """Windows a second of SegResNet in each precision, and how many voxels keep their label."""
    from medimg_eval.evaluation.devices import in_use

    network, edge = segresnet(bench), bench.size(128, 32)
    windows = torch.randn(bench.size(4, 1), 1, edge, edge, edge, device=bench.device)
    figures: Figures = {}
    labels: torch.Tensor | None = None
    for precision in ("32-true", "bf16-mixed", "16-mixed"):
        if precision == "16-mixed" and bench.device.type == "cpu":
            figures[precision] = "skipped: half precision is for GPUs"
            continue
        with in_use(network, bench.device, precision):
            seconds = bench.seconds(lambda: network(windows))
            now = network(windows).argmax(1)
        labels = now if labels is None else labels
        same = float((now == labels).float().mean())
        figures[precision] = {"windows_per_s": round(len(windows) / seconds, 3), "same_labels": round(same, 5)}
    return figures


def sliding_windows(bench: Bench) -> Figures:
    """A whole volume in windows, stitched on the device and in main memory: seconds, peak memory, equal labels."""
    from monai.inferers import SlidingWindowInferer

    network, edge = segresnet(bench), bench.size((320, 320, 256), (48, 40, 40))
    volume = torch.randn(1, 1, *edge)
    figures: Figures = {}
    kept = []
    for name, stitched in (("on_device", bench.device), ("stitch_on_cpu", torch.device("cpu"))):
        inferer = SlidingWindowInferer(
            bench.size((128, 128, 128), (32, 32, 32)), bench.size(4, 1), 0.25, sw_device=bench.device, device=stitched
        )
        inputs = volume.to(stitched)

        def work(inferer: Any = inferer, inputs: torch.Tensor = inputs) -> torch.Tensor:
            with torch.inference_mode():
                return inferer(inputs, network).argmax(1).cpu()

        figures[name] = {"seconds": round(bench.seconds(work, 1), 3), "peak_gib": bench.peak_gib(work)}
        kept.append(work())
    figures["same_labels"] = round(float((kept[0] == kept[1]).float().mean()), 6)
    return figures


RANK = """
import sys, time, torch, torch.distributed as group
from datetime import timedelta
rank, world, port, backend, size = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5])
address = f"tcp://127.0.0.1:{port}"
group.init_process_group(backend, init_method=address, rank=rank, world_size=world, timeout=timedelta(seconds=90))
device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
if backend == "nccl":
    torch.cuda.set_device(device)
values = torch.ones(size, device=device)
for _ in range(3):
    group.all_reduce(values)
    values /= world
if backend == "nccl":
    torch.cuda.synchronize()
begin = time.perf_counter()
for _ in range(5):
    group.all_reduce(values)
    values /= world
total = float(values.double().mean())
seconds = (time.perf_counter() - begin) / 5
if rank == 0:
    print(seconds, total)
group.destroy_process_group()
"""


def collectives(bench: Bench) -> Figures:
    """Sums over 1 to n ranks, by NCCL where there are GPUs: GB a second, and whether the sum is right."""
    backend = "nccl" if bench.device.type == "cuda" else "gloo"
    most = torch.cuda.device_count() if backend == "nccl" else 2
    size = bench.size(1 << 26, 1 << 16)
    figures: Figures = {"backend": backend}
    for world in range(1, most + 1):
        import socket

        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            port = str(bound.getsockname()[1])
        words = [str(world), port, backend, str(size)]
        ranks = [
            subprocess.Popen([sys.executable, "-c", RANK, str(rank), *words], stdout=subprocess.PIPE, text=True)
            for rank in range(world)
        ]
        try:
            said = [rank.communicate(timeout=180)[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        seconds, mean = map(float, said[0].split())
        figures[str(world)] = {"gb_per_s": round(4 * size / seconds / 1e9, 3), "right": abs(mean - 1) < 1e-6}
    return figures


def large_vlm(bench: Bench) -> Figures:
    """Tokens a second of Qwen2.5-VL with random weights, at the published sizes of its 7B, by batch; text alone."""
    need("transformers")
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    text = {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28}
    text |= {"num_key_value_heads": 4, "vocab_size": 152064}
    eyes = {"depth": 32, "hidden_size": 1280, "num_heads": 16, "intermediate_size": 3420, "out_hidden_size": 3584}
    if bench.toy:
        text |= {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
        text |= {"num_key_value_heads": 2, "vocab_size": 500}
        eyes = {"depth": 1, "hidden_size": 32, "num_heads": 2, "intermediate_size": 48, "out_hidden_size": 64}
    half = text["hidden_size"] // text["num_attention_heads"] // 2
    sides = 3 * half // 8
    rope = {"rope_type": "default", "mrope_section": [half - 2 * sides, sides, sides], "rope_theta": 1e6}
    config = Qwen2_5_VLConfig(text_config=text | {"rope_parameters": rope}, vision_config=eyes)
    torch.manual_seed(0)
    kept = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32 if bench.toy else torch.bfloat16)
    try:
        with bench.device:
            model = Qwen2_5_VLForConditionalGeneration(config).eval()
    finally:
        torch.set_default_dtype(kept)
    figures: Figures = {"parameters": sum(parameter.numel() for parameter in model.parameters())}
    length, new = bench.size(512, 16), bench.size(32, 4)
    for batch in bench.size((1, 4, 16, 64), (1, 4)):
        asked = torch.randint(10, 400, (batch, length), device=bench.device)
        options = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False, "pad_token_id": 0}
        mask = torch.ones_like(asked)

        def work(asked: torch.Tensor = asked, mask: torch.Tensor = mask, options: Any = options) -> None:
            with torch.inference_mode():
                model.generate(input_ids=asked, attention_mask=mask, **options)

        figures[f"batch_{batch}_tokens_per_s"] = round(batch * new / bench.seconds(work, 1), 2)
    return figures


def vlm_harness(bench: Bench) -> Figures:
    """Questions a second of the wrapper by batch, beside the plain loop, on a small model; vLLM where it is there."""
    need("transformers")
    sys.path[:0] = [str(HERE), str(HERE / "vlm"), str(HERE.parent / "tests" / "helpers")]
    import vlm_throughput

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checkpoint = vlm_throughput.write_checkpoint(folder / "model")
        (folder / "data").mkdir()
        vlm_throughput.write_data(folder / "data", bench.size(64, 4))
        asked = vlm_throughput.prompts(folder / "data")
        ways = vlm_throughput.throughput(checkpoint, asked, 1)
    figures: Figures = {way: {name: round(value, 3) for name, value in values.items()} for way, values in ways.items()}
    figures["vllm"] = unmeasured("vllm")
    return figures


def tensors_beside_monai(bench: Bench) -> Figures:
    """Dice, HD95 and NSD of label maps on the device: seconds of ours, MONAI's, MONAI's with cuCIM, and DisTorch."""
    from monai.metrics import DiceMetric, HausdorffDistanceMetric, SurfaceDiceMetric
    from monai.networks.utils import one_hot

    from medimg_eval.tensors import segmentation_scores

    shape, count = bench.size((256, 256, 160), (40, 36, 24)), bench.size(5, 2)
    axes = torch.meshgrid(*(torch.linspace(-1, 1, size, device=bench.device) for size in shape), indexing="ij")
    radius = torch.stack(axes).norm(dim=0)

    def nested(scale: float) -> torch.Tensor:
        return ((0.9 - radius * scale).clamp(0, 0.899) / 0.9 * (count + 1)).long()

    target, prediction = nested(1.0), nested(1.06)
    labels = {number: str(number) for number in range(1, count + 1)}
    spacing = (1.0, 1.0, 2.0)

    def ours() -> Any:
        return segmentation_scores(
            prediction, target, labels=labels, metrics=["dice", "hd95", "nsd@1"], spacing=spacing
        )

    def monai() -> None:
        pair = [one_hot(one[None, None], count + 1) for one in (prediction, target)]
        DiceMetric(include_background=False)(*pair)
        HausdorffDistanceMetric(include_background=False, percentile=95)(*pair, spacing=list(spacing))
        SurfaceDiceMetric([1.0] * count, include_background=False)(*pair, spacing=list(spacing))

    figures: Figures = {"shape": list(shape), "labels": count, "ours_s": round(bench.seconds(ours, 2), 4)}
    figures["monai_uses_cucim"] = all(importlib.util.find_spec(name) is not None for name in ("cucim", "cupy"))
    figures["monai_s"] = attempt(lambda: round(bench.seconds(monai, 1), 4))
    figures["distorch"] = unmeasured("distorch")
    return figures


def encoders(bench: Bench) -> Figures:
    """Pictures a second through encoders with random weights, and the Fréchet distance of their features."""
    need("timm")
    import timm

    from medimg_eval.metrics.fidelity import frechet_distance

    figures: Figures = {}
    edge = bench.size(224, 64)
    for name in bench.size(("resnet50", "vit_large_patch16_224"), ("resnet18",)):
        network = timm.create_model(name, pretrained=False, num_classes=0).to(bench.device).eval()
        pictures = torch.randn(bench.size(64, 4), 3, edge, edge, device=bench.device)

        def work(network: Any = network, pictures: torch.Tensor = pictures) -> torch.Tensor:
            with torch.inference_mode(), torch.autocast(bench.device.type, torch.bfloat16, enabled=not bench.toy):
                return network(pictures)

        figures[f"{name}_pictures_per_s"] = round(len(pictures) / bench.seconds(work), 2)
    rng = np.random.default_rng(0)
    number, width = bench.size((10_000, 2048), (200, 32))
    features = [rng.standard_normal((number, width)) for _ in range(2)]
    begin = time.perf_counter()
    frechet_distance(*features)
    figures["frechet_s"] = round(time.perf_counter() - begin, 3)
    return figures


def reading_ahead(bench: Bench) -> Figures:
    """Whether a model that takes 30 ms a case starves while cases are read by 0, 1, 2 and 4 processes."""
    from torch.utils.data import DataLoader

    network, number = segresnet(bench), bench.size(48, 6)
    edge = bench.size(96, 24)
    figures: Figures = {}
    for workers in bench.size((0, 1, 2, 4), (0, 1)):
        loader = DataLoader(
            Read(number, edge), batch_size=1, num_workers=workers, pin_memory=bench.device.type == "cuda"
        )
        busy, begin = 0.0, time.perf_counter()
        for batch in loader:
            asked = time.perf_counter()
            with torch.inference_mode():
                network(batch.to(bench.device, non_blocking=True)).argmax(1).cpu()
            busy += time.perf_counter() - asked
        seconds = time.perf_counter() - begin
        figures[f"{workers}_processes"] = {"cases_per_s": round(number / seconds, 2), "busy": round(busy / seconds, 3)}
    return figures


class Read(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Volumes that are inflated from bytes as files are."""

    def __init__(self, number: int, edge: int) -> None:
        import zlib

        self._number, self._edge = number, edge
        values = np.random.default_rng(0).integers(0, 300, edge**3).astype(np.int16)
        self._stored = zlib.compress(values.tobytes(), 1)

    def __len__(self) -> int:
        return self._number

    def __getitem__(self, index: int) -> torch.Tensor:
        import zlib

        values = np.frombuffer(zlib.decompress(self._stored), np.int16).reshape(1, *[self._edge] * 3)
        return torch.from_numpy(values.astype(np.float32))


PARTS: dict[str, Callable[[Bench], Figures]] = {
    "mixed precision": mixed_precision,
    "sliding windows": sliding_windows,
    "collectives": collectives,
    "large VLM": large_vlm,
    "VLM harness": vlm_harness,
    "metrics on tensors": tensors_beside_monai,
    "encoders": encoders,
    "reading ahead": reading_ahead,
}


def conditions(bench: Bench) -> Figures:
    """What was measured on."""
    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "gpus": gpus,
        "size": "toy, on the CPU: shows that it works, and is no figure of a GPU" if bench.toy else "real",
        "cpus": os.cpu_count(),
        "load": [round(value, 1) for value in os.getloadavg()],
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def main() -> None:
    """All parts, or those named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--toy", action="store_true", help="small, as where there is no GPU")
    parser.add_argument("--out", type=Path)
    wanted = parser.parse_args()
    bench = Bench(toy=wanted.toy or not torch.cuda.is_available())
    begin = time.monotonic()
    result: Figures = {"conditions": conditions(bench), "parts": {}}
    for name in wanted.parts:
        started = time.monotonic()
        if started - begin > LIMIT_S * 0.8:
            result["parts"][name] = {"skipped": "there was no time left for it"}
            continue
        try:
            figures = PARTS[name](bench)
        except Skipped as reason:
            figures = {"skipped": str(reason)}
        except Exception as error:  # noqa: BLE001 - the other parts go on
            traceback.print_exc()
            figures = {"failed": f"{type(error).__name__}: {error}"[:300]}
        if bench.device.type == "cuda":
            torch.cuda.empty_cache()
        result["parts"][name] = figures | {"part_s": round(time.monotonic() - started, 1)}
        print(f"{name}: {result['parts'][name]}", flush=True)
    result["conditions"]["seconds"] = round(time.monotonic() - begin, 1)
    if wanted.out:
        wanted.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
