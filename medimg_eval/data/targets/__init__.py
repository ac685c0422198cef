"""What is right about a case, and how the authors wrote it down: one small adapter for each way."""

from medimg_eval.data.records import Entry, Target
from medimg_eval.data.targets.drawn import DrawnAreas, DrawnPoints
from medimg_eval.data.targets.findings import ClassColumns, ClassName, NumberColumns
from medimg_eval.data.targets.joined import JoinedPoints, TableTarget
from medimg_eval.data.targets.located import LocatedClasses
from medimg_eval.data.targets.masks import FilledBoxes, ImageTarget, MaskParts, MaskTarget, RunLength, StructureFiles
from medimg_eval.data.targets.matrix_rows import MatrixRow
from medimg_eval.data.targets.objects import InstanceMat
from medimg_eval.data.targets.places import BoxColumns, LandmarkMat, PointColumns
from medimg_eval.data.targets.rater_masks import RaterMasks
from medimg_eval.data.targets.text_targets import FrameTable, ReportText, SurvivalColumns
from medimg_eval.data.targets.verse import MiccaiCentroids, VertebraCentroids

__all__ = [
    "BoxColumns",
    "ClassColumns",
    "ClassName",
    "DrawnAreas",
    "DrawnPoints",
    "Entry",
    "FilledBoxes",
    "FrameTable",
    "ImageTarget",
    "InstanceMat",
    "JoinedPoints",
    "LandmarkMat",
    "LocatedClasses",
    "MaskParts",
    "MaskTarget",
    "MatrixRow",
    "MiccaiCentroids",
    "NumberColumns",
    "PointColumns",
    "RaterMasks",
    "ReportText",
    "RunLength",
    "StructureFiles",
    "SurvivalColumns",
    "TableTarget",
    "Target",
    "VertebraCentroids",
]
