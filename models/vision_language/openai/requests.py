"""Prompts as requests of the chat-completions API."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from medimg_eval.case import Prompt
from medimg_eval.imaging.pictures import as_pictures
from medimg_eval.question import Decoding, Message

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

ImageFormat = Literal["png", "jpeg"]

LETTERS_PER_TOKEN = 4
TOKENS_PER_IMAGE = 1000
"""What a request is thought to take before the server has counted."""

JPEG_QUALITY = 95


class Request(NamedTuple):
    """One question to a server.

    Attributes:
        key: sha256 of all that is asked: address, body, and pixels of the images.
        tokens: about how many it takes, the reply included.
        body: writes it, as JSON; images are encoded only then, which takes longer than all the rest.
    """

    key: str
    tokens: int
    body: Callable[[], bytes]


class Writer(NamedTuple):
    """Writes requests.

    Attributes:
        url: they are sent to.
        model: the name the server knows it by.
        limit: the field that limits the length of a reply.
        image_format: of the data URLs.
        max_side: longer sides of images are shrunk to so many pixels; None sends them as they are.
        extra: further fields of the body; one that is None is left out, also where it is one of ours.
    """

    url: str
    model: str | None
    limit: str
    image_format: ImageFormat
    max_side: int | None
    extra: Mapping[str, Any]

    def request(self, prompt: Prompt, decoding: Decoding) -> Request:
        """The request that asks a prompt; raises CaseError for an image that is no picture."""
        pictures = as_pictures(prompt)
        places = [_digest(picture, self.image_format, self.max_side) for picture in pictures]
        asked = self.url.encode() + b"\n" + self._body(prompt, decoding, places)
        if decoding.seed and self.extra.get("seed", 0) is None and self.draws(decoding):  # untold, it draws anew
            asked += f"\nseed {decoding.seed}".encode()
        key = hashlib.sha256(asked).hexdigest()
        tokens = len(prompt.text) // LETTERS_PER_TOKEN + len(pictures) * TOKENS_PER_IMAGE + decoding.max_new_tokens

        def body() -> bytes:
            urls = [data_url(picture, self.image_format, self.max_side) for picture in pictures]
            return self._body(prompt, decoding, urls)

        return Request(key, tokens, body)

    def draws(self, decoding: Decoding) -> bool:
        """Whether the server draws its replies: `extra` may give it another temperature, or leave it its own."""
        return bool(self.extra.get("temperature", decoding.temperature) != 0)

    def _body(self, prompt: Prompt, decoding: Decoding, urls: Sequence[str]) -> bytes:
        fields: dict[str, Any] = {
            "model": self.model,
            "messages": [_turn(message, urls) for message in prompt.messages],
        }
        fields |= {self.limit: decoding.max_new_tokens, **_sampling(decoding)}
        if decoding.seed and self.draws(decoding):
            fields["seed"] = decoding.seed
        fields |= self.extra
        return json.dumps({name: value for name, value in fields.items() if value is not None}, sort_keys=True).encode()


def data_url(picture: Picture, image_format: ImageFormat = "png", max_side: int | None = None) -> str:
    """A picture as a `data:` URL, shrunk (Lanczos) until neither side is longer than `max_side` pixels."""
    from PIL.Image import Resampling

    if max_side is not None and max(picture.size) > max_side:
        picture = picture.copy()
        picture.thumbnail((max_side, max_side), Resampling.LANCZOS, reducing_gap=None)
    stream = io.BytesIO()
    # PNG at a low effort: a request is uploaded once, and nothing waits for the last per cent of its size.
    options = {"compress_level": 1} if image_format == "png" else {"quality": JPEG_QUALITY}
    picture.save(stream, image_format, **options)
    return f"data:image/{image_format};base64,{base64.b64encode(stream.getvalue()).decode()}"


def _digest(picture: Picture, image_format: ImageFormat, max_side: int | None) -> str:
    # Of the pixels, since what an encoder makes of them changes from one version of it to the next.
    return f"{image_format} {max_side} {picture.size} {hashlib.sha256(picture.tobytes()).hexdigest()}"


def _turn(message: Message, urls: Sequence[str]) -> dict[str, Any]:
    # Turns without images are plain strings, which every server reads.
    if all(isinstance(part, str) for part in message.parts):
        return {"role": message.role, "content": message.text}
    parts = [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image_url", "image_url": {"url": urls[part]}}
        for part in message.parts
    ]
    return {"role": message.role, "content": parts}


def _sampling(decoding: Decoding) -> dict[str, Any]:
    fields: dict[str, Any] = {"temperature": decoding.temperature}
    if decoding.temperature > 0:  # some servers refuse fields they do not know, and greedy decoding needs none of them
        fields |= {"top_p": decoding.top_p, "seed": decoding.seed}
    return fields | ({"stop": list(decoding.stop)} if decoding.stop else {})
