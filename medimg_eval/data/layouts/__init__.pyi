from .base import FolderLayout as FolderLayout
from .bids import Bids as Bids
from .bundle import ArrayFiles as ArrayFiles, Arrays as Arrays, CorruptedArrays as CorruptedArrays, FairSeg as FairSeg
from .detection import Coco as Coco, CocoVolumes as CocoVolumes, Yolo as Yolo
from .dicom import DicomTree as DicomTree, ReferencedMask as ReferencedMask
from .features import FeatureVectors as FeatureVectors, RateFindings as RateFindings
from .films import (
    CocoFrames as CocoFrames,
    FrameRows as FrameRows,
    Frames as Frames,
    FrameSpans as FrameSpans,
    PoseFolders as PoseFolders,
    PoseTable as PoseTable,
    Triplets as Triplets,
)
from .folders import (
    MotionFiles as MotionFiles,
    FolderPerClass as FolderPerClass,
    MaskFolder as MaskFolder,
    PairedFolders as PairedFolders,
    Volumes as Volumes,
)
from .found import FoundImages as FoundImages
from .kspace import KSpaceScans as KSpaceScans
from .listed import Listed as Listed, PointTable as PointTable
from .nnunet import MsdDatalist as MsdDatalist, NnUNet as NnUNet
from .pannuke import PanNuke as PanNuke
from .owkin_slides import OwkinSlides as OwkinSlides
from .patho_bench import PathoBench as PathoBench
from .questions import AnswerTable as AnswerTable, Questions as Questions
from .reconstructed import Reconstructed as Reconstructed
from .registration import ImagePairs as ImagePairs, Learn2Reg as Learn2Reg, WarpedBrain as WarpedBrain
from .report_sets import (
    Llava as Llava,
    PatientTimelines as PatientTimelines,
    R2Gen as R2Gen,
    Studies as Studies,
)
from .spots import Spots as Spots
from .synthesis import (
    CheXGenBench as CheXGenBench,
    Generated as Generated,
    MixedDataset as MixedDataset,
    PictureFolder as PictureFolder,
    PictureSets as PictureSets,
    Prompts as Prompts,
    ViewXGen as ViewXGen,
)
from .timelines import Timelines as Timelines
from .table import Slides as Slides, Table as Table
