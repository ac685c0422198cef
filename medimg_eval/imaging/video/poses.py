"""Sequences of poses: joints of a person in each frame, from arrays, COCO's or OpenPose's JSON."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array, Geometry, Image, OneFile
from medimg_eval.errors import CaseError
from medimg_eval.system import natural_order

OPENPOSE = "pose_keypoints_2d"

_HARMLESS = frozenset(
    [
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        *((f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")),
    ]
)


class _Arrays(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _HARMLESS:
            raise pickle.UnpicklingError(f"holds {module}.{name}")
        return super().find_class(module, name)


@dataclass(frozen=True)
class PoseFile(OneFile):
    """A sequence of poses of one person.

    Attributes:
        path: `.npy`, `.npz` or `.pkl` of an array (frame, joint, 2 or 3), which may lie in the first array of the file;
            `.json` of COCO (a list of objects with `keypoints`, or such a list in `annotations`, in the order of
            `image_id`); or a folder of OpenPose's JSON, a file per frame, whose first person counts.
    """

    def read(self) -> Image:
        """Returns (x y score, frame, joint), float32; CaseError for invalid files."""
        return Image(np.moveaxis(read_poses(self.path), -1, 0), np.eye(4), modality="POSE", units="pixel")

    def geometry(self) -> Geometry:
        """Frames, and joints."""
        return Geometry(read_poses(self.path).shape[:2], np.eye(4), "pixel")


def read_poses(path: Path) -> Array:
    """Poses of a sequence, float32, (frame, joint, 3): x, y and score.

    The score is 1 where the file has none, and 0, with x and y of 0, where a joint or person was not found.

    Raises:
        CaseError: the file is missing or not understood.
    """
    if not path.exists():
        raise CaseError(f"{path}: there is no such file of poses")
    with CaseError.about(path, "is not understood as poses", Exception):
        if path.is_dir():
            poses = _read_openpose(path)
        elif path.suffix == ".json":
            poses = _read_coco(path)
        else:
            poses = _read_array(path)
    if poses.ndim != 3 or not len(poses) or poses.shape[2] not in (2, 3):
        raise CaseError(f"{path}: expected poses (frame, joint, 2 or 3), got {poses.shape}")
    if poses.shape[2] == 2:
        poses = np.concatenate([poses, np.ones((*poses.shape[:2], 1))], 2)
    is_visible = np.isfinite(poses).all(2, keepdims=True)
    return np.where(is_visible, poses, 0).astype(np.float32)


def _read_array(path: Path) -> Array:
    if path.suffix == ".pkl":
        with path.open("rb") as stream:
            content = _Arrays(stream).load()
        return np.asarray(content, np.float64)
    content = np.load(path, allow_pickle=False)
    return np.asarray(content if isinstance(content, np.ndarray) else content[content.files[0]], np.float64)


def _read_coco(path: Path) -> Array:
    content = json.loads(path.read_bytes())
    people = content["annotations"] if isinstance(content, Mapping) else content
    ordered = sorted(people, key=lambda person: natural_order(str(person.get("image_id", ""))))
    twice = len({str(person["image_id"]) for person in ordered if "image_id" in person})
    if ordered and "image_id" in ordered[0] and twice < len(ordered):
        raise ValueError("a frame has several people; keep one")
    return np.array([_joint_array(person["keypoints"]) for person in ordered])


def _read_openpose(folder: Path) -> Array:
    files = sorted(folder.glob("*.json"), key=lambda file: natural_order(file.stem))
    people = [json.loads(file.read_bytes())["people"] for file in files]
    held = [_joint_array(frame[0][OPENPOSE]) if frame else None for frame in people]
    first = next(joints for joints in held if joints is not None)
    return np.array([np.zeros_like(first) if joints is None else joints for joints in held])


def _joint_array(numbers: Sequence[float]) -> Array:
    return np.array(numbers, np.float64).reshape(-1, 3)
