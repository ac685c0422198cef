"""Feature extractors: pictures as vectors, of which metrics of sets compare the distributions.

A metric names its extractor, as `frechet_distance@rad_dino` does; `configs/extractor/rad_dino.yaml` says which class
that is and where its weights are. Every extractor is given the same 8-bit RGB pictures, made by `as_picture`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast, overload

import numpy as np

from medimg_eval.case import Prompt, Prompts
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.evidence import Kind, Observation, one_each
from medimg_eval.imaging.pictures import as_picture
from medimg_eval.models.base import Embedder, shown_images
from medimg_eval.models.hub import Weights, WithWeights
from medimg_eval.system import threads

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

    from medimg_eval.case import Array, Image

PRECISIONS = ("float32", "bfloat16", "float16")


class FeatureExtractor(WithWeights, ABC):
    """Gives every picture a vector.

    Attributes:
        reads_texts: whether it also has `embed_texts`, whose vectors can be compared with those of pictures.
        findings: of a classifier: the findings whose probabilities are its features, called as attributes of cases are.
        choices: of another: the values that exclude each other, whose probabilities are its features.
        chooses: of which attribute, such as `view`.
        thresholds: (feature,): from which probability on a finding is there.
        tells_patients: whether it also has `compare`.
        gives_pixels: whether its features are the grey values of a square, row by row.
        looks_up: whether features are had from `look_up`, by file, and not computed.
    """

    kind: ClassVar[Kind] = "features"
    role: ClassVar[str] = "extractor"
    reads_texts: ClassVar[bool] = False
    tells_patients: ClassVar[bool] = False
    looks_up: ClassVar[bool] = False
    gives_pixels: ClassVar[bool] = False
    findings: Sequence[str] = ()
    choices: Sequence[str] = ()
    chooses: str = ""
    thresholds: Sequence[float] = ()

    @property
    def abilities(self) -> frozenset[str]:  # type: ignore[override]
        """Abilities beside giving pictures vectors."""
        able = {
            "texts": self.reads_texts,
            "findings": bool(self.findings),
            "choices": bool(self.choices),
            "identity": self.tells_patients,
            "pixels": self.gives_pixels,
        }
        return frozenset(name for name, there in able.items() if there)

    @property
    def cached(self) -> bool:  # type: ignore[override]
        """Whether features are cached; tables can change behind their name."""
        return not self.looks_up

    def observe(self, subjects: Sequence[Any], shared: Any) -> Sequence[Any]:
        """Features of texts or pictures; pictures have `read()` and `look_up()`."""
        texts = [subject for subject in subjects if isinstance(subject, str)]
        pictures = [subject for subject in subjects if not isinstance(subject, str)]
        rows = iter(np.asarray(self.embed_texts(texts), np.float32) if texts else ())
        seen_features = iter(self._seen(pictures))
        return [Observation(next(rows)) if isinstance(subject, str) else next(seen_features) for subject in subjects]

    def _seen(self, pictures: Sequence[Any]) -> list[Observation]:
        if self.looks_up:
            return [Observation(picture.look_up(self.look_up)) for picture in pictures]
        if not pictures:
            return []
        with ThreadPoolExecutor(threads(len(pictures)) or 1) as pool:
            images = list(pool.map(lambda picture: picture.read(), pictures))
        rows = one_each(self.embed_images(images), images, f"extractor {self.name!r}")
        return [Observation(row, meta=_picture_facts(image)) for row, image in zip(rows, images, strict=True)]

    @property
    def revision(self) -> str:
        """Identity of its weights and of how pictures are brought to it."""
        return "; ".join((*(self.called(need) for need in self.needs), self.preprocessing))

    @property
    @abstractmethod
    def preprocessing(self) -> str:
        """Preprocessing and layer of its features, in few words."""

    @abstractmethod
    def embed(self, pictures: Sequence[Picture]) -> Array:
        """Returns the features of 8-bit RGB pictures of any size: float32, (picture, feature)."""

    def embed_images(self, images: Sequence[Image]) -> Array:
        """Returns the features of images (channel, row, column): float32, (image, feature).

        Raises:
            CaseError: one is no picture of 1 to 4 channels.
        """
        return np.asarray(self.embed([as_picture(image) for image in images]), dtype=np.float32)

    def embed_texts(self, texts: Sequence[str]) -> Array:
        """Returns text features, float32, (text, feature); UserError where unsupported."""
        raise UserError(f"extractor {self.name!r} reads no texts; name one that does, such as biomedclip")

    @property
    def names(self) -> Sequence[str]:
        """Names of the features, where they have any."""
        return self.findings or self.choices

    def compare(self, one: Array, other: Array) -> Array:
        """Returns similarity of picture pairs by broadcast features (..., feature): float64, (...).

        Higher is more likely one patient. Raises UserError where it tells no patients apart.
        """
        raise UserError(f"extractor {self.name!r} tells no patients apart; name one that does, such as patient_reid")

    def look_up(self, files: Sequence[Path]) -> Array:
        """Returns the features of one picture by its files, float32, (feature,).

        Raises:
            CaseError: they are not known.
        """
        raise CaseError(f"extractor {self.name!r} computes features, and has none to look up")


class Encoder(FeatureExtractor, Embedder):
    """Network that embeds pictures, as extractor and as model.

    Your own class writes `load`, `encode` and `preprocessing`; `preferred_batch` pictures are computed at once.

    Attributes:
        precision: of what is computed: `float32`, `bfloat16` or `float16`.
        takes: what it is shown at once: `picture`, which may be a tile of a slide or a slice of a volume; or `volume`,
            of an encoder whose `encode_images` takes volumes whole.
    """

    precision: str = "float32"
    takes: ClassVar[Literal["picture", "volume"]] = "picture"

    @abstractmethod
    def load(self) -> Any:
        """Loads network and preprocessing; raises UserError where that fails."""

    @cached_property
    def loaded(self) -> Any:
        """Result of `load`, once."""
        return self.load()

    @abstractmethod
    def encode(self, pictures: Sequence[Picture]) -> Array:
        """Returns features of 8-bit RGB pictures: float32, (picture, feature)."""

    @overload
    def embed(self, shown: Prompts) -> list[Array]: ...
    @overload
    def embed(self, shown: Sequence[Picture]) -> Array: ...

    def embed(self, shown: Prompts | Sequence[Picture]) -> list[Array] | Array:
        """Returns features of pictures (picture, feature), or a vector per prompt, float32.

        A prompt's vector is the mean of those of its images, or that of its text where it shows none.
        """
        if not shown or not isinstance(shown[0], Prompt):
            return self.encode(cast("Sequence[Picture]", shown))
        prompts = cast("Prompts", shown)
        images = [image for prompt in prompts for image in shown_images(prompt)]
        rows = iter(self.embed_images(images) if images else ())
        words = [prompt.text for prompt in prompts if not prompt.images]
        read = iter(self.embed_texts(words) if words else ())
        return [
            np.mean([next(rows) for _ in shown_images(prompt)], axis=0) if prompt.images else next(read)
            for prompt in prompts
        ]

    def prepared(self, pictures: Sequence[Picture], transform: Callable[[Picture], Any]) -> Any:
        """Preprocessed pictures (picture, ...), by threads, on the network's device."""
        import torch

        count = threads(len(pictures))
        if count < 2:
            return torch.stack([transform(picture) for picture in pictures]).to(self.on)
        with ThreadPoolExecutor(count) as pool:
            return torch.stack(list(pool.map(transform, pictures))).to(self.on)

    def computing(self) -> AbstractContextManager[Any]:
        """Without gradients, in the encoder's precision."""
        import torch

        UsageError.refuse_invalid("precision", PRECISIONS, self.precision)
        stack = ExitStack()
        stack.enter_context(torch.inference_mode())
        if self.precision != "float32":
            stack.enter_context(torch.autocast(torch.device(self.on).type, getattr(torch, self.precision)))
        return stack


def outside_inference() -> AbstractContextManager[Any]:
    """Lets weights loaded within have gradients later, despite inference mode."""
    import torch

    return torch.inference_mode(mode=False)


class Pixels(Encoder):
    """Grey values of a small square: needs no network or weights.

    What it sees is where a picture is bright: enough to try everything out without weights, and to find copies that
    nobody changed; `transformed_copies@pixels_128` finds those that were flipped, moved, cropped, turned or recoloured.
    It is no judge of realism.

    Args:
        size: edge of the square; a vector has as many features as the square has pixels.
    """

    gives_pixels: ClassVar[bool] = True
    uses_torch: bool = False

    def __init__(self, size: int = 16, preferred_batch: int = 64) -> None:
        if not isinstance(size, int) or size < 1:
            raise UsageError(
                f"extractors.{self.name or 'pixels'}.size: expected a whole number from 1 on, got {size!r}"
            )
        self.size, self.preferred_batch = size, preferred_batch

    @property
    def preprocessing(self) -> str:
        """Grey, by the mean of areas."""
        return f"grey values, 0 to 1, as means of {self.size} x {self.size} areas"

    def load(self) -> None:
        """Loads nothing."""

    def encode(self, pictures: Sequence[Picture]) -> Array:
        """Returns grey values, 0 to 1, (picture, size * size), row by row."""
        from PIL.Image import Resampling

        small = [
            picture.convert("L").convert("F").resize((self.size, self.size), Resampling.BOX) for picture in pictures
        ]
        rows = [np.asarray(small_picture, np.float32).ravel() / np.float32(255) for small_picture in small]
        return np.stack(rows) if rows else np.zeros((0, self.size**2), np.float32)


class FeatureTable(FeatureExtractor):
    """A table with a row per picture, and a column per feature.

    Pictures of a run lie in its folder, as `predictions/CASE/000.png`: features are computed of them once they are
    there, and `score run=DIR metrics=[...]` then judges them.

    Args:
        weights: the table, CSV.
        file: the column that names the picture: its path, or as much of its end as tells it from others.
        leave_out: columns that are no features.
    """

    looks_up: ClassVar[bool] = True
    needs: ClassVar[Sequence[Weights]] = (
        Weights(
            *("weights", "a table of features, CSV", "whatever program computed them", "that of its images"),
            on_hub=False,
        ),
    )

    def __init__(
        self,
        weights: str | None = None,
        file: str = "file",
        leave_out: Sequence[str] = (),
        preferred_batch: int = 1024,
    ) -> None:
        self.weights, self.file, self.preferred_batch = weights, file, preferred_batch
        self.leave_out = tuple(leave_out)

    @property
    def preprocessing(self) -> str:
        """Whatever the program did."""
        return "features of a table"

    @property
    def names(self) -> Sequence[str]:
        """The columns."""
        return self._table[0]

    def embed(self, pictures: Sequence[Picture]) -> Array:
        """Raises UserError: a table knows files, not pictures."""
        raise UserError(f"extractor {self.name!r} looks features up by file, and cannot compute any")

    def look_up(self, files: Sequence[Path]) -> Array:
        """Returns a picture's features, float32, (feature,), empty cells NaN; CaseError unless one row."""
        _, rows, longest = self._table
        parts = files[0].absolute().parts if files else ()
        for length in range(min(longest, len(parts)), 0, -1):
            if parts[-length:] in rows:
                return rows[parts[-length:]]
        shown_name = files[0] if files else "a picture without a file"
        raise CaseError(f"{shown_name}: {self.weights} has no row of it in column {self.file!r}")

    @cached_property
    def _table(self) -> tuple[list[str], dict[tuple[str, ...], Array], int]:
        """Feature columns, path end -> row, and longest end in parts."""
        import pandas as pd

        path = self.find(self.needs[0])
        with UserError.about(path, "cannot be read as a table", OSError, ValueError):
            table: Any = pd.read_csv(path)
        columns = list(map(str, table))
        UserError.refuse_unknown(f"{path}: has no column", columns, self.file, *self.leave_out)
        names = [column for column in columns if column != self.file and column not in self.leave_out]
        odd = next((name for name in names if table[name].dtype.kind not in "fiub"), None)
        if odd is not None or not names:
            raise UserError(
                f"{path}: column {odd!r} holds no numbers; name such columns in extractors.{self.name}.leave_out"
                if names
                else f"{path}: has no column of features"
            )
        values = table[names].to_numpy(np.float32)
        rows: dict[tuple[str, ...], Array] = {}
        for file, row in zip(table[self.file].astype(str), values, strict=True):
            key = tuple(part for part in PurePath(file.replace("\\", "/")).parts if part not in (".", "/"))
            if not key or key in rows:
                raise UserError(f"{path}: column {self.file!r} holds {file!r} twice, or no file; expected each once")
            rows[key] = row
        return names, rows, max(map(len, rows), default=0)


def _picture_facts(image: Image) -> dict[str, Any]:
    """Size and type of a picture in words; whether it is constant."""
    array = np.asarray(image.array)
    size = " x ".join(map(str, array.shape[1:]))
    constant = bool(array.size and (array == array.flat[0]).all())
    return {"shape": f"{size} {array.dtype}", "constant": constant}
