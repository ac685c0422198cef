from .huggingface.decoding import GumbelSampler as GumbelSampler, truncate_at_stop as truncate_at_stop
from .open_clip import OpenClip as OpenClip
