from .labelled import FramePicture as FramePicture, Frames as Frames
from .sequences import PoseFolders as PoseFolders, PoseTable as PoseTable
from .sources import (
    CocoFrames as CocoFrames,
    FrameRows as FrameRows,
    FrameSpans as FrameSpans,
    Triplets as Triplets,
)
