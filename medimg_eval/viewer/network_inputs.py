"""What a 3-D network received of a volume, made again by the rule that its run recorded."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from medimg_eval.errors import CaseError
from medimg_eval.imaging import VolumePrompt
from medimg_eval.viewer.drawing import Drawing
from medimg_eval.viewer.overlays import stack

if TYPE_CHECKING:
    from medimg_eval.case import Case
    from medimg_eval.tasks import Task


def draw_network_inputs(drawing: Drawing, task: Task, case: Case, rule: str, model: int) -> None:
    """Adds the array of each volume of a case as the network of a model received it.

    Whole slices are drawn, with the values of the array and black and white at the ends of its range; of a large array
    every so many, as its title says.

    Args:
        drawing: what is added to.
        task: as the model was asked it, with volumes shown whole.
        case: as it was asked about.
        rule: `volume_rule` of the run's manifest.
        model: its number among those of the drawing.
    """
    for image in task.read_images(case):
        drawing.attempt(partial(_draw_input, drawing, image, rule, model))


def _draw_input(drawing: Drawing, image: object, rule: str, model: int) -> None:
    from medimg_eval.models.vision_language import INPUTS, RANGES, make_input_slices

    if not isinstance(image, VolumePrompt):
        raise CaseError(f"expected a volume, which the run handed to its network, got {type(image).__name__}")
    if rule not in INPUTS:
        raise CaseError(f"the run fed its network by {rule!r}, which this version does not know ({', '.join(INPUTS)})")
    slices = make_input_slices(rule, image).numpy()
    step = -(-slices.size // drawing.voxels)
    drawn = np.ascontiguousarray(slices[(step - 1) // 2 :: step])
    low, high = RANGES[rule]
    size = " x ".join(map(str, slices.shape))
    title = f"As the network received it ({rule}): {size} slices, rows and columns, {low:g} to {high:g}"
    if step > 1:
        title += f"; of every {step} slices one is drawn, whole"
    drawing.scene["panels"].append({**stack(drawn, window=(low, high)), "title": title, "model": model})
