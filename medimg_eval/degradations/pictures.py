"""Degradations of pictures with MedMNIST-C's parameters, and the grey, blurred and noisy images of earlier versions."""

from __future__ import annotations

import zlib
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from medimg_eval.case import Array, Image
from medimg_eval.degradations.declaration import degradation
from medimg_eval.degradations.drawing import standard_normal, uniform, whole
from medimg_eval.degradations.scaling import (
    AT_ONCE,
    as_unit,
    by_bytes,
    by_picture,
    extent,
    from_unit,
    smoothed,
    stored_as,
    through_jpeg,
    through_table,
)
from medimg_eval.errors import import_optional

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

_MEDMNISTC = "MedMNIST-C, Di Salvo et al. 2024, arXiv 2406.17536; levels of "
_picture = partial(degradation, axes=2)

NOISE = 0.04
"""Standard deviation of `noise` at severity 1, as a fraction of the image's range."""


@degradation(
    "grey",
    draws=False,
)
def grey(image: Image, draw: np.random.Generator, *, severity: int) -> Array:
    """Grey pixels of the same size: 128 of 8-bit pictures, 0 of others."""
    return np.full_like(image.array, 128 if image.array.dtype == np.uint8 else 0)


@degradation("blur", draws=False, unit="standard deviation in pixels")
def blur(image: Image, draw: np.random.Generator, *, severity: int) -> Array:
    """Gaussian blur along every spatial axis; sigma is the severity in pixels."""
    return _restore_range(image.array, smoothed(image.array, [severity] * (image.array.ndim - 1)))


@degradation("noise", draws=False, unit="4 % of the range for each degree")
def noise(image: Image, draw: np.random.Generator, *, severity: int) -> Array:
    """Gaussian noise, sigma `NOISE` of the range per degree.

    The same for the same image.
    """
    array = image.array
    # Its draws rest on the pixels, as they did before draws had keys: stored runs go on.
    rng = np.random.default_rng(zlib.crc32(np.ascontiguousarray(array).tobytes()))
    width = float(array.max()) - float(array.min())
    return _restore_range(array, array + rng.normal(0, NOISE * severity * width, array.shape))


def _restore_range(array: Array, pixels: Array) -> Array:
    if np.issubdtype(array.dtype, np.integer):
        pixels = np.clip(np.rint(pixels), array.min(), array.max())
    return pixels.astype(array.dtype)


@degradation(
    "gaussian_noise",
    levels={"sd": (0.04, 0.08, 0.12, 0.18, 0.26)},
    unit="standard deviation, share of the range",
    source=_MEDMNISTC + "derma and chest",
)
def gaussian_noise(image: Image, draw: np.random.Generator, *, sd: float) -> Array:
    """Additive Gaussian noise."""
    return from_unit(image, as_unit(image) + sd * standard_normal(draw, image))


@degradation(
    "speckle_noise",
    levels={"sd": (0.05, 0.15, 0.2, 0.35, 0.45)},
    unit="standard deviation of the factor",
    source=_MEDMNISTC + "derma and chest",
)
def speckle_noise(image: Image, draw: np.random.Generator, *, sd: float) -> Array:
    """Multiplicative Gaussian noise: x + x n."""
    pixels = as_unit(image)
    return from_unit(image, pixels + pixels * (sd * standard_normal(draw, image)))


@degradation(
    "impulse_noise",
    levels={"amount": (0.01, 0.03, 0.06, 0.09, 0.17)},
    unit="share of pixels",
    source=_MEDMNISTC + "derma and chest",
)
def impulse_noise(image: Image, draw: np.random.Generator, *, amount: float) -> Array:
    """Salt and pepper noise in equal parts, nested by severity."""
    hit = uniform(draw, image) <= amount
    salt = uniform(draw, image) <= 0.5
    return from_unit(image, np.where(hit, salt, as_unit(image)))


@degradation(
    "shot_noise",
    levels={"photons": (60, 25, 18, 10, 5)},
    unit="photons at the largest value",
    source=_MEDMNISTC + "derma and chest",
)
def shot_noise(image: Image, draw: np.random.Generator, *, photons: float) -> Array:
    """Poisson noise of so many photons."""
    pixels = np.moveaxis(as_unit(image), 0, -1)
    return from_unit(image, np.moveaxis(draw.poisson(pixels * photons) / photons, -1, 0))


@degradation(
    "pixelate",
    draws=False,
    levels={"factor": (0.8, 0.6, 0.4, 0.3, 0.25)},
    unit="factor of the size",
    source=_MEDMNISTC + "path",
)
def pixelate(image: Image, draw: np.random.Generator, *, factor: float) -> Array:
    """Fewer, larger pixels: means of boxes, in the size of before."""
    from PIL import Image as Pillow

    def change(picture: Picture) -> Picture:
        fewer = [max(int(size * factor), 1) for size in picture.size]
        # Where each new pixel shows one of the fewer ones, nearest neighbours give the same in a third of the time.
        is_regular = all(_repeats_pixels(*sizes) for sizes in zip(fewer, picture.size, strict=True))
        back = Pillow.Resampling.NEAREST if is_regular else Pillow.Resampling.BOX
        return picture.resize((fewer[0], fewer[1]), Pillow.Resampling.BOX).resize(picture.size, back)

    return by_picture(image, change)


@lru_cache(maxsize=256)
def _repeats_pixels(few: int, many: int) -> bool:
    """Whether Pillow's boxes enlarge a line by showing its nearest pixels."""
    from PIL import Image as Pillow

    line = Pillow.fromarray(np.arange(few, dtype=np.float32)[None])
    boxes, nearest = (
        np.asarray(line.resize((many, 1), way)) for way in (Pillow.Resampling.BOX, Pillow.Resampling.NEAREST)
    )
    return bool((boxes == nearest).all())


@degradation(
    "jpeg",
    draws=False,
    levels={"quality": (50, 30, 15, 10, 7)},
    unit="quality of Pillow's encoder",
    source=_MEDMNISTC + "path",
)
def jpeg(image: Image, draw: np.random.Generator, *, quality: int) -> Array:
    """JPEG compression."""
    return by_picture(image, lambda picture: through_jpeg(picture, quality=quality))


def _blend_table(grey: int, factor: float) -> Array:
    """Returns Pillow's blend of a grey with each value, (256,) uint8."""
    from PIL import Image as Pillow

    ramp = Pillow.fromarray(np.arange(256, dtype=np.uint8)[None])
    return np.asarray(Pillow.blend(Pillow.new("L", ramp.size, grey), ramp, factor)).reshape(-1)


GREY_WEIGHTS = (19595, 38470, 7471)
"""Of red, green and blue in Pillow's greys, over 2^16."""


def _mean_grey(pixels: Array) -> int:
    """Returns the rounded mean grey of Pillow's contrast enhancer."""
    if len(pixels) == 1:
        return int(int(pixels.sum(dtype=np.uint64)) / pixels.size + 0.5)
    total, rows = 0, max(1, AT_ONCE // pixels.shape[2])
    for start in range(0, pixels.shape[1], rows):
        red, green, blue = pixels[:, start : start + rows]
        grey = red * np.uint32(GREY_WEIGHTS[0])
        grey += green * np.uint32(GREY_WEIGHTS[1])
        grey += blue * np.uint32(GREY_WEIGHTS[2])
        grey += np.uint32(0x8000)
        grey >>= np.uint32(16)
        total += int(grey.sum())
    return int(total / pixels[0].size + 0.5)


_FACTOR = "factor; 1 changes nothing"


@degradation(
    "brightness_up",
    draws=False,
    levels={"factor": (1.1, 1.2, 1.3, 1.4, 1.5)},
    unit=_FACTOR,
    source=_MEDMNISTC + "derma and chest",
)
@degradation(
    "brightness_down",
    draws=False,
    levels={"factor": (0.9, 0.8, 0.7, 0.6, 0.5)},
    unit=_FACTOR,
    source=_MEDMNISTC + "derma and chest",
)
def brightness(image: Image, draw: np.random.Generator, *, factor: float) -> Array:
    """Brightness times a factor."""
    table = _blend_table(0, factor)
    return by_bytes(image, lambda pixels: through_table(pixels, table))


@degradation(
    "contrast_up",
    draws=False,
    levels={"factor": (1.1, 1.2, 1.3, 1.4, 1.6)},
    unit=_FACTOR,
    source=_MEDMNISTC + "path and chest",
)
@degradation(
    "contrast_down",
    draws=False,
    levels={"factor": (0.9, 0.8, 0.7, 0.6, 0.4)},
    unit=_FACTOR,
    source=_MEDMNISTC + "chest",
)
def contrast(image: Image, draw: np.random.Generator, *, factor: float) -> Array:
    """Contrast about the picture's mean grey times a factor."""
    return by_bytes(image, lambda pixels: through_table(pixels, _blend_table(_mean_grey(pixels), factor)))


@degradation(
    "gamma_up",
    draws=False,
    levels={"exponent": (1.1, 1.2, 1.3, 1.4, 1.6)},
    unit="exponent",
    source=_MEDMNISTC + "chest",
)
@degradation(
    "gamma_down",
    draws=False,
    levels={"exponent": (0.9, 0.8, 0.7, 0.6, 0.4)},
    unit="exponent",
    source=_MEDMNISTC + "chest",
)
def gamma(image: Image, draw: np.random.Generator, *, exponent: float) -> Array:
    """Gamma: normalised values to the power of an exponent."""
    if image.array.dtype != np.uint8:
        return from_unit(image, as_unit(image) ** np.float32(exponent))
    # torchvision's table, whose factor just below 256 decides how values are cut off.
    table = np.array([int((256 - 1e-3) * (value / 255.0) ** exponent) for value in range(256)], dtype=np.uint8)
    return through_table(image.array, table)


@_picture(
    "saturate",
    draws=False,
    levels={"added": (0.05, 0.1, 0.15, 0.2, 0.25)},
    unit="added to the saturation of HSV",
    source=_MEDMNISTC + "path",
)
def saturate(image: Image, draw: np.random.Generator, *, added: float) -> Array:
    """More saturated colours; a picture without colours stays as it is."""
    from skimage.color import hsv2rgb, rgb2hsv

    if image.array.shape[0] != 3:
        return image.array
    colours = rgb2hsv(np.moveaxis(as_unit(image), 0, -1))
    colours[..., 1] = np.clip(colours[..., 1] + added, 0, 1)
    return from_unit(image, np.moveaxis(hsv2rgb(colours), -1, 0))


@degradation(
    "gaussian_blur",
    draws=False,
    levels={"kernel": (3, 5, 7, 9, 11)},
    unit="edge of the kernel in pixels; standard deviation 0.15 (kernel - 1) + 0.35",
    source=_MEDMNISTC + "chest",
)
def gaussian_blur(image: Image, draw: np.random.Generator, *, kernel: int) -> Array:
    """Gaussian blur in the plane, as torchvision.

    The kernel has so many pixels, and borders are reflected.
    """
    from scipy.ndimage import correlate1d

    sd = 0.3 * ((kernel - 1) * 0.5 - 1) + 0.8
    line = np.exp(-0.5 * (np.linspace(-(kernel - 1) / 2, (kernel - 1) / 2, kernel) / sd) ** 2)
    pixels = image.array.astype(np.float32)
    for axis in (1, 2):
        pixels = correlate1d(pixels, line / line.sum(), axis=axis, mode="mirror")
    return stored_as(image, pixels)


def _make_disk(radius: float, alias: float) -> Array:
    from scipy.ndimage import correlate1d

    reach, size = (8, 3) if radius <= 8 else (int(radius), 5)
    steps = np.arange(-reach, reach + 1)
    disk: Array = (steps[:, None] ** 2 + steps**2 <= radius**2).astype(np.float32)
    line = np.exp(-0.5 * ((np.arange(size) - size // 2) / alias) ** 2)
    disk = disk / disk.sum()
    for axis in (0, 1):
        disk = correlate1d(disk, line / line.sum(), axis=axis, mode="mirror")
    return disk


@_picture(
    "defocus_blur",
    draws=False,
    levels={"radius": (3, 4, 5, 6, 7), "alias": (0.1, 0.1, 0.2, 0.2, 0.3)},
    unit="radius of the disk in pixels; standard deviation of what smooths its edge",
    source=_MEDMNISTC + "path",
)
def defocus_blur(image: Image, draw: np.random.Generator, *, radius: float, alias: float) -> Array:
    """Blur by a disk."""
    return from_unit(image, _filter_channels(as_unit(image), _make_disk(radius, alias)))


def _filter_channels(pixels: Array, kernel: Array) -> Array:
    """Correlates each channel with a kernel, reflecting borders."""
    cv2 = import_optional("cv2")
    return np.stack([cv2.filter2D(np.ascontiguousarray(channel), -1, kernel) for channel in pixels])


@_picture(
    "motion_blur",
    levels={"radius": (5, 10, 15, 15, 15), "sigma": (5, 5, 5, 8, 12)},
    unit="reach and standard deviation in pixels",
    source=_MEDMNISTC + "path",
)
def motion_blur(image: Image, draw: np.random.Generator, *, radius: float, sigma: float) -> Array:
    """Motion blur to one side, up to 45 degrees, as ImageMagick."""
    return stored_as(image, _moved_blur(image.array.astype(np.float32), radius, sigma, draw.uniform(-45, 45)))


def _moved_blur(pixels: Array, radius: float, sigma: float, degrees: float) -> Array:
    width = 2 * int(np.ceil(radius)) + 1
    steps = np.arange(width)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    weights /= weights.sum()
    angle = np.radians(degrees)
    right = np.ceil(steps * np.cos(angle) - 0.5).astype(int)
    down = np.ceil(steps * np.sin(angle) - 0.5).astype(int)
    _, height, breadth = pixels.shape
    blurred = np.zeros_like(pixels)
    for weight, across, along in zip(weights, right, down, strict=True):
        rows = np.clip(np.arange(height) + along, 0, height - 1)
        columns = np.clip(np.arange(breadth) + across, 0, breadth - 1)
        blurred += np.float32(weight) * pixels[:, rows[:, None], columns]
    return blurred


@_picture(
    "zoom_blur",
    draws=False,
    levels={"largest": (1.11, 1.16, 1.21, 1.26, 1.31), "step": (0.01, 0.01, 0.02, 0.02, 0.03)},
    unit="end and step of the zoom factors, from 1",
    source=_MEDMNISTC + "derma",
)
def zoom_blur(image: Image, draw: np.random.Generator, *, largest: float, step: float) -> Array:
    """The mean of the picture and of itself at growing zoom."""
    pixels = np.moveaxis(as_unit(image), 0, -1).astype(np.float32)
    factors = np.arange(1, largest, step)
    total = np.zeros_like(pixels)
    for factor in factors:
        total += _zoom_picture(pixels, float(factor))
    return from_unit(image, np.moveaxis((pixels + total) / (len(factors) + 1), -1, 0))


def _zoom_picture(pixels: Array, factor: float) -> Array:
    from scipy.ndimage import zoom

    height, width = pixels.shape[:2]
    inner = [int(np.ceil(size / factor)) for size in (height, width)]
    top, left = (height - inner[0]) // 2, (width - inner[1]) // 2
    large = zoom(pixels[top : top + inner[0], left : left + inner[1]], (factor, factor, 1), order=1)
    first, second = (large.shape[0] - height) // 2, (large.shape[1] - width) // 2
    return np.asarray(large[first : first + height, second : second + width])


@_picture(
    "black_corner",
    draws=False,
    levels={"radius": (1.1, 1.05, 1.0, 0.9, 0.95)},
    unit="radius over half the shorter side; the authors' last level is milder than the one before",
    source=_MEDMNISTC + "derma",
)
def black_corner(image: Image, draw: np.random.Generator, *, radius: float) -> Array:
    """Black around a circle, as a dermatoscope shows it."""
    cv2 = import_optional("cv2")
    height, width = image.array.shape[1:]
    middle = (width // 2, height // 2)
    least = min(*middle, width - middle[0], height - middle[1])
    circle = np.zeros((height, width), np.uint8)
    cv2.circle(circle, middle, int(least * radius), 255, thickness=-1)
    return np.where(circle == 255, image.array, np.asarray(extent(image)[0], image.array.dtype))


MOST_BUBBLES = 64


@_picture(
    "bubble",
    levels={"radius": (7, 10, 12, 15, 17), "number": (15, 15, 15, 20, 25)},
    unit="largest radius in pixels, largest number",
    source=_MEDMNISTC + "path",
)
def bubble(image: Image, draw: np.random.Generator, *, radius: int, number: int) -> Array:
    """Bubbles: 7 or more rimmed bright discs, nested by severity."""
    from PIL import Image as Pillow
    from PIL import ImageDraw

    units, share = draw.random((MOST_BUBBLES, 3)).tolist(), draw.random()

    def change(picture: Picture) -> Picture:
        width, height = picture.size
        sheet = Pillow.new("L", picture.size, 0)  # how white each pixel becomes, of 255
        pen = ImageDraw.Draw(sheet)
        for size, across, down in units[: whole(share, min(7, number), min(number, MOST_BUBBLES))]:
            reach = whole(size, min(3, radius), radius)
            x, y = whole(across, reach, width - reach), whole(down, reach, height - reach)
            for border, alpha in ((2, 130), (0, 100)):
                far = reach + border
                pen.ellipse((x - far, y - far, x + far, y + far), fill=alpha)
        picture.paste(255 if picture.mode == "L" else (255, 255, 255), (0, 0), sheet)
        return picture

    return by_picture(image, change)


@_picture(
    "stain_deposit",
    levels={"number": (1, 2, 3, 4, 5)},
    unit="largest number of marks",
    source=_MEDMNISTC + "path; their shapes of ink are files of the authors, ours are drawn",
)
def stain_deposit(image: Image, draw: np.random.Generator, *, number: int) -> Array:
    """Stain deposits: irregular dark marks, nested by severity."""
    height, width = image.array.shape[1:]
    share, units = draw.random(), draw.random((8, 3)).tolist()
    waves = draw.normal(size=(8, 2, 4)) * 0.12
    eight = image.array.dtype == np.uint8
    stained = image.array.copy(order="K") if eight else from_unit(image, as_unit(image))
    for (x, y, size), wave in zip(units[: whole(share, 1, number)], waves, strict=False):
        radius = (0.03 + 0.05 * size) * min(height, width)
        rows, columns, mark = _ink_mark(y * height, x * width, radius, wave, (height, width))
        stained[:, rows, columns][:, mark] = extent(image)[0]
    return stained


def _ink_mark(
    row: float, column: float, radius: float, wave: Array, shape: tuple[int, int]
) -> tuple[slice, slice, Array]:
    """Returns the region of an ink mark and its dark pixels.

    Its edge is at radius (1 + sum over k from 2 to 5 of wave[0, k - 2] cos k angle + wave[1, k - 2] sin k angle).
    """
    reach = radius * (1 + float(np.hypot(wave[0], wave[1]).sum())) + 1
    rows, columns = (
        slice(max(int(at - reach), 0), min(int(at + reach) + 2, size))
        for at, size in zip((row, column), shape, strict=True)
    )
    across = np.arange(columns.start, columns.stop) - column
    down = np.arange(rows.start, rows.stop) - row
    far = np.hypot(down[:, None], across)
    direction = (across + 1j * down[:, None]) / np.where(far > 0, far, 1)
    direction[far == 0] = 1
    parts = wave[0] - 1j * wave[1]
    bend = parts[3] * direction
    for part in parts[2::-1]:
        bend += part
        bend *= direction
    return rows, columns, far < (1 + (bend * direction).real) * radius


@_picture(
    "characters",
    levels={
        "words": (1, 2, 3, 4, 6),
        "letters": (6, 7, 8, 9, 10),
        "scale": (0.14, 0.15, 0.16, 0.17, 0.18),
    },
    unit="largest number of words and of letters, largest scale of OpenCV's font",
    source=_MEDMNISTC + "derma",
)
def characters(image: Image, draw: np.random.Generator, *, words: int, letters: int, scale: float) -> Array:
    """Coloured random words, nested by severity."""
    from PIL import Image as Pillow

    cv2 = import_optional("cv2")
    share, units, colours = draw.random(), draw.random((16, 4)), draw.integers(0, 256, (16, 3))
    text = "".join(chr(97 + code) for code in draw.integers(0, 26, 16 * 16))

    def change(shown: Picture) -> Picture:
        (width, height), picture = shown.size, np.array(shown)
        for index in range(whole(share, 1, min(words, 16))):
            count, size, across, down = units[index]
            length = whole(count, 3, letters)
            font = whole(size, 14, max(int(scale * 100), 14)) / 100.0
            start = (whole(across, 10, width - 8 * length), whole(down, 10, height - 10))
            colour = tuple(map(int, colours[index]))
            word = text[16 * index : 16 * index + length]
            cv2.putText(picture, word, start, cv2.FONT_HERSHEY_DUPLEX, font, colour, 1, cv2.LINE_AA)
        return Pillow.fromarray(picture)

    return by_picture(image, change)
