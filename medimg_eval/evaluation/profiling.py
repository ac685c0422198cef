"""What one pass of a model costs: parameters, operations, passes per second."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from medimg_eval.evaluation.devices import in_use
from medimg_eval.models.base import Pass

WARM_UP = 3
"""Passes before the clock starts."""

LEAST, MOST, SECONDS = 5, 100, 5.0
"""Passes that are timed: at least, at most, and the time after which no further one is started."""


def efficiency(model: Any, device: torch.device, precision: str = "32-true") -> dict[str, Any]:
    """Counts and times one pass with a batch of one.

    Operations are those of convolutions, matrix products and attention. `gflops` counts a multiplication and the
    addition that follows it as one operation, as thop, ptflops and fvcore do and as segmentation papers print
    under the name of FLOPs (U-Bench: a U-Net on 3 x 256 x 256 pixels has 65.5); `gmacs` is the same number under
    its proper name, and `gflops_of_both` counts the two operations apart, as PyTorch does.

    Args:
        model: a wrapper; what its `one_pass` names is measured, most often one window of one image.
        device: where it is measured; the model is moved there.
        precision: as Lightning calls it; `bf16-mixed` and `16-mixed` are timed under autocast.

    Returns:
        `parameters` (their number), `gflops`, `gmacs`, `gflops_of_both`, `frames_per_second` (passes per second, of
        windows rather than of whole volumes), `input_shape` (of one pass), `device`, `precision`. Numbers are None
        for a model that is no `nn.Module` or has no `one_pass`.
    """
    count = sum(parameter.numel() for parameter in model.parameters()) if isinstance(model, nn.Module) else None
    costs: dict[str, Any] = {
        "parameters": count,
        "gflops": None,
        "gmacs": None,
        "gflops_of_both": None,
        "frames_per_second": None,
        "input_shape": None,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "precision": precision,
    }
    one_pass: Any = getattr(model, "one_pass", None)  # a user's class need not have it
    forward_pass: Pass | None = one_pass() if one_pass is not None and isinstance(model, nn.Module) else None
    if forward_pass is None:
        return costs
    with in_use(model, device, precision):
        example = torch.zeros(forward_pass.shape, device=device)
        counter = FlopCounterMode(display=False)
        with counter:
            forward_pass.run(example)
        multiply_adds = counter.get_total_flops() / 2e9
        rate = _pass_rate(lambda: forward_pass.run(example), device)
    return costs | {
        "gflops": multiply_adds,
        "gmacs": multiply_adds,
        "gflops_of_both": 2 * multiply_adds,
        "frames_per_second": rate,
        "input_shape": list(forward_pass.shape),
    }


def _pass_rate(run: Callable[[], Any], device: torch.device) -> float:
    """Passes per second after a warm-up."""

    def clock() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # or the clock would stop before the work does
        return time.perf_counter()

    for _ in range(WARM_UP):
        run()
    begin = now = clock()
    passes = 0
    while passes < LEAST or (passes < MOST and now - begin < SECONDS):
        run()
        passes += 1
        now = clock()
    return passes / (now - begin)
