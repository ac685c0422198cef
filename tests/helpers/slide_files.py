"""Slides in the layouts scanners and programs write."""

import numpy as np
import tifffile

from medimg_eval.imaging.slides.reading import write_pyramid

RED, BLUE, GLASS = (200, 30, 40), (30, 40, 200), (240, 240, 240)


def squares(rows=768, columns=1024):
    """Glass with a red rectangle (rows 128-384, columns 256-512) and a blue one (rows 512-640, columns 640-896)."""
    pixels = np.full((rows, columns, 3), GLASS, np.uint8)
    pixels[128:384, 256:512] = RED
    pixels[512:640, 640:896] = BLUE
    return pixels


def noise(rows, columns, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (rows, columns, 3), np.uint8)


def plain(path, pixels=None, **options):
    pixels = squares() if pixels is None else pixels
    write_pyramid(path, pixels, **({"um_per_px": 0.5, "compression": "deflate", "tile": 128} | options))
    return path


def with_subifds(path, pixels, um_per_px=0.5):
    """The layout of OME-TIFF and of many converters: reduced levels hang below the first page."""
    levels = [pixels, pixels[::2, ::2], pixels[::4, ::4]]
    per_cm = 1e4 / um_per_px
    with tifffile.TiffWriter(path) as file:
        for index, level in enumerate(levels):
            file.write(
                level,
                tile=(128, 128),
                photometric="rgb",
                compression="deflate",
                subifds=len(levels) - 1 if index == 0 else None,
                subfiletype=min(index, 1),
                resolution=(per_cm / 2**index, per_cm / 2**index),
                resolutionunit="CENTIMETER",
                metadata=None,
            )
    return path


def aperio(path, pixels, mpp="0.5", *, label=False, jpeg=False):
    """The layout of an SVS file: a thumbnail in strips after the first level, label and macro at the end."""
    text = f"Aperio Image Library v12.0.5\n{pixels.shape[1]}x{pixels.shape[0]} |AppMag = 20|MPP = {mpp}"
    # Scanners store JPEG tiles in RGB as well as in YCbCr.
    coded = {"compression": "jpeg", "compressionargs": {"outcolorspace": "rgb"}} if jpeg else {"compression": "deflate"}
    tiled = {"tile": (128, 128), "photometric": "rgb", "metadata": None, **coded}
    strips = {"photometric": "rgb", "metadata": None, "compression": "lzw"}
    with tifffile.TiffWriter(path) as file:
        file.write(pixels, description=text, **tiled)
        file.write(pixels[::8, ::8], description=text, **strips)
        file.write(pixels[::4, ::4], description=text, **tiled)
        if label:
            for name, kind in (("label", 1), ("macro", 9)):
                picture = np.full((60, 40, 3), (255, 0, 255), np.uint8)
                file.write(
                    picture, description=f"Aperio Image Library v12.0.5\n{name} 40x60", subfiletype=kind, **strips
                )
    return path


LAYOUTS = {
    "pages": plain,
    "jpeg pages": lambda path, pixels: plain(path, pixels, compression="jpeg"),
    "subifds": with_subifds,
    "svs": aperio,
    "jpeg svs": lambda path, pixels: aperio(path, pixels, jpeg=True),
}
