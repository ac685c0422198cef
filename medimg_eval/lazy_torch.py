"""torch where a model uses it, and nowhere else: importing it takes 3 s and 500 MB. Imports it in functions only."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medimg_eval.system import uncollected

if TYPE_CHECKING:
    from torch import Tensor

_seed_due: int | None = None
"""With which torch is to be seeded once it is there."""


def uses_torch(model: Any) -> bool:
    """Whether a model or class needs torch, unless it states otherwise."""
    return bool(getattr(model, "uses_torch", True)) or is_network(model)


def is_network(model: Any) -> bool:
    """Whether an object or class is an `nn.Module`, without importing torch."""
    if "torch" not in sys.modules:
        return False
    from torch import nn

    return issubclass(model if isinstance(model, type) else type(model), nn.Module)


def sees_gpu() -> bool:
    """Whether torch sees an NVIDIA or AMD GPU; drivers are checked.

    Where one is missing, torch is not asked.
    """
    drivers = ("/dev/nvidiactl", "/dev/nvhost-gpu", "/dev/nvgpu", "/dev/kfd", "/dev/dxg")  # dxg: within Windows
    if "torch" not in sys.modules and sys.platform == "linux" and not any(Path(path).exists() for path in drivers):
        return False
    import torch

    return torch.cuda.is_available()


def seed_torch(seed: int) -> None:
    """Seeds torch's generators now, or when `import_seeded` imports it."""
    global _seed_due  # noqa: PLW0603 - as torch's own generator is
    _seed_due = seed
    if "torch" in sys.modules:
        import_seeded()


def import_seeded() -> None:
    """Imports torch, seeded as the run is."""
    global _seed_due  # noqa: PLW0603
    with uncollected():
        import torch

    if _seed_due is not None:
        torch.manual_seed(_seed_due)
        _seed_due = None


def generator_states() -> tuple[Tensor, list[Tensor]] | None:
    """Torch's generator states on CPU and GPUs; None without torch."""
    if "torch" not in sys.modules:
        return None
    import torch

    cuda: Any = torch.cuda  # whether its functions have types depends on torch's version
    on_gpus = cuda.get_rng_state_all() if cuda.is_initialized() else []
    return torch.get_rng_state(), on_gpus


def restore_generators(states: tuple[Tensor, list[Tensor]] | None) -> None:
    """Puts back what `generator_states` has returned."""
    global _seed_due  # noqa: PLW0603
    _seed_due = None
    if "torch" not in sys.modules:
        return
    import torch

    if states is None:  # it was imported meanwhile, when it begins somewhere by chance
        torch.seed()
        return
    torch.set_rng_state(states[0])
    if states[1]:
        torch.cuda.set_rng_state_all(states[1])
