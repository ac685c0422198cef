"""The library alone: how its documentation shows to ask about images.

    python plain.py CHECKPOINT DATA

asks what `DATA/test.json` asks, one question after the other, and prints nothing.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TOKENS = 16


class Plain:
    """A checkpoint, and its processor.

    Args:
        folder: the checkpoint.
    """

    def __init__(self, folder: Path | str) -> None:
        import torch
        from transformers import AutoModelForImageTextToText, AutoProcessor

        self.processor = AutoProcessor.from_pretrained(folder)
        self.processor.tokenizer.padding_side = "left"
        self.model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()

    def answer(self, images: Sequence[Any], questions: Sequence[str]) -> list[str]:
        """Answers questions about an image each, all at once."""
        import torch

        texts = []
        for question in questions:
            content = [{"type": "image"}, {"type": "text", "text": question}]
            turns = [{"role": "user", "content": content}]
            texts.append(self.processor.apply_chat_template(turns, add_generation_prompt=True, tokenize=False))
        inputs = self.processor(text=texts, images=list(images), padding=True, return_tensors="pt")
        with torch.inference_mode():
            ids = self.model.generate(**inputs, max_new_tokens=TOKENS, do_sample=False)
        said = self.processor.batch_decode(ids[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        return [text.strip() for text in said]


def main() -> None:
    """Asks one by one."""
    from clock import Clock
    from PIL import Image

    checkpoint, data = map(Path, sys.argv[1:])
    model, clock, right = Plain(checkpoint), Clock(), 0
    for record in json.loads((data / "test.json").read_text(encoding="utf-8")):
        image = Image.open(data / record["image"]).convert("RGB")
        text = record["text"]
        said = clock.call([record["id"]], lambda image=image, text=text: model.answer([image], [text]))
        right += said[0][:1] == record["answer"]


if __name__ == "__main__":
    main()
