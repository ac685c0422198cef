from .drawing import Annotation as Annotation, Frame as Frame, draw as draw, outline as outline
from .files import read_annotations as read_annotations, write_annotations as write_annotations
