"""Layouts as people write them: in YAML, with targets and splits inside."""

import nibabel as nib
import numpy as np
import pytest
from omegaconf import OmegaConf

from medimg_eval.data import layouts, targets
from medimg_eval.errors import UsageError
from medimg_eval.instantiate import build, build_task

TASK = """
_target_: medimg_eval.tasks.SegmentationTask
name: abdomen
labels: {1: liver, 5: spleen}
metrics: [dice]
splits: {test: test}
expected: {test: 1}
layout:
  _target_: medimg_eval.data.layouts.Volumes
  root: ROOT
  image: "{case}/ct.nii.gz"
  patient: '{case~^s\\d{2}}'
  modality: CT
  target:
    _target_: medimg_eval.data.targets.StructureFiles
    path: "{case}/segmentations/{structure}.nii.gz"
    structures: ${..labels}
  splits:
    _target_: medimg_eval.data.splits.SplitTable
    table: meta.csv
    separator: ";"
    id: image_id
"""


def save(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(array, np.eye(4)), path)


def test_totalsegmentator_as_a_task(tmp_path):
    for name in ("s0000", "s0100"):
        save(tmp_path / name / "ct.nii.gz", np.zeros((4, 5, 6), np.int16))
        for number, structure in enumerate(("liver", "spleen")):
            labels = np.zeros((4, 5, 6), np.uint8)
            labels[number] = 1
            save(tmp_path / name / f"segmentations/{structure}.nii.gz", labels)
    (tmp_path / "meta.csv").write_text("\ufeffimage_id;age;split\ns0000;50;train\ns0100;60;test\n")
    config = OmegaConf.create(TASK.replace("ROOT", str(tmp_path)).replace("${..labels}", "${labels}"))
    task = build_task(config)
    (case,) = task.cases("test")
    assert (case.id, case.patient) == ("s0100", "s01")
    assert set(np.unique(case.target.read().labels)) == {0, 1, 5}
    assert task.layout.split_source().keys() == {str(tmp_path / "meta.csv")}
    scores = task.score(case, case.target.read())
    assert [(score.label, score.value) for score in scores] == [("liver", 1), ("spleen", 1)]


def test_every_layout_and_target_is_named_where_yaml_looks_for_it():
    for room in (layouts, targets):
        assert all(hasattr(room, name) for name in room.__all__)


def test_an_argument_that_does_not_exist_is_a_clear_mistake(tmp_path):
    config = OmegaConf.create({"_target_": "medimg_eval.data.layouts.NnUNet", "root": str(tmp_path), "foldd": 1})
    with pytest.raises(UsageError, match=r"NnUNet: .*unexpected keyword argument 'foldd'"):
        build(config)
