"""Slides that are cut short, damaged or none, and what is asked of them that they do not hold."""

import contextlib
import sys

import numpy as np
import pytest
import tifffile
from slide_files import LAYOUTS, noise, plain

from medimg_eval.errors import CaseError, UsageError
from medimg_eval.imaging import read
from medimg_eval.imaging.slides.backends import TiffSlideBackend
from medimg_eval.imaging.slides.reading import Slide


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.8, 0.95, 0.999])
@pytest.mark.parametrize("compression", ["jpeg", "deflate", None])
def test_a_truncated_pyramid_is_refused(tmp_path, compression, kept):
    path = plain(tmp_path / "a.tif", noise(512, 512), compression=compression)
    content = path.read_bytes()
    (tmp_path / "cut.svs").write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(CaseError, match=r"cut\.svs: .*(past the end|cannot be opened as a slide)"):
        read(tmp_path / "cut.svs")


def test_a_damaged_tile_is_refused_and_the_others_are_still_read(tmp_path):
    pixels = noise(1024, 1024)
    path = plain(tmp_path / "a.tif", pixels)
    with tifffile.TiffFile(path) as file:
        start, length = file.pages.first.dataoffsets[-1], file.pages.first.databytecounts[-1]
    content = bytearray(path.read_bytes())
    content[start : start + length] = bytes(length)
    path.write_bytes(content)
    with Slide(path) as slide:
        for _ in range(2):
            np.testing.assert_array_equal(slide.read_region(0, 0, 100), pixels[:100, :100])
            with pytest.raises(CaseError, match=r"a\.tif: level 0 is damaged or cut short in its rows 900 to 1000"):
                slide.read_region(900, 900, 100)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.svs", b""),
        ("text.svs", b"not a slide at all"),
        ("head.ndpi", b"II*\0\x08\0\0\0"),
        ("page.mrxs", b"\0" * 64),
    ],
)
def test_what_is_no_slide_is_refused_by_name(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CaseError, match=name):
        read(tmp_path / name)


def test_a_refusal_says_what_was_tried_and_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "text.svs").write_bytes(b"not a slide at all")
    with pytest.raises(CaseError, match=r"openslide cannot open it.*tiffslide cannot open it.*wsidicom cannot open it"):
        read(tmp_path / "text.svs")
    monkeypatch.setitem(sys.modules, "wsidicom", None)
    with pytest.raises(CaseError, match=r"wsidicom is not installed.*pip install 'medimg-eval\[slides\]'"):
        read(tmp_path / "text.svs")


def test_tiffslide_refuses_what_is_not_8_bit_colour(tmp_path):
    deep = np.zeros((512, 512), np.uint16)
    tifffile.imwrite(tmp_path / "deep.tif", deep, tile=(128, 128), photometric="minisblack")
    with pytest.raises(ValueError, match="expected 8-bit RGB"):
        TiffSlideBackend(tmp_path / "deep.tif")


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"level": 9}, CaseError, "has levels 0 to 3, asked for 9"),
        ({"level": -1}, CaseError, "asked for -1"),
        ({"level": 1, "um_per_px": 1.0}, UsageError, "not both"),
        ({"um_per_px": 0.0}, CaseError, "above zero"),
        ({"region": ((0, 9999), (0, 10))}, CaseError, "holds rows 0 to 768"),
        ({"region": ((5, 5), (0, 10))}, CaseError, "rows 5 to 5"),
    ],
)
def test_options_that_cannot_be_met_are_refused(tmp_path, options, error, says):
    with pytest.raises(error, match=r"a\.tif: ") as caught:
        read(plain(tmp_path / "a.tif"), **options)
    assert says in str(caught.value)


def test_a_level_of_other_proportions_is_refused(tmp_path):
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        for index, shape in enumerate([(512, 640), (256, 128)]):
            pixels = noise(*shape)
            file.write(pixels, tile=(128, 128), photometric="rgb", subfiletype=index, metadata=None)
    with pytest.raises(
        CaseError, match=r"a\.tif: level 1 is 256 x 128, which is not level 0 \(512 x 640\) made smaller"
    ):
        read(tmp_path / "a.tif")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_changed_bytes_never_crash_the_reader(tmp_path, layout):
    rng = np.random.default_rng(0)
    whole = LAYOUTS[layout](tmp_path / "whole.tif", noise(200, 180)).read_bytes()
    path = tmp_path / "changed.svs"
    for _ in range(15):
        content = bytearray(whole)
        for place in rng.integers(0, 500, 3):
            content[place] = rng.integers(256)
        path.write_bytes(content)
        with contextlib.suppress(CaseError):
            assert read(path, region=((0, 20), (0, 20))).array.shape == (3, 20, 20)
