"""Models that make pictures of prompts: pipelines of the diffusers library, and folders of pictures made elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from medimg_eval.case import Array, Prompts
from medimg_eval.errors import UsageError, UserError, import_optional
from medimg_eval.models.base import Synthesizer
from medimg_eval.models.hub import Weights, hub_name
from medimg_eval.models.text_encoders import device_of, in_one_line
from medimg_eval.trust import require_trust

PRECISIONS = ("float32", "float16", "bfloat16")
ENDINGS = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".dcm")
PIPELINE = Weights(
    "checkpoint", "a pipeline's folder with model_index.json", "the model hub", "see its page", ("model_index.json",)
)


class Diffusers(Synthesizer):
    """Text-to-image pipeline of diffusers: Stable Diffusion, PixArt, Sana, Flux ...

    Each picture is drawn by a generator of its own, seeded with the picture's seed, on the CPU, so that it does not
    depend on the batch or the device.

    Args:
        checkpoint: a pipeline's folder, or `OWNER/NAME[@REVISION]` in the model hub's cache. It is not downloaded.
        lora: a file or folder of LoRA weights that are put into it.
        lora_scale: how strongly they count.
        steps: of denoising; None for the pipeline's own.
        guidance: scale of classifier-free guidance; None for the pipeline's own.
        negative: a text that guidance leads away from.
        size: rows and columns of the pictures; None for the pipeline's own.
        grey: whether one channel is kept, as of X-rays: the mean of three.
        precision: `float32`, `float16` or `bfloat16`, of weights and computing.
        arguments: further ones of the pipeline's call, such as `{max_sequence_length: 300}`.
        batch: pictures drawn at once.

    Raises:
        UsageError: invalid settings; `check_ready` raises UserError where library or weights are missing.
    """

    reads_images: ClassVar[bool] = False
    file_arguments: ClassVar[tuple[str, ...]] = ("checkpoint", "lora")
    pace_arguments: ClassVar[tuple[str, ...]] = ("device",)

    def __init__(
        self,
        checkpoint: str,
        *,
        lora: str | None = None,
        lora_scale: float = 1.0,
        steps: int | None = None,
        guidance: float | None = None,
        negative: str | None = None,
        size: Sequence[int] | None = None,
        grey: bool = True,
        precision: str = "float32",
        arguments: Mapping[str, Any] | None = None,
        batch: int = 1,
        device: str = "auto",
    ) -> None:
        UsageError.refuse_invalid("model.precision", PRECISIONS, precision)
        if size is not None and len(size) != 2:
            raise UsageError(f"model.size: expected rows and columns, got {list(size)}")
        self.checkpoint, self.lora, self.lora_scale = checkpoint, lora, lora_scale
        self.grey, self.precision, self.batch, self.device = grey, precision, batch, device
        self.preferred_batch = batch
        named = {"num_inference_steps": steps, "guidance_scale": guidance, "negative_prompt": negative}
        if size is not None:
            named |= {"height": int(size[0]), "width": int(size[1])}
        self.arguments = {key: value for key, value in named.items() if value is not None} | dict(arguments or {})
        self._pipeline: Any = None

    def check_ready(self) -> None:
        """Raises UserError when library, device or weights are missing."""
        import_optional("diffusers")
        device_of(self.device)
        self._folder()
        if self.lora is not None and not Path(self.lora).expanduser().exists():
            raise UserError(f"{self.lora}: no such file or folder; set model.lora to LoRA weights")

    def synthesize(self, prompts: Prompts, seeds: Sequence[Sequence[int]]) -> Sequence[Sequence[Array]]:
        """Returns uint8 pictures, (1 or 3, row, column), one per seed."""
        wanted = [(index, seed) for index, some in enumerate(seeds) for seed in some]
        pictures_made: list[list[Array]] = [[] for _ in prompts]
        for start in range(0, len(wanted), self.batch):
            some = wanted[start : start + self.batch]
            pictures = self._draw([prompts[index].text for index, _ in some], [seed for _, seed in some])
            for (index, _), picture in zip(some, pictures, strict=True):
                pictures_made[index].append(self._array(picture))
        return pictures_made

    def _draw(self, texts: Sequence[str], seeds: Sequence[int]) -> Sequence[Any]:
        import torch

        if self._pipeline is None:
            self._pipeline = self._load()
        generators = [torch.Generator("cpu").manual_seed(seed) for seed in seeds]
        arguments = dict(self.arguments)
        if isinstance(arguments.get("negative_prompt"), str):
            arguments["negative_prompt"] = [arguments["negative_prompt"]] * len(texts)
        output = self._pipeline(prompt=list(texts), generator=generators, output_type="np", **arguments).images
        return list(output)

    def _array(self, picture: Any) -> Array:
        array = np.asarray(picture, dtype=np.float32)
        array = array[..., None] if array.ndim == 2 else array
        if self.grey:
            array = array.mean(-1, keepdims=True)
        return np.rint(np.clip(array, 0, 1) * 255).astype(np.uint8).transpose(2, 0, 1)

    def _folder(self) -> Path:
        try:
            return PIPELINE.find(self.checkpoint, "diffusers")
        except UserError as error:
            raise UserError(
                f"model.checkpoint={self.checkpoint}: there is no such pipeline here; expected {PIPELINE.what}, or a "
                f"name on the model hub that its cache holds: `hf download {hub_name(self.checkpoint).repository}`"
            ) from error

    def _load(self) -> Any:
        import torch

        diffusers = import_optional("diffusers")
        folder = self._folder()
        require_trust(folder, sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*.py")))
        try:
            pipeline = diffusers.DiffusionPipeline.from_pretrained(
                folder, torch_dtype=getattr(torch, self.precision), local_files_only=True
            )
        except Exception as error:  # a folder can hold anything
            raise UserError(f"{folder}: cannot be loaded as a pipeline by diffusers ({in_one_line(error)})") from error
        if self.lora is not None:
            pipeline.load_lora_weights(str(Path(self.lora).expanduser()), adapter_name="given")
            pipeline.set_adapters(["given"], [self.lora_scale])
        pipeline.set_progress_bar_config(disable=True)
        return pipeline.to(device_of(self.device))
