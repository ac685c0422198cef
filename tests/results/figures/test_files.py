"""How figures are written: fonts, bytes, sizes, colours, and names of any kind."""

import itertools
import re
import subprocess
import sys
import zlib
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from medimg_eval.results import figures
from medimg_eval.results.figures.style import BASELINE, PALETTE, look, wrapped
from tests.results.figures.test_figures import scores

ODD = "SAM $x^2$ <script>alert(1)</script> & \N{CJK UNIFIED IDEOGRAPH-4E2D}"


@pytest.fixture(scope="module")
def drawn():
    return figures.strip(
        scores({"nnU-Net": np.linspace(0, 1, 12), ODD: np.linspace(0.1, 0.9, 12)}), "dice", paired=True
    )


def test_a_figure_is_written_as_pdf_png_csv_and_caption_in_the_same_bytes_each_time(drawn, tmp_path):
    files = figures.write_figure(drawn, tmp_path / "one", "strip")
    again = figures.write_figure(drawn, tmp_path / "two", "strip")

    assert [file.name for file in files] == ["strip.pdf", "strip.png", "strip.csv", "strip.txt"]
    assert [file.read_bytes() for file in files] == [file.read_bytes() for file in again]
    pdf = files[0].read_bytes()
    assert b"CreationDate" not in pdf
    streams = [
        zlib.decompress(one)
        for one in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL)
        if one[:1] == b"x"
    ]
    whole = pdf + b"".join(streams)
    assert re.search(rb"/Subtype /(CIDFontType2|TrueType)", whole)
    assert b"/Type3" not in whole
    assert b"FontFile2" in whole
    with Image.open(files[1]) as picture:
        assert [round(one) for one in picture.info["dpi"]] == [300, 300]
        assert picture.width == pytest.approx(89 / 25.4 * 300, abs=1)
    assert files[2].read_text(encoding="utf-8") == drawn.csv()
    assert files[3].read_text(encoding="utf-8") == drawn.caption + "\n"


def test_widths_are_those_of_journals():
    frame = scores({"A": [0.1, 0.2]})

    for width, expected in (("single", 89), ("double", 183), (120, 120), ("95.5", 95.5)):
        assert figures.box(frame, "dice", width=width).size[0] == pytest.approx(expected)


def test_an_svg_holds_text_as_text_and_ids_of_its_own(drawn):
    text = figures.svg(drawn)

    assert text == figures.svg(drawn)
    root = ET.fromstring(text)  # noqa: S314 - our own
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "<script" not in text
    said = "".join(root.itertext())
    assert "<script>alert(1)" in said
    assert "$x^2$" in said
    ids = re.findall(r'\sid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', text))
    assert used <= set(ids)
    other = figures.svg(figures.box(scores({"A": [0.1, 0.2]}), "dice"))
    assert not set(ids) & set(re.findall(r'\sid="([^"]+)"', other))


def test_letters_that_the_font_lacks_are_spelled():
    assert wrapped("\N{CJK UNIFIED IDEOGRAPH-4E2D}x") == "<U+4E2D>x"


@settings(deadline=None, max_examples=30)
@given(st.text(st.sampled_from("abcXYZ019-_/. "), max_size=120), st.integers(5, 40))
def test_a_name_is_wrapped_without_losing_a_letter(name, letters):
    lines = wrapped(name, letters).split("\n")

    assert "".join("".join(lines).split()) == "".join(name.split())
    assert all(len(line.rstrip()) <= letters for line in lines)


def seen(colour, cones):
    """CIELAB of a colour as it is seen: Machado et al. 2009, on linear light."""
    code = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    light = np.clip(cones @ np.where(code <= 0.04045, code / 12.92, ((code + 0.055) / 1.055) ** 2.4), 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = (
        np.cbrt(one) if one > 0.008856 else 7.787 * one + 16 / 116
        for one in to_xyz @ light / np.array([0.95047, 1, 1.08883])
    )
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


DEUTERANOPIA = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
)


@pytest.mark.parametrize("cones", [np.eye(3), DEUTERANOPIA], ids=["all cones", "deuteranopia"])
def test_colours_can_be_told_apart(cones):
    apart = [
        np.linalg.norm(seen(one, cones) - seen(other, cones))
        for one, other in itertools.combinations([*PALETTE, BASELINE], 2)
    ]

    # 2.3 is what is just noticed side by side.
    assert min(apart) > 15


def test_models_differ_by_more_than_their_colour():
    assert len({look(place)[:2] for place in range(70)}) == 70
    for place in range(7):
        again = look(place), look(place + 7)
        assert again[0].colour == again[1].colour
        assert again[0].marker != again[1].marker
        assert again[0].line != again[1].line


def test_drawing_leaves_settings_as_they_are_and_ignores_them():
    import matplotlib as mpl

    frame = scores({"A": [0.1, 0.2, 0.9]})
    usual = figures.svg(figures.box(frame, "dice"))
    with mpl.rc_context({"font.size": 30, "axes.grid": True, "lines.linewidth": 9}):
        before = dict(mpl.rcParams)
        assert figures.svg(figures.box(frame, "dice")) == usual
        assert dict(mpl.rcParams) == before
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_results_are_imported_without_matplotlib():
    code = (
        "import sys; import medimg_eval.results, medimg_eval.results.figures, medimg_eval.commands.figure; "
        "sys.exit('matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
