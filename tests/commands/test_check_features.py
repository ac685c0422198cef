"""`check features=DIR`: what a store holds and lacks, whoever wrote it."""

import h5py
import numpy as np
import pytest

from medimg_eval.checking import describe_features
from medimg_eval.commands.check import check_features
from medimg_eval.errors import UserError
from medimg_eval.store import FeatureStore, Item
from tests.helpers import feature_stores as made


def test_a_job_of_trident_is_described(tmp_path, capsys):
    made.trident(tmp_path)
    with h5py.File(tmp_path / "20x_256px_0px_overlap" / "features_uni" / "007.h5", "a") as file:
        file["coords"].attrs["target_magnification"] = 40
        file["features"][0, 0] = np.nan
    found = describe_features(tmp_path)
    assert found.facts == {
        "bags": "1 read, 2 not",
        "rows": "200; 200 to 200 a bag, median 200",
        "features": "3",
        "magnification": "20",
        "patch size": "256",
        "in level-0 pixels": "512",
        "coordinates": "of 1 bags",
    }
    assert [text.rpartition("/")[2][:36] for text in found.doubts[:2]] == [
        "007.h5: 1 of 200 tiles have NaN or i",
        "empty.h5: the slide has no tiles, it",
    ]
    assert found.doubts[2] == "1 slides have coordinates and no features: left.over"
    with pytest.raises(UserError, match="3 doubts, listed above"):
        check_features(tmp_path)
    printed = capsys.readouterr().out
    assert "TRIDENT (features_ENCODER/SLIDE.h5)" in printed
    assert "  ! 1 slides have coordinates" in printed


def test_several_encoders_and_magnifications_are_doubts(tmp_path):
    made.hest(tmp_path)
    with h5py.File(tmp_path / "third.h5", "w") as file:
        file["embeddings"], file["barcodes"] = np.zeros((2, 9)), np.array([[b"a"], [b"b"]])
    assert describe_features(tmp_path).doubts == ["features have several lengths: they are of several encoders"]


def test_a_store_of_ours_is_described(tmp_path):
    store = FeatureStore.create(tmp_path, {"encoder": {"_target_": "a.b.UNI"}, "shown": {"tiles": {"size": 9}}}, 3)
    store.add([Item("a", np.zeros((4, 3))), Item("glass", np.zeros((0, 3)))])
    found = describe_features(tmp_path)
    assert found.facts == {
        "encoder": "UNI",
        "made with": "no revision known",
        "bags": "2, 1 of them without rows",
        "rows": "4; 0 to 4 a bag, median 4",
        "features": "3 x float32",
        "tiles": "{'size': 9}",
    }
    assert not found.doubts
