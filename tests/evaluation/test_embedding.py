"""Features of a task's images: what an encoder is shown, what is computed once, and what happens to the rest."""

import csv
from dataclasses import dataclass

import h5py
import nibabel as nib
import numpy as np
import pytest
from PIL import Image as Pictures

import medimg_eval as me
from medimg_eval.case import Case, Findings
from medimg_eval.data.pieces import ShownPlan, pieces_of
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.imaging import ImageFile
from medimg_eval.imaging.slides import Slide, read_tiles, tile_grid
from medimg_eval.models import Pixels
from medimg_eval.store import FeatureStore
from medimg_eval.tasks import ClassificationTask
from tests.helpers import slide_files


@dataclass
class Sick:
    files: tuple = ()

    def read(self):
        return Findings({"sick": 1.0})


@dataclass
class Files:
    """Cases of images, in the order of their names."""

    images: dict
    patients: dict

    def cases(self, split):
        return [Case(name, tuple(images), Sick(), self.patients.get(name)) for name, images in self.images.items()]


def task(images, **patients):
    listed = {
        name: [ImageFile(path) for path in (paths if isinstance(paths, list) else [paths])]
        for name, paths in images.items()
    }
    return ClassificationTask(
        name="made", layout=Files(listed, patients), metrics=["auroc@macro"], classes=["sick"], splits={"test": "test"}
    )


class Counting(Pixels):
    """Counts the pictures that it is shown, and fails on white ones."""

    seen = 0

    def encode(self, pictures):
        Counting.seen += len(pictures)
        if any(np.asarray(one).min() == 255 for one in pictures):
            raise RuntimeError("too bright")
        return super().encode(pictures)


@pytest.fixture(autouse=True)
def _fresh(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "cache"))
    Counting.seen = 0


def picture(path, value=0, size=(6, 8)):
    rows, columns = np.mgrid[: size[0], : size[1]]
    Pictures.fromarray(((rows * 5 + columns * 3 + value) % 250).astype(np.uint8)).save(path)
    return path


def embed(one, model=None, **settings):
    return me.embed(one, model or Counting(4), **{"num_workers": 0, **settings})


def test_equal_pictures_are_embedded_once_and_every_run_shares_them(tmp_path):
    paths = [picture(tmp_path / f"{name}.png", value) for name, value in zip("abc", (0, 0, 9), strict=True)]
    found = embed(task({"1": paths[0], "2": [paths[1], paths[2]]}, **{"1": "p"}))
    assert (Counting.seen, found.computed, found.counts()) == (2, 2, [1, 2])
    expected = Pixels(4).encode([Pictures.open(path).convert("RGB") for path in paths])
    np.testing.assert_array_equal(found.matrix(), expected)
    np.testing.assert_array_equal(found.rows("2"), expected[1:])
    assert found.coordinates("1") is None
    again = embed(task({"other": paths[2]}))
    assert (Counting.seen, again.computed, again.store.path) == (2, 0, found.store.path)
    picture(paths[2], 77)  # another picture under the same name
    assert embed(task({"other": paths[2]})).computed == 1
    other = embed(task({"other": paths[2]}), Counting(5))
    assert other.store.path != found.store.path
    assert embed(task({"other": paths[2]}), dtype="float16").matrix().dtype == np.float16
    with (found.store.path / "cases" / "made.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["case"], row["patient"], row["image"], row["first"]) for row in rows[:3]] == [
        ("1", "p", "0", "0"),
        ("2", "", "0", "0"),
        ("2", "", "1", "1"),
    ]


def test_what_fails_fails_alone_and_is_tried_again(tmp_path):
    images = {name: picture(tmp_path / f"{name}.png", number) for number, name in enumerate("abc")}
    images["b"].write_bytes(b"\x89PNG no picture")
    Pictures.fromarray(np.full((4, 4), 255, np.uint8)).save(images["c"])
    found = embed(task(images))
    assert [*found.keys] == ["a"]
    failed = {one.case_id: one.message for one in found.failures}
    assert "b.png: " in failed["b"]
    assert "c.png: RuntimeError: too bright (test_embedding.py:" in failed["c"]
    with pytest.raises(CaseError, match=r"case 'c' has no features: .*too bright"):
        found.rows("c")
    assert found.matrix().shape == (1, 16)
    picture(images["b"], 5)
    assert [*embed(task(images)).keys] == ["a", "b"]


def test_a_killed_start_is_gone_on_with(tmp_path, monkeypatch):
    from medimg_eval.evaluation.fitting import embedding

    monkeypatch.setattr(embedding, "AT_ONCE", 2)
    images = {str(number): picture(tmp_path / f"{number}.png", number) for number in range(7)}

    class Killed(Counting):
        def encode(self, pictures):
            if Counting.seen >= 5:
                raise KeyboardInterrupt
            return super().encode(pictures)

    with pytest.raises(KeyboardInterrupt):
        embed(task(images), Killed(4), name="x", identity="x")
    Counting.seen = -99
    found = embed(task(images), Killed(4), name="x", identity="x")
    assert found.computed == 3  # two pairs were kept
    assert len(found.keys) == 7


def slides_task(**paths):
    return task(paths)


def test_slides_are_shown_as_tiles_with_tissue(tmp_path):
    pixels = np.full((768, 1024, 3), 240, np.uint8)
    pixels[128:384, 256:512] = (190, 110, 160)
    path = slide_files.plain(tmp_path / "a.tif", pixels, um_per_px=2.0)
    glass = slide_files.plain(tmp_path / "glass.tif", np.full_like(pixels, 240), um_per_px=2.0)
    tiles = {"size": 32, "um_per_px": 4.0}
    found = embed(slides_task(a=path, glass=glass), tiles=tiles, num_workers=1)
    slide = Slide(path)
    grid = tile_grid(slide, **tiles, tissue=True)
    assert 0 < len(grid) < len(tile_grid(slide, **tiles))
    shown = [Pictures.fromarray(np.moveaxis(one, 0, 2)) for one in read_tiles(slide, grid)]
    np.testing.assert_array_equal(found.rows("a"), Pixels(4).encode(shown))
    np.testing.assert_array_equal(found.coordinates("a"), grid.coordinates)
    assert [one.case_id for one in found.failures] == ["glass"]
    assert "glass.tif: no tile has tissue" in found.failures[0].message
    seen = Counting.seen
    assert embed(slides_task(a=path, glass=glass), tiles=tiles).computed == 0  # glass is not looked at again
    assert Counting.seen == seen
    few = embed(slides_task(a=path), tiles={**tiles, "limit": 3})
    assert few.counts() == [3]
    assert few.store.path != found.store.path
    assert found.store.path != embed(slides_task(a=path), tiles={**tiles, "tissue": False}).store.path


def test_volumes_are_shown_as_slices_anterior_up(tmp_path):
    array = np.zeros((4, 6, 3), np.float32)
    array[3, 5, 1] = 100
    nib.save(nib.Nifti1Image(array, np.diag([-1, 1, 1, 1])), tmp_path / "a.nii.gz")  # i goes to the patient's left
    seen = []

    class Kept(Pixels):
        def encode(self, pictures):
            seen.extend(np.asarray(one)[..., 0] for one in pictures)
            return super().encode(pictures)

    found = embed(task({"a": tmp_path / "a.nii.gz"}), Kept(2))
    assert found.counts() == [3]
    # The voxel lies at the patient's left, which is the picture's right, and in front, which is its top.
    assert [one.shape for one in seen] == [(6, 4)] * 3
    assert np.argwhere(seen[1] > 0).tolist() == [[0, 3]]
    assert not seen[0].any()
    windowed = embed(task({"a": tmp_path / "a.nii.gz"}), Kept(2), slices={"every": 2, "window": [100, 400]})
    assert windowed.counts() == [2]
    assert {int(one[0, 0]) for one in seen[3:]} == {64}  # 0 lies a quarter up in -100 to 300


def test_an_encoder_of_volumes_takes_them_whole(tmp_path):
    nib.save(nib.Nifti1Image(np.ones((4, 6, 3), np.float32), np.eye(4)), tmp_path / "a.nii.gz")

    class Volumes:
        takes = "volume"

        def embed(self, prompts):
            return [np.array([prompt.image.array.sum(), 1.0]) for prompt in prompts]

    found = embed(task({"a": tmp_path / "a.nii.gz"}), Volumes(), identity="v")
    assert found.rows("a").tolist() == [[72.0, 1.0]]


def test_patches_of_hest_are_tiles(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 200, (5, 8, 8, 3), np.uint8)
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["img"], file["coords"] = pixels, np.arange(10).reshape(5, 2)
        file["barcode"] = np.array([[b"b%d" % row] for row in range(5)])
    found = embed(task({"s": tmp_path / "s.h5"}))
    np.testing.assert_array_equal(found.rows("s"), Pixels(4).encode([Pictures.fromarray(one) for one in pixels]))
    assert found.coordinates("s")[1].tolist() == [3, 2]


def test_features_take_the_place_of_images(tmp_path):
    made = task({"a": picture(tmp_path / "a.png"), "b": tmp_path / "none.png"})
    found = embed(made)
    shown = [found.shown(case) for case in made.cases("test")]
    image = shown[0].images[0].read()
    assert (image.array.shape, image.attributes["holds"]) == ((1, 1, 16), "features")
    assert shown[0].images[0].geometry().shape == (1, 16)
    assert shown[0].files == made.cases("test")[0].files  # the data stay the same
    with pytest.raises(CaseError, match="none.png: no such file"):
        shown[1].images[0].read()


PIXELS = {"_target_": "medimg_eval.models.Pixels", "size": 4}


def sick_or_not(folder, split, count):
    """A table of dark pictures of healthy people, and of bright ones of sick people."""
    folder.mkdir(exist_ok=True)
    lines = ["image,patient,split,sick"]
    for number in range(count):
        name = f"{split}{number}.png"
        pixels = np.random.default_rng([len(lines), ord(split[0])]).integers(0, 60, (6, 6)) + 150 * (number % 2)
        Pictures.fromarray(pixels.astype(np.uint8)).save(folder / name)
        lines.append(f"{name},{split}{number},{split},{number % 2}")
    return lines


def test_a_probe_is_fitted_and_tested_on_features_that_are_there(tmp_path, caplog):
    lines = sick_or_not(tmp_path / "d", "fit", 8) + sick_or_not(tmp_path / "d", "test", 6)[1:]
    (tmp_path / "d" / "t.csv").write_text("\n".join(lines) + "\n")
    layout = {"root": str(tmp_path / "d"), "table": "t.csv", "image": "image", "split": "split", "patient": "patient"}
    target = {"_target_": "medimg_eval.data.targets.ClassColumns", "columns": {"sick": "sick"}}
    made = {
        "_target_": "medimg_eval.tasks.ClassificationTask",
        "name": "made",
        "layout": {"_target_": "medimg_eval.data.layouts.Table", **layout, "target": target},
        "metrics": ["auroc@macro"],
        "classes": ["sick"],
        "splits": {"fit": "fit", "test": "test"},
    }
    assert me.embed(made, PIXELS, parts="fit", num_workers=0).computed == 8
    probe = {"_target_": "medimg_eval.models.Probe", "encoder": PIXELS, "head": "logistic"}
    settings = {"runs": tmp_path / "runs", "num_workers": 0}
    with caplog.at_level("INFO", "medimg_eval.evaluation.fitting.embedding"):
        fitted = me.fit(made, probe, **settings)
        tested = me.test(made, {**probe, "checkpoint": str(fitted)}, **settings)
    told = [record.message for record in caplog.records if "were embedded" in record.message]
    assert [text.partition(" images")[0] for text in told] == ["0", "6"]
    assert len(tested.failures) == 0
    assert "1.000" in me.table([tested]).to_latex()  # bright and dark are told apart
    assert me.embed(made, PIXELS, num_workers=0).computed == 0


def test_where_files_lie_is_no_part_of_a_key(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    keys = set()
    for folder in (tmp_path, tmp_path / "elsewhere"):
        picture(folder / "a.png")
        (pieces,) = pieces_of(task({"a": folder / "a.png"}).cases("test"), ShownPlan()).values()
        keys.add(pieces[0].key)
    assert len(keys) == 1
    case = task({"a": tmp_path / "a.png"}).cases("test")[0]
    flipped = Case("a", (ImageFile(tmp_path / "a.png", options={"nan": 0.0}),), Sick())
    assert pieces_of([flipped], ShownPlan())["a"][0].key != pieces_of([case], ShownPlan())["a"][0].key


def test_settings_that_do_not_exist_are_refused(tmp_path):
    made = task({"a": picture(tmp_path / "a.png")})
    with pytest.raises(UsageError, match="gives no features: it has no method embed"):
        embed(made, "chance")
    with pytest.raises(UsageError, match=r"tiles has no key 'sise'; did you mean 'size'"):
        embed(made, tiles={"sise": 3})
    with pytest.raises(UsageError, match="tiles.size=8, tiles.overlap=8"):
        embed(made, tiles={"size": 8, "overlap": 8})
    with pytest.raises(UsageError, match="has no case 'z'"):
        embed(made, only="z")
    with pytest.raises(UsageError, match="has no part 'tset'"):
        embed(made, parts="tset")
    with pytest.raises(UsageError, match="got 'half'"):
        embed(made, dtype="half")
    assert embed(made, only=["a"], limit=1, out=tmp_path / "out").store.path.parent == tmp_path / "out"
    assert FeatureStore.open(next((tmp_path / "out").iterdir())).length == 16
