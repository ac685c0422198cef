"""The baseline of registrations: images stay where they lie in the patient."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from medimg_eval.case import Array, Prompts
from medimg_eval.models.base import Registrar


class Identity(Registrar):
    """Registers nothing: each mm of the fixed image lies at the same mm of the moving one, of pictures each pixel."""

    uses_torch = False

    def register(self, prompts: Prompts) -> Sequence[Array]:
        """Returns an affine map that moves nothing."""
        return [np.eye(prompt.image.array.ndim) for prompt in prompts]
