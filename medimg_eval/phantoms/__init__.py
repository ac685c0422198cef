"""Phantoms: made-up patients in the real formats, with the truth known by construction.

>>> from medimg_eval.phantoms import write_phantoms
>>> write_phantoms("ct", Path("phantoms/ct"), cases=4, seed=0)  # doctest: +SKIP
"""

from medimg_eval.phantoms.cohort import KINDS, Phantom, write_phantoms
from medimg_eval.phantoms.surgery_films import SurgeryFilms

__all__ = ["KINDS", "Phantom", "SurgeryFilms", "write_phantoms"]
