from .films import (
    Film as Film,
    FilmFile as FilmFile,
    FilmPrompt as FilmPrompt,
    FrameFeatures as FrameFeatures,
    FramePictures as FramePictures,
    decoded_ahead as decoded_ahead,
)
from .poses import PoseFile as PoseFile, read_poses as read_poses
from .reading import Video as Video, grid as grid, read as read, write_video as write_video
