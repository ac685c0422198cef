"""The baseline of registrations: images stay where they lie in the patient."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from medimg_eval.case import Array, Prompts
from medimg_eval.models.base import Registrar


class Identity(Registrar):
    """Identity registration: equal positions in mm, or pixels of pictures."""

    uses_torch = False

    def register(self, prompts: Prompts) -> Sequence[Array]:
        """Returns an affine map that moves nothing."""
        return [np.eye(prompt.image.array.ndim) for prompt in prompts]
