"""How datasets lie on disk: a root folder becomes Cases."""

from medimg_eval.data.layouts.base import FolderLayout
from medimg_eval.data.layouts.bids import Bids
from medimg_eval.data.layouts.bundle import ArrayFiles, Arrays, FairSeg
from medimg_eval.data.layouts.detection import Coco, Yolo
from medimg_eval.data.layouts.dicom import DicomTree, ReferencedMask
from medimg_eval.data.layouts.folders import FolderPerClass, PairedFolders, Volumes
from medimg_eval.data.layouts.frames import Frames
from medimg_eval.data.layouts.kspace import KSpaceScans
from medimg_eval.data.layouts.nnunet import MsdDatalist, NnUNet
from medimg_eval.data.layouts.pannuke import PanNuke
from medimg_eval.data.layouts.questions import Questions
from medimg_eval.data.layouts.reconstructed import Reconstructed
from medimg_eval.data.layouts.report_sets import Llava, R2Gen, Studies
from medimg_eval.data.layouts.synthesis import CheXGenBench, Generated, MixedDataset, Prompts
from medimg_eval.data.layouts.table import Slides, Table

__all__ = [
    "ArrayFiles",
    "Arrays",
    "Bids",
    "CheXGenBench",
    "Coco",
    "DicomTree",
    "FairSeg",
    "FolderLayout",
    "FolderPerClass",
    "Frames",
    "Generated",
    "KSpaceScans",
    "Llava",
    "MixedDataset",
    "MsdDatalist",
    "NnUNet",
    "PairedFolders",
    "PanNuke",
    "Prompts",
    "Questions",
    "R2Gen",
    "Reconstructed",
    "ReferencedMask",
    "Slides",
    "Studies",
    "Table",
    "Volumes",
    "Yolo",
]
