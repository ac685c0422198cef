"""Feature extractors: pictures as vectors, of which metrics of sets compare the distributions.

A metric names its extractor, as `frechet_distance@rad_dino` does; `configs/extractor/rad_dino.yaml` says which class
that is and where its weights are. Every extractor is given the same 8-bit RGB pictures, made by `as_picture`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.imaging.pictures import as_picture
from medimg_eval.models.base import Model
from medimg_eval.models.hub import Weights, hub_name, located
from medimg_eval.models.text_encoders import device_of

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

    from medimg_eval.case import Array, Image


class FeatureExtractor(Model, ABC):
    """Gives every picture a vector.

    Attributes:
        name: what metrics call it; set by whoever makes it.
        preferred_batch: pictures that it likes to be given at once.
        needs: the weights that must come from the user.
        reads_texts: whether it also has `embed_texts`, whose vectors can be compared with those of pictures.
        findings: of a classifier: the findings whose probabilities are its features, called as attributes of cases are.
        choices: of another: the values that exclude each other, whose probabilities are its features.
        chooses: of which attribute, such as `view`.
        thresholds: (feature,): from which probability on a finding is there.
        tells_patients: whether it also has `compare`.
        looks_up: whether features are had from `look_up`, by file, and not computed.
    """

    name: str = ""
    preferred_batch: int = 32
    needs: ClassVar[Sequence[Weights]] = ()
    reads_texts: ClassVar[bool] = False
    tells_patients: ClassVar[bool] = False
    looks_up: ClassVar[bool] = False
    findings: Sequence[str] = ()
    choices: Sequence[str] = ()
    chooses: str = ""
    thresholds: Sequence[float] = ()
    file_arguments: ClassVar[tuple[str, ...]] = ("weights",)
    pace_arguments: ClassVar[tuple[str, ...]] = ("device", "preferred_batch")

    def check_ready(self) -> None:
        """Raises UserError when weights are not there, within a second and without loading any."""
        for one in self.needs:
            self.find(one)

    def find(self, weights: Weights) -> Path:
        """The file or folder of weights on this machine.

        Raises:
            UserError: it is not there; the message says what, where it is had, on which terms, and which key names it.
        """
        given = getattr(self, weights.argument)
        try:
            return located(given, weights, self.name)
        except UserError as error:
            looked = f"looked for as {given!r}" if given else "none is named"
            fetched = f"; `python -m medimg_eval download extractor={self.name}` fetches them" if given else ""
            raise UserError(
                f"extractor {self.name!r} lacks its weights: {weights.what} ({looked}); they are had from "
                f"{weights.source} (licence: {weights.licence}){fetched}; or set extractors.{self.name}."
                f"{weights.argument}=PATH, or HF_HOME to a cache of the model hub that has them"
            ) from error

    @property
    def revision(self) -> str:
        """What identifies it: its weights, and how pictures are brought to it."""
        return "; ".join((*(self._called(one) for one in self.needs), self.preprocessing))

    @property
    @abstractmethod
    def preprocessing(self) -> str:
        """How pictures are brought to it, and which layer is taken, in a few words."""

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
        """Returns the features of texts, float32, (text, feature); raises UserError where it reads none."""
        raise UserError(f"extractor {self.name!r} reads no texts; name one that does, such as biomedclip")

    @property
    def names(self) -> Sequence[str]:
        """Of its features, where they have any."""
        return self.findings or self.choices

    def compare(self, one: Array, other: Array) -> Array:
        """Returns scores of pairs of pictures by their features, (..., feature) each and broadcast: float64, (...).

        Higher is more likely one patient. Raises UserError where it tells no patients apart.
        """
        raise UserError(f"extractor {self.name!r} tells no patients apart; name one that does, such as patient_reid")

    def look_up(self, files: Sequence[Path]) -> Array:
        """Returns the features of one picture by its files, float32, (feature,).

        Raises:
            CaseError: they are not known.
        """
        raise CaseError(f"extractor {self.name!r} computes features, and has none to look up")

    def _called(self, weights: Weights) -> str:
        path = self.find(weights)
        snapshot = next((one.name for one in (path, *path.parents) if one.parent.name == "snapshots"), "")
        given = str(getattr(self, weights.argument))
        return f"{hub_name(given).repository}@{snapshot[:8]}" if snapshot else path.name


class Pixels(FeatureExtractor):
    """The grey values of a picture brought to a small square: no network, no weights.

    What it sees is where a picture is bright: enough to find copies, and to try everything out without weights. It is
    no judge of realism.

    Args:
        size: edge of the square; a vector has as many features as the square has pixels.
        preferred_batch: pictures at once.
    """

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

    def embed(self, pictures: Sequence[Picture]) -> Array:
        """Returns grey values, 0 to 1, (picture, size * size), row by row."""
        from PIL.Image import Resampling

        small = [one.convert("L").convert("F").resize((self.size, self.size), Resampling.BOX) for one in pictures]
        rows = [np.asarray(one, np.float32).ravel() / np.float32(255) for one in small]
        return np.stack(rows) if rows else np.zeros((0, self.size**2), np.float32)


class Network(FeatureExtractor):
    """What extractors with a network share: it is loaded once, onto a device, when the first picture comes."""

    device: str = "auto"
    _loaded: Any = None

    @abstractmethod
    def load(self) -> Any:
        """Loads the network and whatever else it takes; raises UserError where that cannot be done."""

    @property
    def loaded(self) -> Any:
        """What `load` returned, once."""
        if self._loaded is None:
            self._loaded = self.load()
        return self._loaded

    @property
    def on(self) -> str:
        """The device that a setting means: "auto" takes a GPU where there is one."""
        return device_of(self.device)
