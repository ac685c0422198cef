"""Prompt templates: how a question becomes the turns of a conversation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from medimg_eval.errors import UsageError, nearest
from medimg_eval.question import Message, Question

PLACE = re.compile(r"\{\{(?P<literal>\w+)\}\}|\{(?P<name>[A-Za-z_]\w*)\}")
"""A field of a template, `{name}`, or the same as text, `{{name}}`."""

OPTIONAL = re.compile(r"<<(.*?)>>", re.DOTALL)
"""What is left out when a field in it is empty."""

MARK = re.compile(r"<im(?:age|g)[ _]?(\d*)>")
"""Where a benchmark's text says that an image belongs: `<image>`, `<img>`, `<image 2>`, `<image_2>`."""

_PICTURE = re.compile("\0(\\d*)\0")
"""Where a template says so, once it is filled."""


@dataclass(frozen=True)
class Template:
    """How a question is put.

    Attributes:
        system: the system turn; left out when empty.
        turns: turns of the user; each after the first is said after the reply to the one before it.
        option: a line of `{options}`, of `{letter}` and `{text}`.
        join: what stands between those lines.
        images: `first`: before the text; `last`: behind it; `marks`: where the text says `<image 1>`, those it does not
            name first. The field `{image}` of a template is the next image wherever it stands.
        by: an attribute or field of the case, or `kind`, that decides which of `variants` holds.
        variants: value -> what it replaces of the above.
    """

    system: str = ""
    turns: tuple[str, ...] = ("{question}<<\n{options}>>",)
    option: str = "{letter}. {text}"
    join: str = "\n"
    images: Literal["first", "last", "marks"] = "first"
    by: str = ""
    variants: Mapping[str, Template] = field(default_factory=dict)

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Template:
        """Template of a task's `template`; `user` may be one turn.

        Raises:
            UsageError: a key is not known.
        """
        variants = dict(config.get("variants") or {})
        own = {key: value for key, value in config.items() if key != "variants"}
        template = cls._of(own)
        return replace(
            template, variants={str(key): cls._of({**own, **dict(variant)}) for key, variant in variants.items()}
        )

    @classmethod
    def _of(cls, config: Mapping[str, Any]) -> Template:
        settings = dict(config)
        user = settings.pop("user", None)  # null in a config that has turns in its place
        if user is not None:
            settings["turns"] = (user,)
        if "turns" in settings:
            settings["turns"] = tuple(settings["turns"])
            if any("{image}" in turn for turn in settings["turns"][1:]):
                raise UsageError(
                    "task.template.turns: images are shown in the first turn; take {image} out of the others"
                )
        keys = [*(field.name for field in fields(cls)), "user"]
        UsageError.refuse_unknown("task.template has no key", keys, *settings)
        if settings.get("images", "first") not in ("first", "last", "marks"):
            raise UsageError(f"expected task.template.images to be first, last or marks, got {settings['images']!r}")
        return cls(**settings)

    def messages(
        self, question: Question, attributes: Mapping[str, str], images: int
    ) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
        """Returns system and first user turns, and later ones.

        Raises:
            UsageError: a template names a field that the case does not have.
        """
        if self.by:
            fields = {**attributes, **question.fields, "kind": question.kind}
            UsageError.refuse_unknown("task.template.by names", fields, self.by)
            chosen = self.variants.get(fields[self.by], self)
            return replace(chosen, by="").messages(question, attributes, images)
        fields_of_case = self._fields(question, attributes)
        first, *later = (fill(turn, fields_of_case) for turn in self.turns)
        parts = _place_images(first, images, self.images)
        opening = (Message("system", (fill(self.system, fields_of_case),)),) if self.system else ()
        return (*opening, Message("user", parts)), tuple(Message("user", (text,)) for text in later)

    def _fields(self, question: Question, attributes: Mapping[str, str]) -> dict[str, str]:
        letters = list(question.options)
        lines = (fill(self.option, {"letter": key, "text": text}) for key, text in question.options.items())
        return {
            **attributes,
            **question.fields,
            **question.options,
            "question": question.text,
            "options": self.join.join(lines),
            "letters": ", ".join(letters),
            "first": letters[0] if letters else "",
            "last": letters[-1] if letters else "",
            "n": str(len(letters)) if letters else "",
            "option_list": repr(list(question.options.values())),
            "image": "\0\0",
        }


def fill(template: str, known: Mapping[str, str]) -> str:
    """Fills template fields once; values stay as they are.

    Raises:
        UsageError: there is no such field.
    """

    def one(place: re.Match[str]) -> str:
        if place["literal"]:
            return f"{{{place['literal']}}}"
        name = place["name"]
        if name not in known:
            raise UsageError(
                f"the prompt template names {{{name}}}{nearest(name, known)}; braces that are text are doubled: "
                f"{{{{{name}}}}}"
            )
        # Nothing that a value holds is taken for the place of an image.
        return known[name] if name == "image" else known[name].replace("\0", "")

    def kept(segment: re.Match[str]) -> str:
        names = [match["name"] for match in PLACE.finditer(segment[1]) if match["name"]]
        return segment[1] if all(known.get(name) for name in names) else ""

    return PLACE.sub(one, OPTIONAL.sub(kept, template))


def _place_images(text: str, images: int, where: str) -> tuple[str | int, ...]:
    """Splits a text at images; unplaced ones come first or last."""
    text = MARK.sub(lambda mark: f"\0{mark[1]}\0", text) if where == "marks" else text.replace("<image>", "")
    pieces = _PICTURE.split(text)  # text, number or "", text, ...
    parts: list[str | int] = []
    named = [int(number) - 1 for number in pieces[1::2] if number]
    spare = iter([index for index in range(images) if index not in named])
    for piece, number in zip(pieces[::2], [*pieces[1::2], None], strict=True):
        if piece:
            parts.append(piece)
        if number is not None:
            index = int(number) - 1 if number else next(spare, images)
            if 0 <= index < images:
                parts.append(index)
    return (*parts, *spare) if where == "last" else (*spare, *parts)


def moved(message: Message, by: int) -> Message:
    """Turn with its images' numbers moved on."""
    if not by:
        return message
    return replace(message, parts=tuple(part + by if isinstance(part, int) else part for part in message.parts))


def without_images(message: Message) -> Message:
    """Turn without its images."""
    return replace(message, parts=tuple(part for part in message.parts if isinstance(part, str)))
