"""Generated images of one prompt: a folder of PNG or NIfTI files, and JSON beside it that names them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from medimg_eval.codecs.base import FileCodec, Stored, json_digest, read_json, write_json
from medimg_eval.errors import CaseError
from medimg_eval.image import Image
from medimg_eval.imaging import write_image
from medimg_eval.system import file_digest, whole
from medimg_eval.trust import place_in


class GeneratedImages(NamedTuple):
    """The images of one prompt, and the seed of each.

    They are arrays, uint8 or uint16, (row, column) or (row, column, 3), or volumes, each an `Image`; of a stored
    prediction their files.
    """

    pictures: Sequence[Any]
    seeds: Sequence[int]


class Pictures(FileCodec):
    """Generated images."""

    form = "pictures"
    suffix = ".json"

    def save(self, path: Path, value: GeneratedImages) -> None:
        """Writes PNGs or NIfTI volumes into a folder, then the index."""
        from imagecodecs import png_encode

        folder = path.with_name(path.name.removesuffix(self.suffix))
        folder.mkdir(exist_ok=True)
        endings = [".nii.gz" if isinstance(picture, Image) else ".png" for picture in value.pictures]
        names = [f"{folder.name}/{number:03d}{ending}" for number, ending in enumerate(endings)]
        for name, picture in zip(names, value.pictures, strict=True):
            if isinstance(picture, Image):
                write_image(path.parent / name, picture)
                continue
            with whole(path.parent / name) as partial:
                # Level 1 takes a quarter of the time, and 9 % more room.
                partial.write_bytes(png_encode(np.ascontiguousarray(picture), level=1))
        write_json(path, {"pictures": names, "seeds": list(value.seeds)})

    def read(self, stored: Path) -> GeneratedImages:
        """Returns image files unopened; raises CaseError for missing ones."""
        content = read_json(stored)
        names = content.get("pictures")
        if not isinstance(names, list):
            raise CaseError(f"{stored}: names no pictures; delete it, and run test again")
        files = [place_in(stored.parent, name) for name in names]
        missing = next((file for file in files if not file.is_file()), None)
        if missing is not None:
            raise CaseError(f"{missing}: is missing; delete {stored.name} beside its folder, and run test again")
        return GeneratedImages(files, content.get("seeds", []))

    def digest(self, stored: Stored) -> str:
        """Hash of the content of all images."""
        return json_digest([file_digest(file) for file in self.read(Path(str(stored))).pictures])
