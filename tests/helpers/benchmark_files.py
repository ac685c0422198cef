"""Benchmarks of the catalogue over files in their authors' layout, made for the tests."""

from copy import deepcopy
from functools import cache

import nibabel as nib
import numpy as np
from omegaconf import OmegaConf
from PIL import Image as Pillow

from medimg_eval.instantiate import build_task
from tests.helpers.config_files import config_file


def config(name, group="task"):
    """A task's config with the protocols it names, as Hydra puts them together; tests/test_house.py asks Hydra."""
    return deepcopy(_merged(name, group))


@cache
def _merged(name, group):
    own = OmegaConf.load(config_file(name, group))
    bases = [
        _merged(named, place.strip("/").partition("@")[0].partition("/")[0])
        for base in own.pop("defaults", [])
        if base != "_self_"
        for place, named in (base if OmegaConf.is_dict(base) else {group: base}).items()
    ]
    return OmegaConf.merge(*bases, own)


def task(name, root, /, **changes):
    """The task over a folder of a few cases, whose number is not the published one."""
    made = config(name)
    made.pop("expected", None)
    made.layout.root = str(root)
    made = OmegaConf.merge(made, OmegaConf.create(changes))
    return build_task(OmegaConf.to_container(made, resolve=True))


def volume(path, array, spacing=(1, 1, 1)):
    """Writes a NIfTI file, folders and all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    array = np.asarray(array)
    nib.save(nib.Nifti1Image(array.astype(np.int16), np.diag([*spacing, 1.0])), path)
    return path


def picture(path, array):
    """Writes a picture, folders and all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Pillow.fromarray(np.asarray(array, np.uint8)).save(path)
    return path


def ids(cases):
    return [case.id for case in cases]


def boxes(shape=(12, 10, 8), **places):
    """A label map: `at3=(slice, slice, slice)` puts label 3 there."""
    labels = np.zeros(shape, np.int16)
    for name, place in places.items():
        labels[place] = int(name.removeprefix("at"))
    return labels


def scores(one, case, prediction, metric="dice"):
    """Label -> score of a prediction, rounded."""
    found = one.score(case, prediction, [metric])
    return {score.label: round(score.value, 6) for score in found if score.metric == metric}
