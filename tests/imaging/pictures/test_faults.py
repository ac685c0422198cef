"""Pictures that are damaged, too large, or not what they say they are."""

import io
import struct
import zlib

import numpy as np
import pytest
from picture_files import png, random, saved, scene
from PIL import Image as Pillow

from medimg_eval import imaging
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.imaging.pictures import reading as pictures

imagecodecs = pytest.importorskip("imagecodecs")
tifffile = pytest.importorskip("tifffile")


ENCODINGS = [
    ("png", {}),
    ("jpg", {}),
    ("jpg", {"progressive": True}),
    ("bmp", {}),
    ("gif", {}),
    ("tif", {}),
    ("tif", {"compression": "tiff_lzw"}),
    ("tif", {"compression": "tiff_deflate"}),
]


@pytest.mark.parametrize(("suffix", "options"), ENCODINGS, ids=[f"{s}-{o}" for s, o in ENCODINGS])
def test_a_file_cut_anywhere_is_an_error_that_names_it(tmp_path, suffix, options):
    pixels = random((40, 56, 3))
    whole = io.BytesIO()
    Pillow.fromarray(pixels).save(whole, {"jpg": "jpeg", "tif": "tiff"}.get(suffix, suffix), **options)
    path = tmp_path / f"cut.{suffix}"
    for part in (0.02, 0.3, 0.6, 0.95):
        path.write_bytes(whole.getvalue()[: int(part * len(whole.getvalue()))])
        with pytest.raises(CaseError, match=rf"cut\.{suffix}: "):
            imaging.read(path)


def test_the_end_of_a_thumbnail_is_not_taken_for_the_end_of_the_jpeg(tmp_path):
    inner, outer = io.BytesIO(), io.BytesIO()
    Pillow.fromarray(scene(8, 8)).save(inner, "jpeg")
    Pillow.fromarray(scene()).save(outer, "jpeg", exif=b"Exif\0\0" + inner.getvalue())
    path = tmp_path / "p.jpg"
    path.write_bytes(outer.getvalue() + b"\xff\xda a trailer some cameras write")
    with Pillow.open(path) as image:
        assert np.array_equal(np.moveaxis(imaging.read(path).array, 0, -1), np.asarray(image))
    path.write_bytes(outer.getvalue()[:-40])
    with pytest.raises(CaseError, match=r"p\.jpg: is cut short"):
        imaging.read(path)


def test_a_flipped_bit_in_a_png_is_noticed(tmp_path):
    damaged = bytearray(saved(tmp_path / "p.png", random((40, 56))).read_bytes())
    damaged[len(damaged) // 2] ^= 4
    (tmp_path / "p.png").write_bytes(damaged)
    with pytest.raises(CaseError, match=r"p\.png: is cut short or damaged"):
        imaging.read(tmp_path / "p.png")


def test_what_the_tiff_library_complains_of_goes_with_the_image_and_not_to_the_screen(tmp_path, capsys):
    path = tmp_path / "p.tif"
    tifffile.imwrite(path, random((4, 6)), software="Doe^Jane")
    data = bytearray(path.read_bytes())
    data[data.find(struct.pack("<HH", 305, 2)) + 2] = 99  # a tag of a type that does not exist
    path.write_bytes(data)
    image = imaging.read(path)
    assert np.array_equal(image.array[0], random((4, 6)))
    assert any("tifffile: <TiffTag" in note for note in image.notes)
    assert "Doe" not in repr(image.notes)
    assert imaging.read_grid(path).shape == (4, 6)
    assert capsys.readouterr() == ("", "")


def test_bombs_are_refused_before_they_are_unpacked(tmp_path):
    # 20,000 x 20,000 pixels in the header, next to nothing behind it.
    bomb = bytearray(png(np.zeros((1, 1), np.uint8), 0, 8))
    bomb[16:24] = struct.pack(">II", 20_000, 20_000)
    bomb[29:33] = struct.pack(">I", zlib.crc32(bytes(bomb[12:29])))
    (tmp_path / "b.png").write_bytes(bomb)
    for call in (imaging.read, imaging.read_grid, imaging.read_mask):
        with pytest.raises(CaseError, match=r"b\.png: has more than 178,956,970 pixels"):
            call(tmp_path / "b.png")


def test_zero_bytes_no_file_and_wrong_options_are_one_sentence_each(tmp_path):
    path = saved(tmp_path / "p.png", scene())
    (tmp_path / "e.png").write_bytes(b"")
    with pytest.raises(CaseError, match=r"e\.png: is empty"):
        pictures.read([tmp_path / "e.png"])
    with pytest.raises(CaseError, match=r"n\.png: no such file"):
        pictures.read([tmp_path / "n.png"])
    with pytest.raises(CaseError, match=r"p\.png: has one page, so there is no page=1"):
        imaging.read(path, page=1)
    with pytest.raises(UsageError, match=r"p\.png: expected channels of"):
        imaging.read(path, channels="gray")
    with pytest.raises(CaseError, match=r"p\.png: expected one picture, got 2"):
        imaging.read([path, path])


def test_one_pixel_is_a_picture(tmp_path):
    for suffix in ("png", "jpg", "tif", "bmp"):
        assert imaging.read(saved(tmp_path / f"p.{suffix}", np.array([[7]], np.uint8))).array.tolist() == [[[7]]]


def test_a_picture_says_what_decoded_it_and_nothing_of_its_exif(tmp_path):
    exif = Pillow.Exif()
    exif[0x010E] = "Doe^Jane"
    image = imaging.read(saved(tmp_path / "p.jpg", scene(), exif=exif.tobytes()))
    assert set(image.attributes) == {"format", "decoder"}
    assert image.attributes["format"] == "JPEG"
    assert "Doe" not in repr(image.attributes) + repr(image.notes)


def test_a_decoder_that_finds_no_pixels_is_not_believed(tmp_path):
    whole = io.BytesIO()
    Pillow.fromarray(scene()).save(whole, "jpeg")
    data = bytearray(whole.getvalue())
    data[data.find(b"\xff\xc4") + 3] -= 1  # the length of a Huffman table: the decoder returns 0 x 0 pixels
    path = tmp_path / "p.jpg"
    path.write_bytes(data)
    with pytest.raises(CaseError, match=r"p\.jpg: is damaged: its header says 40 x 56 rows and columns, 0 x 0"):
        imaging.read(path)


def test_strips_that_a_tiff_lost_are_not_taken_for_black(tmp_path):
    path = tmp_path / "p.tif"
    tifffile.imwrite(path, random((40, 6)) | 1, rowsperstrip=10)
    data = bytearray(path.read_bytes())
    with tifffile.TiffFile(path) as file:
        tag = file.pages[0].tags["StripByteCounts"]
        size = tag.valuebytecount // tag.count
        data[tag.valueoffset + size : tag.valueoffset + 2 * size] = bytes(size)  # the second strip has no bytes
    path.write_bytes(data)
    with pytest.raises(CaseError, match=r"p\.tif: is damaged: some of its strips or tiles are missing"):
        imaging.read(path)


def test_a_description_never_reaches_an_error(tmp_path):
    path = tmp_path / "p.tif"
    tifffile.imwrite(path, random((4, 6)), description='{"shape": [4, 6]}       Doe^Jane')
    data = path.read_bytes().replace(b"[4, 6]}", b"[4, 6 ]")
    path.write_bytes(data)
    try:
        said = repr(imaging.read(path).notes)
    except CaseError as error:
        said = str(error)
    assert "Doe" not in said
