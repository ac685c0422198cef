"""Frames of films decoded ahead of a busy model beside PyAV's straight decoding, and the memory that a long film takes.

    python benchmarks/films.py [--frames 500] [--repeats 0] [--turns 4] [--out films.json]

A film of moving blocks, 1920 x 1080 at 25 per second with a key frame each 10 s, is written below the folder for
temporary files. Each turn takes all ways one after the other; what is printed is the median over turns of PyAV's CPU
seconds over ours, and of wall seconds likewise, which say little on a machine that does other work. Straight: one frame
a second. Seeking: one frame each 20 s, PyAV by its own `seek` and decoding on from there. With `--repeats` the film
is joined to itself so often (1800 make ten hours), and frames at its start, middle and end are read.
"""

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np

from medimg_eval.imaging.video import Film, FilmFile
from medimg_eval.imaging.video.reading import _packet_index

ROWS, COLUMNS, RATE = 1080, 1920, 25


def write_film(path: Path, frames: int) -> None:
    """Blocks that move."""
    blocks = np.random.default_rng(0).integers(0, 255, (ROWS // 8, COLUMNS // 8, 3), np.uint8)
    picture = blocks.repeat(8, 0).repeat(8, 1)
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=RATE, options={"preset": "veryfast", "crf": "26"})
        stream.width, stream.height, stream.pix_fmt, stream.gop_size = COLUMNS, ROWS, "yuv420p", 250
        for number in range(frames):
            moved = np.ascontiguousarray(np.roll(picture, (3 * number, 2 * number), (0, 1)))
            container.mux(stream.encode(av.VideoFrame.from_ndarray(moved, format="rgb24")))
        container.mux(stream.encode(None))


def join_film(path: Path, made: Path, repeats: int) -> None:
    """The same film again and again."""
    with av.open(str(made), "w") as container:
        stream: Any = None
        for turn in range(repeats):
            with av.open(str(path)) as source:
                own: Any = source.streams.video[0]
                stream = stream or container.add_stream_from_template(own)
                for packet in source.demux(own):
                    if packet.dts is not None and packet.pts is not None:
                        packet.pts += turn * own.duration
                        packet.dts += turn * own.duration
                        packet.stream = stream
                        container.mux(packet)


def decode_straight(path: Path) -> int:
    """Every frame decoded, one a second made an array."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        kept = (frame for number, frame in enumerate(container.decode(stream)) if number % RATE == 0)
        return sum(1 for frame in kept if frame.to_ndarray(format="rgb24").size)


def decode_seeking(path: Path, places: range) -> int:
    """Some frames, each decoded on from the key frame before it."""
    count = 0
    with av.open(str(path)) as container:
        stream: Any = container.streams.video[0]
        stream.thread_type = "AUTO"
        for place in places:
            wanted = int(place / RATE / stream.time_base)
            container.seek(wanted, stream=stream)
            frame = next(frame for frame in container.decode(stream) if frame.pts >= wanted)
            count += bool(frame.to_ndarray(format="rgb24").size)
    return count


def read_ahead(path: Path, places: range | list[int], busy: float = 0.0, every: int = RATE) -> int:
    """The same by a film, before a model that takes so many seconds a frame."""
    _packet_index.cache_clear()
    count = 0
    for _ in Film(FilmFile(path, every), places, 1.0):
        time.sleep(busy)
        count += 1
    return count


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=0)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--out", default="")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, places = Path(folder, "film.mp4"), range(arguments.frames // RATE)
        write_film(path, arguments.frames)
        apart = range(10 * RATE - 1, arguments.frames, 20 * RATE)  # the last frame before a key frame: most to decode
        ways: dict[str, tuple[str, Callable[[], int]]] = {
            "PyAV": ("", lambda: decode_straight(path)),
            "ahead": ("PyAV", lambda: read_ahead(path, places)),
            "ahead of 20 ms a frame": ("PyAV", lambda: read_ahead(path, places, 0.02)),
            "PyAV, seeking": ("", lambda: decode_seeking(path, apart)),
            "ahead, seeking": ("PyAV, seeking", lambda: read_ahead(path, list(apart), every=1)),
        }
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(arguments.turns):
            for name, (_, decode) in ways.items():
                begun, spent = time.perf_counter(), time.process_time()
                decode()
                taken[name].append((time.process_time() - spent, time.perf_counter() - begun))
        found: dict[str, dict[str, float]] = {}
        for name, (beside, _) in ways.items():
            cpu, wall = np.array(taken[name]).T
            found[name] = {"cpu_s": float(np.median(cpu)), "wall_s": float(np.median(wall))}
            if beside:
                theirs, ours = np.array(taken[beside]), np.array(taken[name])
                rate = np.median(theirs / ours, axis=0)
                found[name] |= {"of_pyav_cpu": float(rate[0]), "of_pyav_wall": float(rate[1])}
            print(name, ", ".join(f"{key} {value:.2f}" for key, value in found[name].items()))
        if arguments.out:
            Path(arguments.out).write_text(json.dumps({"frames": arguments.frames, **found}, indent=1) + "\n")
        if arguments.repeats:
            long = Path(folder, "long.mkv")
            join_film(path, long, arguments.repeats)
            seconds = arguments.repeats * arguments.frames // RATE
            read_ahead(long, [*range(20), *range(seconds // 2, seconds // 2 + 20), *range(seconds - 10, seconds)])
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(f"{seconds / 3600:.1f} h: at most {peak:.0f} MiB")


if __name__ == "__main__":
    main()
