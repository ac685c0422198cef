"""Pictures: every depth and colour model, compared with Pillow, OpenCV and the arrays they were written from."""

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from picture_files import png, random, saved, scene
from PIL import Image as Pillow

from medimg_eval import imaging
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.imaging.pictures import reading as pictures

imagecodecs = pytest.importorskip("imagecodecs")
tifffile = pytest.importorskip("tifffile")


def pillow(path, mode=None):
    with Pillow.open(path) as image:
        return np.asarray(image.convert(mode) if mode else image)


def upright(path):
    """Rows and columns last, channels last, for comparison with other libraries."""
    return np.moveaxis(imaging.read(path).array, 0, -1)


@settings(deadline=None, max_examples=25)
@given(
    pixels=st.sampled_from([np.uint8, np.uint16]).flatmap(
        lambda dtype: hnp.arrays(dtype, st.tuples(st.integers(1, 9), st.integers(1, 9), st.sampled_from([1, 3])))
    )
)
def test_a_png_of_8_or_16_bits_is_read_back_identically(pixels, tmp_path_factory):
    path = tmp_path_factory.mktemp("png") / "p.png"
    path.write_bytes(imagecodecs.png_encode(np.squeeze(pixels, 2) if pixels.shape[2] == 1 else pixels))
    image = imaging.read(path)
    assert image.array.dtype == pixels.dtype
    assert np.array_equal(np.moveaxis(image.array, 0, -1), pixels)
    assert image.units == "pixel"
    assert np.array_equal(image.affine, np.eye(4))
    assert imaging.read_grid(path).difference(image.geometry) is None
    assert image.notes == ()


def test_16_bit_colour_keeps_its_16_bits_where_pillow_reduces_it_to_8(tmp_path):
    pixels = random((5, 7, 3), np.uint16)
    path = tmp_path / "p.png"
    path.write_bytes(imagecodecs.png_encode(pixels))
    assert pillow(path).dtype == np.uint8
    assert np.array_equal(upright(path), pixels)


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_few_bits_spread_to_255_as_an_image_and_stay_numbers_as_a_mask(tmp_path, bits):
    stored = random((5, 11), np.uint8) % 2**bits
    path = tmp_path / "p.png"
    path.write_bytes(png(stored, 0, bits))
    assert np.array_equal(imaging.read(path).array[0], stored * (255 // (2**bits - 1)))
    assert np.array_equal(pillow(path, "L"), imaging.read(path).array[0])
    assert np.array_equal(imaging.read_mask(path).labels, stored)


def test_a_palette_gives_colours_as_an_image_and_indices_as_a_mask(tmp_path):
    indices = random((6, 8)) % 3
    picture = Pillow.fromarray(indices).convert("P")
    picture.putpalette([9, 8, 7, 255, 0, 0, 0, 0, 255])
    picture.save(tmp_path / "p.png")
    colours = np.array([[9, 8, 7], [255, 0, 0], [0, 0, 255]], np.uint8)
    assert np.array_equal(upright(tmp_path / "p.png"), colours[indices])
    assert np.array_equal(imaging.read_mask(tmp_path / "p.png").labels, indices)
    by_colour = imaging.read_mask(tmp_path / "p.png", colours={5: [255, 0, 0], 6: [0, 0, 255], 0: [9, 8, 7]})
    assert np.array_equal(by_colour.labels, np.array([0, 5, 6])[indices])


def test_an_interlaced_png_is_put_together_from_its_seven_passes():
    pixels = random((11, 13))
    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    parts = [pixels[y::down, x::right] for y, x, down, right in passes]
    data = png(pixels, 0, 8, interlaced=b"".join(b"\0" + row.tobytes() for part in parts for row in part))
    assert np.array_equal(pictures.decode(data, "p").array[0], pixels)


@pytest.mark.parametrize(("opaque", "hidden"), [(True, 0), (False, 3)])
def test_alpha_is_dropped_and_counted_where_it_hides_something(tmp_path, opaque, hidden):
    pixels = random((4, 5, 4))
    pixels[..., 3] = 255
    pixels[0, :3, 3] = 255 if opaque else (0, 10, 254)
    image = imaging.read(saved(tmp_path / "p.png", pixels))
    assert np.array_equal(np.moveaxis(image.array, 0, -1), pixels[..., :3])
    expected = () if opaque else (f"an alpha channel was dropped: {hidden} pixels were not fully opaque",)
    assert image.notes == expected


def test_grey_with_alpha_in_16_bits_gives_one_channel(tmp_path):
    pixels = random((4, 5, 2), np.uint16)
    (tmp_path / "p.png").write_bytes(imagecodecs.png_encode(pixels))
    image = imaging.read(tmp_path / "p.png")
    assert np.array_equal(image.array, pixels[None, ..., 0])
    assert "20 pixels" in image.notes[0]


def test_a_transparent_palette_entry_is_counted(tmp_path):
    picture = Pillow.fromarray(np.array([[0, 1, 1]], np.uint8)).convert("P")
    picture.putpalette([0, 0, 0, 1, 2, 3])
    picture.save(tmp_path / "p.gif", transparency=1)
    image = imaging.read(tmp_path / "p.gif")
    assert image.array[:, 0].T.tolist() == [[0, 0, 0], [1, 2, 3], [1, 2, 3]]
    assert "2 pixels" in image.notes[0]


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("progressive", [False, True])
def test_a_jpeg_has_the_pixels_pillow_and_opencv_find(tmp_path, subsampling, progressive):
    path = saved(tmp_path / "p.jpg", scene(), quality=80, subsampling=subsampling, progressive=progressive)
    assert np.array_equal(upright(path), pillow(path))
    cv2 = pytest.importorskip("cv2")
    assert np.array_equal(upright(path), cv2.imread(str(path))[..., ::-1])


def test_a_grey_jpeg_has_one_channel(tmp_path):
    path = saved(tmp_path / "p.jpg", scene()[..., 0])
    assert np.array_equal(imaging.read(path).array[0], pillow(path))


def test_cmyk_becomes_rgb_close_to_what_was_written_and_says_so(tmp_path):
    rgb = scene()
    Pillow.fromarray(rgb).convert("CMYK").save(tmp_path / "p.jpg", quality=100, subsampling=0)
    image = imaging.read(tmp_path / "p.jpg")
    assert np.abs(np.moveaxis(image.array, 0, -1).astype(int) - rgb).max() < 8
    assert image.notes == ("its CMYK inks were turned into RGB without a colour profile",)
    cv2 = pytest.importorskip("cv2")
    assert np.abs(upright(tmp_path / "p.jpg").astype(int) - cv2.imread(str(tmp_path / "p.jpg"))[..., ::-1]).max() <= 1


@pytest.mark.parametrize("suffix", ["jpg", "png"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_each_exif_orientation_is_applied_as_pillow_applies_it(tmp_path, orientation, suffix):
    from PIL import ImageOps

    exif = Pillow.Exif()
    exif[274] = orientation
    path = saved(tmp_path / f"p.{suffix}", scene(), exif=exif.tobytes())
    image = imaging.read(path)
    with Pillow.open(path) as stored:
        turned = ImageOps.exif_transpose(stored)
    assert np.array_equal(np.moveaxis(image.array, 0, -1), np.asarray(turned))
    assert imaging.read_grid(path).shape == image.array.shape[1:]
    assert bool(image.notes) == (orientation > 1)


def test_an_orientation_behind_the_pixels_of_a_png_is_found(tmp_path):
    exif = Pillow.Exif()
    exif[274] = 6
    content = exif.tobytes()[6:]
    chunk = struct.pack(">I", len(content)) + b"eXIf" + content + struct.pack(">I", zlib.crc32(b"eXIf" + content))
    path = saved(tmp_path / "p.png", scene())
    data = path.read_bytes()
    path.write_bytes(data[:-12] + chunk + data[-12:])
    assert np.array_equal(upright(path), np.rot90(scene(), -1))
    assert imaging.read_grid(path).shape == (56, 40)


def test_the_12_bit_jpegs_pillow_cannot_open_are_read_in_full_depth(tmp_path):
    pixels = scene()[..., 0].astype(np.uint16) * 16
    path = tmp_path / "p.jpg"
    path.write_bytes(imagecodecs.jpeg8_encode(pixels, level=100, bitspersample=12))
    with pytest.raises(OSError, match="identify"):
        Pillow.open(path)
    image = imaging.read(path)
    assert image.array.dtype == np.uint16
    assert np.abs(image.array[0].astype(int) - pixels).max() < 16
    assert imaging.read_grid(path).shape == pixels.shape


@pytest.mark.parametrize("compression", [None, "lzw", "zlib", "packbits", "zstd"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int16, np.uint32, np.float32, np.float64])
def test_a_tiff_keeps_its_dtype_under_every_compression(tmp_path, dtype, compression):
    pixels = (random((9, 13), np.uint16) % 200).astype(dtype)
    tifffile.imwrite(tmp_path / "p.tif", pixels, compression=compression, byteorder=">")
    image = imaging.read(tmp_path / "p.tif")
    assert image.array.dtype == dtype
    assert np.array_equal(image.array[0], pixels)
    assert imaging.read_grid(tmp_path / "p.tif").shape == (9, 13)


@pytest.mark.parametrize("planar", ["contig", "separate"])
def test_both_planar_configurations_give_channels_first(tmp_path, planar):
    pixels = random((5, 7, 3), np.uint16)
    stored = pixels if planar == "contig" else np.moveaxis(pixels, -1, 0)
    tifffile.imwrite(tmp_path / "p.tif", stored, photometric="rgb", planarconfig=planar)
    assert np.array_equal(imaging.read(tmp_path / "p.tif").array, np.moveaxis(pixels, -1, 0))


def test_a_jpeg_compressed_tiff_agrees_with_pillow(tmp_path):
    Pillow.fromarray(scene(48, 64)).save(tmp_path / "p.tif", compression="jpeg")
    assert np.array_equal(upright(tmp_path / "p.tif"), pillow(tmp_path / "p.tif"))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_a_tiff_that_stores_white_as_0_is_inverted_and_says_so(tmp_path, dtype):
    pixels = random((4, 6), dtype)
    tifffile.imwrite(tmp_path / "p.tif", pixels, photometric="miniswhite")
    image = imaging.read(tmp_path / "p.tif")
    assert np.array_equal(image.array[0], np.iinfo(dtype).max - pixels)
    assert image.notes == ("stores white as 0; was inverted",)


@pytest.mark.parametrize("compression", ["raw", "group4"])
def test_a_1_bit_tiff_is_0_and_255_as_an_image_and_0_and_1_as_a_mask(tmp_path, compression):
    bits = random((6, 9), bool)
    saved(tmp_path / "p.tif", bits, compression=compression)
    assert np.array_equal(imaging.read(tmp_path / "p.tif").array[0], bits * np.uint8(255))
    assert np.array_equal(imaging.read_mask(tmp_path / "p.tif").labels, bits)


def test_a_palette_tiff_gives_the_colours_of_its_table(tmp_path):
    indices, table = random((4, 6)), random((3, 256), np.uint16)
    tifffile.imwrite(tmp_path / "p.tif", indices, photometric="palette", colormap=table)
    assert np.array_equal(imaging.read(tmp_path / "p.tif").array, (table >> 8)[:, indices])
    assert np.array_equal(imaging.read_mask(tmp_path / "p.tif").labels, indices)


def test_an_orientation_tag_of_a_tiff_is_applied(tmp_path):
    pixels = random((4, 6))
    tifffile.imwrite(tmp_path / "p.tif", pixels, extratags=[(274, 3, 1, 6, True)])
    assert np.array_equal(imaging.read(tmp_path / "p.tif").array[0], np.rot90(pixels, -1))
    assert imaging.read_grid(tmp_path / "p.tif").shape == (6, 4)


def test_a_tiff_of_several_pages_wants_to_know_which(tmp_path):
    pages = random((3, 4, 6))
    path = tmp_path / "p.tif"
    tifffile.imwrite(path, pages, photometric="minisblack")
    with pytest.raises(CaseError, match=r"p\.tif: has 3 pages; say which"):
        imaging.read(path)
    with pytest.raises(CaseError, match=r"p\.tif: has 3 pages, counted from 0, so there is no page=3"):
        imaging.read(path, page=3)
    assert np.array_equal(imaging.read(path, page=2).array[0], pages[2])
    assert imaging.read_grid(path, page=2).shape == (4, 6)


def test_a_stack_hidden_behind_one_page_is_refused(tmp_path):
    path = tmp_path / "p.tif"
    tifffile.imwrite(path, random((3, 4, 6)), photometric="minisblack", truncate=True)
    with pytest.raises(CaseError, match=r"p\.tif: holds a stack"):
        imaging.read(path)


@pytest.mark.parametrize("suffix", ["bmp", "gif"])
def test_bmp_and_gif_agree_with_pillow(tmp_path, suffix):
    path = saved(tmp_path / f"p.{suffix}", scene())
    assert np.array_equal(upright(path), pillow(path, "RGB"))


def test_only_the_first_frame_of_a_gif_is_read_and_that_is_said(tmp_path):
    frames = [Pillow.fromarray(np.full((4, 4), value, np.uint8)) for value in (10, 20, 30)]
    frames[0].save(tmp_path / "p.gif", save_all=True, append_images=frames[1:])
    image = imaging.read(tmp_path / "p.gif")
    assert (image.array == 10).all()
    assert image.notes == ("holds 3 frames; the first was read",)


def test_grey_takes_one_of_equal_channels_and_the_luma_of_coloured_ones(tmp_path):
    grey = scene()[..., 0]
    equal = imaging.read(saved(tmp_path / "e.png", np.repeat(grey[..., None], 3, 2)), channels="grey")
    assert np.array_equal(equal.array[0], grey)
    assert equal.notes == ()
    coloured = imaging.read(saved(tmp_path / "c.png", scene()), channels="grey")
    assert np.array_equal(coloured.array[0], np.asarray(Pillow.fromarray(scene()).convert("L")))
    assert "luma" in coloured.notes[0]
    assert imaging.read(saved(tmp_path / "g.png", grey), channels="rgb").array.shape == (3, *grey.shape)


def test_masks_follow_threshold_foreground_and_stored_values(tmp_path):
    values = np.array([[0, 1, 127], [128, 200, 255]], np.uint8)
    path = saved(tmp_path / "m.png", values)
    assert imaging.read_mask(path).labels.tolist() == values.tolist()
    assert "smoothed" in imaging.read_mask(path).notes[0]
    assert imaging.read_mask(path, threshold=128).labels.tolist() == [[0, 0, 0], [1, 1, 1]]
    assert imaging.read_mask(path, foreground=True).labels.tolist() == [[0, 1, 1], [1, 1, 1]]
    assert imaging.read_grid(path, threshold=128, foreground=False, colours=None).shape == (2, 3)
    with pytest.raises(UsageError, match=r"m\.png: expected one of threshold"):
        imaging.read_mask(path, threshold=128, foreground=True)


def test_a_threshold_that_nothing_reaches_is_doubted(tmp_path):
    mask = imaging.read_mask(saved(tmp_path / "m.png", np.array([[0, 1]], np.uint8)), threshold=128)
    assert mask.labels.tolist() == [[0, 0]]
    assert "the highest is 1" in mask.notes[0]


def test_a_noisy_jpeg_mask_is_refused_until_it_has_a_threshold(tmp_path):
    truth = np.zeros((32, 32), np.uint8)
    truth[5:20, 7:23] = 255
    path = saved(tmp_path / "m.jpg", truth, quality=60)
    with pytest.raises(CaseError, match=r"m\.jpg: is a JPEG of \d+ different values.*threshold=128"):
        imaging.read_mask(path)
    assert np.array_equal(imaging.read_mask(path, threshold=128).labels, truth // 255)
    assert not imaging.read_mask(saved(tmp_path / "e.jpg", np.zeros((16, 16), np.uint8))).labels.any()


def test_an_rgb_mask_needs_equal_channels_or_the_meaning_of_its_colours(tmp_path):
    pixels = np.zeros((2, 3, 3), np.uint8)
    pixels[0, 1], pixels[1, 2] = (255, 0, 0), (0, 255, 0)
    path = saved(tmp_path / "m.png", pixels)
    with pytest.raises(CaseError, match=r"m\.png: expected a label map of one channel.*colours="):
        imaging.read_mask(path)
    mask = imaging.read_mask(path, colours={1: [255, 0, 0], 2: [0, 255, 0]})
    assert mask.labels.tolist() == [[0, 1, 0], [0, 0, 2]]
    with pytest.raises(CaseError, match=r"m\.png: 1 pixels have colours.*\[0, 255, 0\]; add them"):
        imaging.read_mask(path, colours={1: [255, 0, 0]})
    with pytest.raises(UsageError, match=r"m\.png: expected colours of three numbers"):
        imaging.read_mask(path, colours={1: [255, 0, 0], 2: [255, 0, 0]})
    equal = saved(tmp_path / "e.png", np.repeat(np.array([[[0], [7]]], np.uint8), 3, axis=2))
    assert imaging.read_mask(equal).labels.tolist() == [[0, 7]]


def test_float_labels_are_taken_when_whole_and_refused_otherwise(tmp_path):
    tifffile.imwrite(tmp_path / "m.tif", np.array([[0, 3]], np.float32))
    assert imaging.read_mask(tmp_path / "m.tif").labels.dtype == np.uint8
    tifffile.imwrite(tmp_path / "p.tif", np.array([[0, 0.5]], np.float32))
    with pytest.raises(CaseError, match=r"p\.tif: expected whole-number labels"):
        imaging.read_mask(tmp_path / "p.tif")


def test_bytes_are_decoded_like_files(tmp_path):
    path = saved(tmp_path / "p.png", scene())
    image = pictures.decode(path.read_bytes(), "row 3 of table.parquet")
    assert np.array_equal(image.array, imaging.read(path).array)
    with pytest.raises(CaseError, match="^row 3 of table.parquet: is empty"):
        pictures.decode(b"", "row 3 of table.parquet")
    with pytest.raises(CaseError, match="^row 4 of table.parquet: is cut short or damaged"):
        pictures.decode(b"no picture at all", "row 4 of table.parquet")
