from .pairs import ImagePairs as ImagePairs, Learn2Reg as Learn2Reg
from .warped_brain import WarpedBrain as WarpedBrain
