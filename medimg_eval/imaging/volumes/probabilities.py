"""Class probabilities in `.b2nd` files: one compressed chunk per class."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from medimg_eval.case import Probabilities, Units
from medimg_eval.errors import CaseError
from medimg_eval.imaging.geometry import check_affine
from medimg_eval.imaging.volumes.reading import VLMETA
from medimg_eval.imaging.voxel_data import check_memory
from medimg_eval.system import whole

SUFFIX = ".b2nd"
LABELS = "medimg_eval.labels"
"""Where the file carries the label of each channel."""
UNITS = "medimg_eval.units"


def write_probabilities(path: str | Path, probabilities: Probabilities) -> None:
    """Writes probabilities without loss, in their dtype; the file appears whole or not at all.

    `medimg_eval.imaging.read` reads what is written as an image of as many channels.

    Args:
        path: where to, ending in `.b2nd`; its folder exists.
        probabilities: float16, float32 or float64.

    Raises:
        CaseError: another suffix, or values that are no floats.
    """
    import blosc2

    path = Path(path)

    if path.suffix != SUFFIX:
        raise CaseError(f"{path}: probabilities are written as b2nd; expected a name that ends in {SUFFIX}")
    if probabilities.array.dtype.kind != "f":
        raise CaseError(f"{path}: expected floats to write as probabilities, got {probabilities.array.dtype}")
    with whole(path) as partial:
        stored = blosc2.asarray(
            np.ascontiguousarray(probabilities.array),
            urlpath=str(partial),
            mode="w",
            chunks=(1, *probabilities.array.shape[1:]),
            # Mantissas are noise; what shrinks are exponents, and voxels that are sure. Harder levels gain little.
            cparams={
                "codec": blosc2.Codec.ZSTD,
                "clevel": 1,
                "filters": [blosc2.Filter.BITSHUFFLE],
                "filters_meta": [0],
                "nthreads": 1,
            },
        )
        stored.schunk.vlmeta[VLMETA] = [float(number) for number in probabilities.affine.ravel()]
        stored.schunk.vlmeta[LABELS] = [int(label) for label in probabilities.labels]
        stored.schunk.vlmeta[UNITS] = probabilities.units


def read_probabilities(path: str | Path) -> Probabilities:
    """Reads what `write_probabilities` wrote.

    Raises:
        CaseError: missing, damaged, larger than memory, or not such a file.
    """
    import blosc2

    path = Path(path)

    if not path.is_file():
        raise CaseError(f"{path}: no such file")
    try:
        stored = blosc2.open(str(path), mode="r")
        said = stored.schunk.vlmeta
        labels, units = tuple(int(label) for label in said[LABELS]), said[UNITS]
        affine = np.reshape(np.array(said[VLMETA], np.float64), (4, 4))
        check_memory(path, stored.nbytes)
        array = stored[...]
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise CaseError(f"{path}: holds no probabilities, or is damaged ({error}); run test again") from error
    check_affine(path, affine)
    if len(labels) != len(array):
        raise CaseError(f"{path}: names {len(labels)} labels for {len(array)} channels; run test again")
    known: Units = "pixel" if units == "pixel" else "mm"
    return Probabilities(array, labels, affine, known)
