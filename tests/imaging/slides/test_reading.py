"""Slides made here, in the layouts scanners and programs write, read back at every level and size of pixel."""

import os
import pickle
import warnings

import numpy as np
import openslide
import pytest
import tifffile
import tiffslide
from hypothesis import given, settings
from hypothesis import strategies as st
from slide_files import BLUE, GLASS, LAYOUTS, RED, aperio, noise, plain, squares, with_subifds

from medimg_eval.errors import CaseError
from medimg_eval.imaging import read, read_grid, read_mask
from medimg_eval.imaging.slides.backends import OpenSlideBackend, TiffSlideBackend
from medimg_eval.imaging.slides.reading import Slide, is_slide, write_pyramid


@pytest.fixture(params=LAYOUTS)
def slide(request, tmp_path):
    return LAYOUTS[request.param](tmp_path / ("a.svs" if "svs" in request.param else "a.tif"), squares())


@pytest.mark.parametrize("um_per_px", [0.5, 0.7, 1.0, 1.9, 2.0, 3.1])
def test_a_place_has_its_colour_at_every_size_of_pixel(slide, um_per_px):
    with Slide(slide) as one:
        assert one.um_per_px == (0.5, 0.5)
        for (row, column), colour in {(256, 384): RED, (576, 768): BLUE, (64, 128): GLASS}.items():
            side = 8 * um_per_px / 0.5
            region = one.read_region(row - side / 2, column - side / 2, 8, um_per_px)
            assert region.shape == (8, 8, 3)
            np.testing.assert_allclose(region.reshape(-1, 3), np.full((64, 3), colour), atol=6)


@pytest.mark.parametrize("um_per_px", [1.0, 1.3, 2.0, 3.7])
def test_an_edge_lies_where_it_lay(slide, um_per_px):
    step = um_per_px / 0.5
    with Slide(slide) as one:
        region = one.read_region(128 - 10 * step, 256 - 10 * step, 40, um_per_px).astype(float)
    red = (240 - region[..., 1]) / 210  # 1 on the red rectangle, 0 on glass
    # The edge starts ten output pixels in, on both axes; how much is red says where to a tenth of a pixel.
    assert red[30, :].sum() == pytest.approx(30, abs=0.6)
    assert red[:, 30].sum() == pytest.approx(30, abs=0.6)
    assert red[30, :8].max() < 0.1
    assert red[30, 13:].min() > 0.9


def test_the_front_reads_a_slide_whole(slide):
    image = read(slide)
    assert image.array.shape == (3, 768, 1024)
    assert (image.array.dtype, image.modality, image.units) == (np.uint8, "SM", "mm")
    np.testing.assert_allclose(np.diag(image.affine), [0.0005, 0.0005, 1, 1])
    np.testing.assert_allclose(np.moveaxis(image.array, 0, 2)[256, 384], RED, atol=6)
    assert read_grid(slide).shape == (768, 1024)


def test_a_level_comes_as_it_is_stored(tmp_path):
    pixels = noise(512, 640)
    path = with_subifds(tmp_path / "a.tif", pixels)
    for level in range(3):
        image = read(path, level=level)
        np.testing.assert_array_equal(np.moveaxis(image.array, 0, 2), pixels[:: 2**level, :: 2**level])
        assert image.affine[0, 0] == pytest.approx(0.0005 * 2**level)
        assert read_grid(path, level=level).difference(image.geometry) is None


def test_a_level_of_odd_sizes_comes_as_it_is_stored(tmp_path):
    pixels = noise(701, 533)
    path = plain(tmp_path / "a.tif", pixels)
    with tifffile.TiffFile(path) as file:
        stored = [page.asarray() for page in file.pages]
    for level, expected in enumerate(stored):
        np.testing.assert_array_equal(np.moveaxis(read(path, level=level).array, 0, 2), expected)
    # Parts of it as well, although the libraries take places in level-0 pixels only.
    for backend in (OpenSlideBackend(path), TiffSlideBackend(path)):
        for level, expected in enumerate(stored[:3]):
            for row, column in ((0, 1), (33, 2), (57, 101), (120, 64)):
                part = backend.cut(level, row, column, 50, 30)
                np.testing.assert_array_equal(part, expected[row : row + 50, column : column + 30])
        backend.close()


@settings(deadline=None, max_examples=20)
@given(st.integers(-80, 300), st.integers(-80, 400), st.integers(1, 90), st.integers(1, 90))
def test_regions_past_the_border_have_the_background(tmp_path_factory, row, column, rows, columns):
    pixels = noise(200, 300)
    path = tmp_path_factory.getbasetemp() / "border.tif"
    if not path.exists():
        plain(path, pixels)
    with Slide(path) as slide:
        region = slide.read_region(row, column, (rows, columns))
        background = slide.background
    around = np.empty((900, 900, 3), np.uint8)
    around[:] = background
    around[200:400, 200:500] = pixels
    np.testing.assert_array_equal(region, around[200 + row :, 200 + column :][:rows, :columns])


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "subifds"])
def test_openslide_tiffslide_and_we_agree_pixel_for_pixel(tmp_path, layout):
    # Smooth colour, so that what a JPEG decoder does with chroma shows. Sizes that halve evenly: see below.
    rows, columns = np.mgrid[:768, :1024]
    waves = [127 + 120 * np.sin(rows / a + columns / b) for a, b in ((9, 31), (23, 7), (15, 40))]
    path = LAYOUTS[layout](tmp_path / f"a.{layout[-3:]}", np.stack(waves, axis=-1).astype(np.uint8))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = tiffslide.TiffSlide(path)
    with Slide(path) as slide, openslide.OpenSlide(path) as plain, other:
        for level, (one, size) in enumerate(zip(slide.levels, plain.level_dimensions, strict=True)):
            assert one.size == size[::-1]
            factor = round(one.downsample[0])
            for row, column, side in ((0, 0, 60), (7, 11, 90), (40, 30, 33), (60, 100, 130)):
                place = (column * factor, row * factor)
                ours = slide.read_region(*place[::-1], min(side, *size), downsample=factor)
                shape = ours.shape[1::-1]
                np.testing.assert_array_equal(
                    ours[: size[1] - row, : size[0] - column],
                    np.asarray(plain.read_region(place, level, shape).convert("RGB"))[
                        : size[1] - row, : size[0] - column
                    ],
                )
                np.testing.assert_array_equal(
                    ours[: size[1] - row, : size[0] - column],
                    other.read_region(place, level, shape, as_array=True)[: size[1] - row, : size[0] - column],
                )


def test_tiles_that_are_not_stored_have_the_background(tmp_path):
    pixels = noise(512, 512)
    path = plain(tmp_path / "a.tif", pixels)
    with tifffile.TiffFile(path, mode="r+") as file:
        counts = list(file.pages.first.databytecounts)
        counts[5] = 0  # second row, second column
        file.pages.first.tags["TileByteCounts"].overwrite(counts)
    expected = pixels.copy()
    expected[128:256, 128:256] = 255
    with Slide(path) as slide:
        np.testing.assert_array_equal(slide.read_region(0, 0, 512), expected)


def test_what_openslide_cannot_open_is_read_with_tiffslide(slide, monkeypatch):
    expected = read(slide, um_per_px=1.7)

    def refuse(path):
        raise openslide.OpenSlideUnsupportedFormatError("Unsupported or missing image file")

    monkeypatch.setattr(openslide, "OpenSlide", refuse)
    image = read(slide, um_per_px=1.7)
    np.testing.assert_allclose(image.array.astype(int), expected.array.astype(int), atol=1)
    assert any("openslide cannot open it" in note and "read with tiffslide" in note for note in image.notes)


def test_the_result_does_not_depend_on_how_it_is_cut_in_blocks(tmp_path, monkeypatch):
    path = plain(tmp_path / "a.tif", noise(700, 900))
    whole = read(path, um_per_px=1.3).array
    monkeypatch.setattr("medimg_eval.imaging.slides.slide.BLOCK", 100)
    np.testing.assert_allclose(read(path, um_per_px=1.3).array.astype(int), whole.astype(int), atol=1)


def test_a_region_is_given_in_level_0_pixels(slide):
    image = read(slide, um_per_px=1.0, region=((128, 384), (256, 512)))
    assert image.array.shape == (3, 128, 128)
    inside = np.moveaxis(image.array, 0, 2)[8:-8, 8:-8].reshape(-1, 3)
    np.testing.assert_allclose(inside, np.broadcast_to(RED, inside.shape), atol=6)
    assert read_grid(slide, um_per_px=1.0, region=((128, 384), (256, 512))).shape == (128, 128)


def test_a_slide_that_states_no_size_of_pixel_is_in_pixels(tmp_path):
    path = plain(tmp_path / "a.tif", um_per_px=None)
    image = read(path)
    assert image.units == "pixel"
    assert any("states no micrometres" in note for note in image.notes)
    with pytest.raises(CaseError, match=r"a\.tif: states no credible micrometres"):
        read(path, um_per_px=1.0)
    told = read(path, um_per_px=1.0, level0_um_per_px=0.25)
    assert told.array.shape == (3, 192, 256)


def test_dots_per_inch_of_a_screen_are_no_size_of_pixel(tmp_path):
    path = plain(tmp_path / "a.tif", um_per_px=25_400 / 72)
    image = read(path)
    assert image.units == "pixel"
    assert any("352.8 micrometres" in note for note in image.notes)


def test_a_header_that_lies_can_be_overruled_and_that_is_said(tmp_path):
    image = read(plain(tmp_path / "a.tif"), level0_um_per_px=0.25)
    assert image.affine[0, 0] == pytest.approx(0.00025)
    assert any("states 0.5 micrometres per pixel; 0.25 is used" in note for note in image.notes)


def test_pixels_finer_than_scanned_are_said(tmp_path):
    image = read(plain(tmp_path / "a.tif"), um_per_px=0.25, region=((100, 200), (200, 300)))
    assert image.array.shape == (3, 200, 200)
    assert any("finer than scanned" in note for note in image.notes)


def test_the_label_is_never_returned_and_its_presence_is_said(tmp_path):
    path = aperio(tmp_path / "a.svs", squares(), label=True)
    assert set(openslide.OpenSlide(path).associated_images) >= {"label", "macro"}
    image = read(path)
    assert image.array.shape == (3, 768, 1024)
    assert not (np.moveaxis(image.array, 0, 2) == (255, 0, 255)).all(axis=2).any()
    assert any("label and a macro" in note and "not read" in note for note in image.notes)
    assert image.attributes == {"vendor": "aperio", "objective": "20"}
    assert not read(aperio(tmp_path / "b.svs", squares())).notes


def test_a_large_slide_is_not_read_unasked(tmp_path, monkeypatch):
    path = plain(tmp_path / "a.tif")
    monkeypatch.setattr("medimg_eval.imaging.slides.reading.LIMIT", 500_000)
    for way in (read, read_grid):
        with pytest.raises(
            CaseError, match=r"a\.tif: holds 768 x 1024 pixels.*um_per_px, a region, or a level \(0: 768"
        ):
            way(path)
    assert read(path, level=1).array.shape == (3, 384, 512)


def test_a_child_process_and_its_parent_read_side_by_side(tmp_path):
    pixels = noise(1024, 1024)
    slide = Slide(plain(tmp_path / "a.tif", pixels))
    assert (slide.read_region(0, 0, 64) == pixels[:64, :64]).all()
    # Python warns of forks in a process with threads; none of ours holds a lock here.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    right = all((slide.read_region(r, r, 64) == pixels[r : r + 64, r : r + 64]).all() for r in range(0, 960, 30))
    if child == 0:
        os._exit(0 if right else 1)
    assert right
    assert os.waitpid(child, 0)[1] == 0


def test_a_slide_travels_by_pickle_and_opens_again_after_close(slide):
    one = Slide(slide)
    first = one.read_region(100, 200, 64)
    with pickle.loads(pickle.dumps(one)) as other:
        np.testing.assert_array_equal(other.read_region(100, 200, 64), first)
    one.close()
    with one:
        np.testing.assert_array_equal(one.read_region(100, 200, 64), first)


def test_a_grey_pyramid_is_read_as_labels(tmp_path):
    labels = np.zeros((512, 640), np.uint8)
    labels[100:300, 200:400] = 2
    with tifffile.TiffWriter(tmp_path / "mask.tif") as file:
        for index in range(2):
            reduced = labels[:: 2**index, :: 2**index]
            file.write(reduced, tile=(128, 128), compression="deflate", subfiletype=index, metadata=None)
    mask = read_mask(tmp_path / "mask.tif")
    np.testing.assert_array_equal(mask.labels, labels)
    small = read_mask(tmp_path / "mask.tif", um_per_px=1.7, level0_um_per_px=0.5)
    assert set(np.unique(small.labels)) == {0, 2}
    assert any("reduced level" in note for note in read_mask(tmp_path / "mask.tif", level=1).notes)
    with pytest.raises(CaseError, match=r"a\.tif: expected a label map in grey"):
        read_mask(plain(tmp_path / "a.tif"))


def test_a_pyramid_is_a_slide_and_a_small_tiled_picture_is_not(tmp_path, slide):
    assert is_slide(slide)
    tifffile.imwrite(tmp_path / "tiled.tif", squares(), tile=(128, 128), photometric="rgb")
    tifffile.imwrite(tmp_path / "strips.tif", squares(), photometric="rgb")
    tifffile.imwrite(tmp_path / "stack.tif", np.zeros((3, 256, 256), np.uint8), tile=(64, 64), photometric="minisblack")
    tifffile.imwrite(tmp_path / "large.tif", np.zeros((64, 4200), np.uint8), tile=(64, 64), photometric="minisblack")
    found = {name: is_slide(tmp_path / f"{name}.tif") for name in ("tiled", "strips", "stack", "large")}
    assert found == {"tiled": False, "strips": False, "stack": False, "large": True}


def test_pyramids_are_written_alike_every_time_and_open_with_their_size_of_pixel(tmp_path):
    for compression in ("jpeg", "deflate", None):
        first, second = (
            plain(tmp_path / f"{compression}{i}.tif", compression=compression, um_per_px=0.2525) for i in range(2)
        )
        assert first.read_bytes() == second.read_bytes()
        with openslide.OpenSlide(first) as slide:
            assert float(slide.properties["openslide.mpp-x"]) == pytest.approx(0.2525)
            assert slide.level_dimensions == ((1024, 768), (512, 384), (256, 192), (128, 96))


def test_pyramids_are_written_of_colour_bytes_only(tmp_path):
    with pytest.raises(ValueError, match="expected \\(row, column, 3\\) of uint8"):
        write_pyramid(tmp_path / "a.tif", np.zeros((4, 4), np.uint8), um_per_px=1)
    with pytest.raises(ValueError, match="multiple of 16"):
        write_pyramid(tmp_path / "a.tif", squares(), um_per_px=1, tile=100)
    assert not list(tmp_path.iterdir())
