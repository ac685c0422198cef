"""Sub-regions of the knee: by hand, and as DOSMA divides."""

import itertools
import math
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import ndimage, optimize

from medimg_eval.metrics.measurement import DIVISIONS, knee_subregions
from tests.helpers.authors import load_functions, require_clone


def sizes(tissue, mask, t2=None, medial_first=True):
    parts = knee_subregions(tissue, mask, np.where(mask, 40.0, np.nan) if t2 is None else t2, medial_first=medial_first)
    return {name: int(part.sum()) for name, part in parts.items()}


def test_a_meniscus_has_sides_of_its_two_largest_components():
    mask = np.zeros((4, 6, 10), bool)
    mask[1:3, 1:3, 1:4] = mask[1:3, 1:3, 7:9] = True  # 12 and 8 voxels; the mean slice is 4.2
    mask[0, 5, 5] = True
    assert sizes("meniscus", mask) == {"medial": 12, "lateral": 8}
    assert sizes("meniscus", mask, medial_first=False) == {"medial": 8, "lateral": 12}


def test_a_patella_is_deep_where_the_bone_is():
    mask = np.zeros((2, 6, 2), bool)
    mask[:, 1:5] = True  # along columns the centre of mass is 2.5: 1 and 2 are anterior
    parts = knee_subregions("patellar cartilage", mask, mask * 40.0, medial_first=True)
    assert np.flatnonzero(parts["deep medial"][0, :, 0]).tolist() == [1, 2]
    assert np.flatnonzero(parts["superficial lateral"][0, :, 1]).tolist() == [3, 4]
    assert parts["total medial"].sum() == 8


def test_each_tibial_plateau_has_thirds_of_its_own():
    mask = np.zeros((4, 20, 4), bool)
    mask[1:3, 2:12, :2] = True  # columns 2 to 11: thirds begin at 5 and 8
    mask[1:3, 8:18, 2:] = True  # columns 8 to 17: at 11 and 14
    parts = knee_subregions("tibial cartilage", mask, mask * 40.0, medial_first=True)
    assert np.flatnonzero(parts["total medial central"].any(axis=(0, 2))).tolist() == [5, 6, 7]
    assert np.flatnonzero(parts["superior lateral anterior"].any(axis=(0, 2))).tolist() == [8, 9, 10]
    assert np.flatnonzero(parts["superior lateral anterior"].any(axis=(1, 2))).tolist() == [1]
    assert np.flatnonzero(parts["inferior medial posterior"].any(axis=(1, 2))).tolist() == [2]


def femur():
    """An arc of 4 voxels' thickness below a centre at (20, 20), open at the top."""
    rows, columns = np.mgrid[:41, :41]
    radius, angle = np.hypot(rows - 20, columns - 20), np.degrees(np.arctan2(20 - rows, columns - 20))
    arc = (radius >= 12) & (radius < 16) & (angle < 20) | (radius >= 12) & (radius < 16) & (angle > 160)
    return np.repeat(arc[..., None], 6, axis=2)


def test_a_femur_is_divided_about_its_circle():
    mask = femur()
    parts = knee_subregions("femoral cartilage", mask, mask * 40.0, medial_first=True)
    for part, place in (
        ("deep medial central", (20 + 12, 20, 0)),
        ("superficial medial central", (20 + 15, 20, 0)),
        ("deep lateral anterior", (20, 20 - 12, 5)),
        ("superficial lateral posterior", (20, 20 + 15, 5)),
    ):
        assert parts[part][place]
    totals = sum(part for name, part in parts.items() if name.startswith("total"))
    np.testing.assert_array_equal(totals, mask)


@pytest.mark.parametrize("tissue", DIVISIONS)
def test_nothing_and_one_voxel(tissue):
    mask = np.zeros((3, 3, 3), bool)
    assert set(sizes(tissue, mask).values()) == {0}
    mask[1, 1, 1] = True
    assert max(sizes(tissue, mask).values()) == 1
    if tissue == "femoral cartilage":
        assert set(sizes(tissue, mask, np.full(mask.shape, np.nan)).values()) == {0}


def test_what_cannot_be_divided_is_refused():
    mask = np.ones((2, 2, 2), bool)
    with pytest.raises(ValueError, match="tissue is invalid: expected one of femoral cartilage"):
        knee_subregions("bone", mask, mask, medial_first=True)
    with pytest.raises(ValueError, match=r"one shape of three axes, got \(2, 2, 2\) and \(2, 2\)"):
        knee_subregions("meniscus", mask, mask[0], medial_first=True)


class Volume:
    """What stands for DOSMA's volumes."""

    orientation, affine = ("SI", "AP", "LR"), np.eye(4)

    def __init__(self, volume, affine=None):
        self.volume = self.A = volume

    def _partial_clone(self, volume):
        return Volume(volume)


class Tissue:
    """What stands for DOSMA's base class: it keeps the mask, and the table of means."""

    def __init__(self, weights_dir=None, medial_to_lateral=None):
        self.medial_to_lateral, self.pid = medial_to_lateral, "1"

    def set_mask(self, mask):
        self.__mask__ = mask

    def __calc_quant_vals__(self, quant_map, map_type):
        pass

    def __store_quant_vals__(self, maps, table, kind):
        self.table = table


class Quantity:
    """What stands for DOSMA's T2: means above 0."""

    def __init__(self, volume):
        self.volume = volume.volume

    def to_metrics(self, mask, labels, bounds, closed):
        means = {name: self.volume[(mask.volume == label) & (self.volume > 0)].mean() for label, name in labels.items()}
        return pd.DataFrame({"Region": list(means), "Mean": list(means.values())})


class Older:
    """A module, with names that it once had."""

    def __init__(self, module, **names):
        self.__dict__.update(names, module=module)

    def __getattr__(self, name):
        return getattr(self.module, name)


def load_tissue(clone, file, name):
    numpy, scipy = Older(np, bool=bool, int=int), Older(ndimage, measurements=ndimage)
    largest = load_functions(clone / "dosma/tissues/tissue.py", "largest_cc", np=numpy, sni=scipy)["largest_cc"]
    circle = load_functions(
        clone / "dosma/utils/geometry_utils.py", "circle_fit", "cart2pol", np=numpy, optimize=optimize
    )
    given = {"np": numpy, "sni": scipy, "pd": pd, "warnings": warnings, "itertools": itertools, "Tissue": Tissue}
    given |= {"MedicalVolume": Volume, "T2": Quantity, "largest_cc": largest, "geometry_utils": ndimage, **circle}
    given |= {"get_array_module": lambda _: numpy, "QuantitativeValueType": None}
    given |= {"ImageDataFormat": None, "preferences": SimpleNamespace(image_data_format=None)}
    return load_functions(clone / "dosma/tissues" / f"{file}.py", name, **given)[name]


THEIRS = {
    "femoral cartilage": ("femoral_cartilage", "FemoralCartilage", ("Location", "Side", "Region")),
    "tibial cartilage": ("tibial_cartilage", "TibialCartilage", ("Location", "Side", "Region")),
    "patellar cartilage": ("patellar_cartilage", "PatellarCartilage", ("Location", "Condyle")),
    "meniscus": ("meniscus", "Meniscus", ("Region",)),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("medial_first", [True, False])
@pytest.mark.parametrize("tissue", DIVISIONS)
def test_sub_regions_are_those_of_dosma(tissue, medial_first):
    file, name, columns = THEIRS[tissue]
    kind = load_tissue(require_clone("ad12/DOSMA"), file, name)
    rng = np.random.default_rng(3)
    compared = 0
    for _ in range(10):
        mask = ndimage.shift(femur(), (*rng.integers(-3, 4, 2), 0), order=0) & (rng.random((41, 41, 6)) < 0.98)
        mask[:, :, rng.integers(6)] &= rng.random((41, 41)) < 0.6
        t2 = np.round(rng.uniform(-10, 70, mask.shape), 1) * (rng.random(mask.shape) < 0.9)
        t2[t2 < 0] = 0
        theirs = kind(medial_to_lateral=medial_first)
        given = {"split_regions": False} if tissue == "femoral cartilage" else {}
        theirs.split_ml_only = True
        theirs.set_mask(Volume(mask), **({"use_largest_ccs": True} if DIVISIONS[tissue].components == 2 else given))
        theirs.__calc_quant_vals__(Volume(t2), SimpleNamespace(name="T2"))
        table = theirs.table
        right = {" ".join(row[column] for column in columns): row["Mean"] for _, row in table.iterrows()}
        right = {name.replace("total-total-", ""): mean for name, mean in right.items()}
        ours = knee_subregions(tissue, mask, t2, medial_first=medial_first)
        for part, inside in ours.items():
            values = t2[inside & (t2 > 0)]
            assert right[part] == pytest.approx(values.mean() if values.size else math.nan, nan_ok=True), part
            compared += values.size > 0
        assert set(right) == set(ours)
    assert compared >= 20
