from .huggingface.decoding import GumbelSampler as GumbelSampler, truncate_at_stop as truncate_at_stop
from .open_clip import OpenClip as OpenClip
from .volume_inputs import INPUTS as INPUTS, RANGES as RANGES, make_input_slices as make_input_slices
