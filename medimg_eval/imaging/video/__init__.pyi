from .reading import Video as Video, grid as grid, read as read, write_video as write_video
