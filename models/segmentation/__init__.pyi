from .postprocess import Step as Step, postprocessed_mask as postprocessed_mask
