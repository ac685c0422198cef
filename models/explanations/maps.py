"""Maps of networks: Grad-CAM, attention rollout, and the attention of the last layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from medimg_eval.case import Array
from medimg_eval.errors import UserError, nearest
from medimg_eval.models.explanations.settings import Explanation


@dataclass(frozen=True, eq=False)
class PictureMaps:
    """Maps over the input of a network.

    Attributes:
        scores: float64, (picture, class).
        maps: float32, (picture, class, row, column), from 0; of attention one for all classes, (picture, 1, ...).
    """

    scores: Array
    maps: Array


Score = Callable[[Tensor], Tensor]
"""Scores of classes, (picture, class), of what a network returns."""


def explain_pictures(
    network: nn.Module, inputs: Tensor, wanted: Explanation, classes: Sequence[int], score: Score = lambda found: found
) -> PictureMaps:
    """Says where a network looked in pictures.

    Args:
        network: in evaluation mode.
        inputs: as it takes them, float32, (picture, channel, row, column), on its device.
        wanted: kind and layer of the maps.
        classes: places of the scores that maps are of.
        score: of a network without a head, what stands for one.

    Raises:
        UserError: the network has no such layer, or none that gives a grid, or no attention that can be read.
    """
    learning = network.training
    network.eval()
    try:
        with torch.inference_mode(mode=False), torch.enable_grad():
            input_ = inputs.detach().clone()
            if wanted.kind == "grad_cam":
                return _grad_cam(network, input_, wanted.layer, classes, score)
            return _attention_maps(network, input_, score, rolled=wanted.kind == "attention_rollout")
    finally:
        network.train(learning)


def _grad_cam(
    network: nn.Module, shown: Tensor, layer: str | None, classes: Sequence[int], score: Score
) -> PictureMaps:
    """Positive channel sum of a layer, weighted by mean gradients."""
    name = _grid_layer(network, shown[:1]) if layer is None else layer
    modules = dict(network.named_modules())
    if name not in modules:
        raise UserError(f"model.explain.layer: the network has no module {name!r}{nearest(name, list(modules))}")
    activations: list[Tensor] = []
    handle = modules[name].register_forward_hook(lambda module, given, found: activations.append(found))
    try:
        scores = score(network(shown.requires_grad_()))  # frozen weights alone would leave no gradient
    finally:
        handle.remove()
    if len(activations) != 1 or not isinstance(activations[0], Tensor) or activations[0].ndim not in (3, 4):
        raise UserError(f"model.explain.layer: {name!r} gives no grid of features; name another module")
    features, maps = activations[0], []
    for index, each in enumerate(classes):
        (slopes,) = torch.autograd.grad(scores[:, each].sum(), features, retain_graph=index + 1 < len(classes))
        grids = _as_grid(features.detach(), network), _as_grid(slopes, network)
        weights = grids[1].mean((2, 3), keepdim=True)
        maps.append((weights * grids[0]).sum(1).relu())
    stacked = torch.stack(maps, 1) if maps else features.new_zeros(len(shown), 0, 1, 1)
    return PictureMaps(scores.detach().double().cpu().numpy(), stacked.float().cpu().numpy())


def _grid_layer(network: nn.Module, one: Tensor) -> str:
    """Name of the module that is weighed where none is named."""
    blocks: Any = getattr(network, "blocks", None)
    transformer = isinstance(blocks, nn.Sequential | nn.ModuleList) and hasattr(network, "patch_embed")
    if transformer and len(blocks) and hasattr(blocks[-1], "norm1"):
        return f"blocks.{len(blocks) - 1}.norm1"  # after it patches no longer count, for the class token alone is read
    names: list[str] = []
    with ExitStack() as stack, torch.no_grad():
        for name, module in network.named_modules():
            if name:
                hook = module.register_forward_hook(
                    lambda _, given, found, name=name: _note_layer(names, name, found, network)
                )
                stack.callback(hook.remove)
        network(one)
    if not names:
        raise UserError(
            "model.explain: no module of the network gives a grid of features (picture, channel, row, column); name "
            "one whose output is tokens in model.explain.layer"
        )
    return names[-1]


def _note_layer(names: list[str], name: str, found: Any, network: nn.Module) -> None:
    if isinstance(found, Tensor) and found.ndim == 4 and min(_as_grid(found, network).shape[2:]) > 1:
        names.append(name)


def _as_grid(features: Tensor, network: nn.Module) -> Tensor:
    """Features as (picture, channel, row, column), of patch tokens only."""
    if features.ndim == 4:
        last = str(getattr(network, "output_fmt", "")).endswith("NHWC")
        return features.permute(0, 3, 1, 2) if last else features
    rows, columns = _patch_grid(network, features.shape[1])
    grid: Tensor = features[:, -rows * columns :].transpose(1, 2).unflatten(2, (rows, columns))
    return grid


def _patch_grid(network: nn.Module, tokens: int) -> tuple[int, int]:
    """Rows and columns of the patches of a transformer, whose tokens come last."""
    before = getattr(network, "num_prefix_tokens", None)
    grid: Any = getattr(getattr(network, "patch_embed", None), "grid_size", None)
    if grid is not None and before is not None and math.prod(grid) + before == tokens:
        return int(grid[0]), int(grid[1])
    side = math.isqrt(tokens)
    if side * side == tokens - (0 if before is None else before) or side * side in (tokens, tokens - 1):
        return side, side
    raise UserError(f"model.explain: {tokens} tokens are no square of patches; name a layer that gives a grid")


def _attention_maps(network: nn.Module, shown: Tensor, score: Score, *, rolled: bool) -> PictureMaps:
    """Head-averaged attention of the class token, else mean over patches."""
    with _watch_attention(network) as watched, torch.no_grad():
        scores = score(network(shown))
    each = [weights.double().mean(1) for weights in watched]
    if rolled:
        rollout = torch.eye(each[0].shape[-1], dtype=torch.float64, device=shown.device).expand_as(each[0])
        for weights in each:
            mixed = weights + torch.eye(weights.shape[-1], dtype=torch.float64, device=shown.device)
            rollout = mixed / mixed.sum(-1, keepdim=True) @ rollout
    else:
        rollout = each[-1]
    rows, columns = _patch_grid(network, rollout.shape[-1])
    before = rollout.shape[-1] - rows * columns
    weights_ = (rollout[:, 0] if before else rollout.mean(1))[:, before:]
    maps = weights_.unflatten(1, (rows, columns))[:, None]
    return PictureMaps(scores.double().cpu().numpy(), maps.float().cpu().numpy())


@contextmanager
def _watch_attention(network: nn.Module) -> Iterator[list[Tensor]]:
    """Collects attention weights by layer, (picture, head, token, token)."""
    layers: list[Any] = [getattr(block, "attn", None) for block in getattr(network, "blocks", ())]
    if not layers or not all(hasattr(layer, "attn_drop") and hasattr(layer, "fused_attn") for layer in layers):
        raise UserError(
            "model.explain: attention can be read of vision transformers of timm with attention over all patches; "
            "use kind=grad_cam for other networks"
        )
    watched: list[Tensor] = []
    fused = [layer.fused_attn for layer in layers]
    with ExitStack() as stack:
        for layer in layers:
            layer.fused_attn = False  # which never holds the weights
            hook = layer.attn_drop.register_forward_hook(lambda module, given, found: watched.append(given[0].detach()))
            stack.callback(hook.remove)
        try:
            yield watched
        finally:
            for layer, before in zip(layers, fused, strict=True):
                layer.fused_attn = before
