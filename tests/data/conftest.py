"""What the tests of layouts and targets share."""

import numpy as np
import pytest
from PIL import Image as Pillow

from medimg_eval.imaging import ImageFile


@pytest.fixture
def picture(tmp_path):
    """A picture of 4 rows and 6 columns."""
    Pillow.fromarray(np.zeros((4, 6), np.uint8)).save(tmp_path / "x.png")
    return ImageFile(tmp_path / "x.png")
