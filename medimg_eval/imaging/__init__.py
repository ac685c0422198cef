"""Files to images and back. Knows files only: no task, no model, no torch."""

from medimg_eval.imaging.nifti import ImageFile, MaskFile, Region, read_mask, write_mask

__all__ = ["ImageFile", "MaskFile", "Region", "read_mask", "write_mask"]
