from .huggingface.decoding import Draws as Draws, cut as cut
from .open_clip import OpenClip as OpenClip
