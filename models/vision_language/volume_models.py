"""Vision-language models that read a volume whole."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from medimg_eval.case import Prompt, Prompts
from medimg_eval.errors import CaseError, UserError, import_optional
from medimg_eval.imaging import VolumePrompt
from medimg_eval.models.base import Example, VisionLanguageModel
from medimg_eval.models.vision_language.volume_inputs import INPUTS
from medimg_eval.question import Decoding

Convention = Literal["m3d", "radfm", "ct_chat", "merlin"]


class VolumeModel(nn.Module, VisionLanguageModel):
    """Base of volume models; subclasses give input and answers.

    Attributes:
        convention: `m3d`, `radfm`, `ct_chat` or `merlin`, as in docs/evaluate/volumes.md.
    """

    takes_views: ClassVar[tuple[str, ...]] = ("volume",)
    convention: Convention

    @classmethod
    def volume_rule(cls) -> str:
        """Convention that alone makes its arrays, which a report repeats; "" of a class that makes them otherwise."""
        return cls.convention if cls.read_volumes is VolumeModel.read_volumes else ""

    def generate(self, prompts: Prompts, decoding: Decoding) -> Sequence[str]:
        """Answers each prompt about its volumes, one by one; CaseError for other images."""
        return [self.answer(self.read_volumes(prompt), prompt, decoding) for prompt in prompts]

    def read_volumes(self, prompt: Prompt) -> list[Tensor]:
        """Volumes of a prompt as network input; CaseError for others."""
        wrong = next((type(image).__name__ for image in prompt.images if not isinstance(image, VolumePrompt)), "")
        if wrong:
            raise CaseError(
                f"case {prompt.case_id!r} is invalid: expected volumes for {type(self).__name__}, got {wrong}"
            )
        return [INPUTS[self.convention](image) for image in prompt.images if isinstance(image, VolumePrompt)]

    @abstractmethod
    def answer(self, volumes: Sequence[Tensor], prompt: Prompt, decoding: Decoding) -> str:
        """Writes the answer to one prompt.

        Args:
            volumes: float32, on the CPU, each of the shape that the convention states; none for a blind question.
            prompt: what is asked: `text` holds its words.
            decoding: how to write.
        """


class M3DLaMed(VolumeModel):
    """M3D-LaMed (BAAI-DCAI/M3D): one volume per question, by its checkpoint's code.

    Args:
        checkpoint: id on the Hugging Face hub, such as `GoodBaiBai88/M3D-LaMed-Phi-3-4B`, or a folder.
        revision: branch, tag or commit on the hub.
        dtype: of the weights.
        trust_remote_code: runs the code of the checkpoint, without which it cannot be loaded.
        image_tokens: places of the image in the text, as its projector gives.

    Raises:
        UserError: its code is not to be run, or the checkpoint cannot be loaded.
    """

    convention: Convention = "m3d"

    def __init__(
        self,
        checkpoint: str,
        revision: str | None = None,
        dtype: str = "bfloat16",
        *,
        trust_remote_code: bool = False,
        image_tokens: int = 256,
    ) -> None:
        super().__init__()
        self.checkpoint, self.revision, self.dtype = checkpoint, revision, dtype
        self.trust_remote_code, self.image_tokens = trust_remote_code, image_tokens
        self.model: Any = None
        self.tokenizer: Any = None

    def prepare(self, labels: Any, example: Example) -> None:
        """Loads the checkpoint, once."""
        if self.model is not None:
            return
        if not self.trust_remote_code:
            raise UserError(
                f"{self.checkpoint}: its model is code of the checkpoint; set model.trust_remote_code=true if you "
                "trust it"
            )
        transformers = import_optional("transformers")
        options = {"revision": self.revision, "trust_remote_code": True}
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(self.checkpoint, use_fast=False, **options)
        loaded = transformers.AutoModelForCausalLM.from_pretrained(
            self.checkpoint, dtype=getattr(torch, self.dtype), **options
        )
        self.model = loaded.eval()

    @torch.inference_mode()
    def answer(self, volumes: Sequence[Tensor], prompt: Prompt, decoding: Decoding) -> str:
        """Writes the answer, greedy without temperature; CaseError unless one volume."""
        if len(volumes) != 1:
            raise CaseError(
                f"case {prompt.case_id!r} is invalid: expected one volume for M3D-LaMed, got {len(volumes)}"
            )
        weights = next(self.model.parameters())
        text = "<im_patch>" * self.image_tokens + prompt.text
        ids = self.tokenizer(text, return_tensors="pt")["input_ids"].to(weights.device)
        image = volumes[0][None].to(weights.device, weights.dtype)
        options: dict[str, Any] = {"max_new_tokens": decoding.max_new_tokens, "do_sample": decoding.temperature > 0}
        if decoding.temperature > 0:
            torch.manual_seed(decoding.seed)
            options |= {"temperature": decoding.temperature, "top_p": decoding.top_p}
        written = self.model.generate(image, ids, **options)
        return str(self.tokenizer.batch_decode(written, skip_special_tokens=True)[0])
