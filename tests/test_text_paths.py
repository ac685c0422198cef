"""Paths may be texts wherever our public functions take one."""

import inspect

import numpy as np
import pytest

import medimg_eval.deid
import medimg_eval.imaging
import medimg_eval.imaging.dicom
import medimg_eval.imaging.slides
import medimg_eval.imaging.volumes
import medimg_eval.results
from medimg_eval.case import Image, Mask
from medimg_eval.imaging import find_label_maps, read, read_grid, read_mask, write_image, write_mask
from medimg_eval.imaging.dicom import index_tree, read_segments, write_segmentation, write_series

INTERNAL = {
    "ForeignStore", "Patches",
    "Header", "Series", "RunScores", "gather", "grid", "header_of", "identities", "is_meant", "is_slide", "naming",
    "placement", "PhiReport", "StructuredReport",
    "read_manifest", "salvaged_header", "save", "scan_folder", "scan_names", "shape_of",
    "unpacked", "verdicts_of", "format_name",
}  # fmt: skip
"""What is called with paths that were taken in before; readers of a family are, by `read`."""

FACES = (
    medimg_eval,
    medimg_eval.deid,
    medimg_eval.imaging,
    medimg_eval.imaging.dicom,
    medimg_eval.imaging.slides,
    medimg_eval.imaging.volumes,
    medimg_eval.results,
)


def taking_paths_alone():
    for face in FACES:
        for name in face.__all__:
            one = getattr(face, name)
            if name in INTERNAL or name.startswith("_") or not callable(one):
                continue
            if isinstance(one, type) and issubclass(one, Exception):
                continue
            family = face.__name__.count(".") == 2 and name in ("read", "read_mask")
            if not getattr(one, "__module__", "").startswith("medimg_eval") or family:
                continue
            for key, parameter in inspect.signature(one).parameters.items():
                said = str(parameter.annotation)
                if "Path" in said and "str" not in said:
                    yield f"{face.__name__}.{name}({key}: {said})"


def test_no_public_function_takes_paths_alone():
    assert list(taking_paths_alone()) == []


def test_images_and_masks_are_written_and_read_by_texts(tmp_path, monkeypatch):
    pytest.importorskip("highdicom")
    monkeypatch.chdir(tmp_path)
    image = Image(np.arange(8 * 8 * 3, dtype=np.int16).reshape(1, 8, 8, 3), np.diag([-1.0, -1, 2, 1]))
    mask = Mask((image.array[0] > 90).astype(np.uint8), image.affine)
    write_image("image.nii.gz", image)
    write_mask("masks.nii.gz", mask)
    assert read("image.nii.gz").shape == image.shape
    assert read_grid("image.nii.gz").difference(read_mask("masks.nii.gz").geometry) is None
    assert list(find_label_maps(".")) == ["image", "masks"]
    slices = [str(path) for path in write_series("series", image)]
    write_segmentation("mask.dcm", mask, slices, names={1: "one"})
    np.testing.assert_array_equal(read_segments("mask.dcm").arrays[1].sum(), mask.labels.sum())
    assert len(index_tree("series", cache="cache").entries) == 1
    assert read("series").shape == image.shape
