"""What is right about a case, and how the authors wrote it down: one small adapter for each way."""

from medimg_eval.data.records import Entry, Target
from medimg_eval.data.targets.findings import ClassColumns, ClassName, NumberColumns
from medimg_eval.data.targets.joined import FromTable, JoinedPoints
from medimg_eval.data.targets.masks import FilledBoxes, ImageTarget, MaskParts, MaskTarget, RunLength, StructureFiles
from medimg_eval.data.targets.places import BoxColumns, LandmarkMat, PointColumns
from medimg_eval.data.targets.verse import MiccaiCentroids, VertebraCentroids
from medimg_eval.data.targets.words import FrameTable, ReportText, SurvivalColumns

__all__ = [
    "BoxColumns",
    "ClassColumns",
    "ClassName",
    "Entry",
    "FilledBoxes",
    "FrameTable",
    "FromTable",
    "ImageTarget",
    "JoinedPoints",
    "LandmarkMat",
    "MaskParts",
    "MaskTarget",
    "MiccaiCentroids",
    "NumberColumns",
    "PointColumns",
    "ReportText",
    "RunLength",
    "StructureFiles",
    "SurvivalColumns",
    "Target",
    "VertebraCentroids",
]
