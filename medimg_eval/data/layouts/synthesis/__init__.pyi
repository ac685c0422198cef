from .folders import PictureFolder as PictureFolder, PictureSets as PictureSets
from .generated import (
    Generated as Generated,
    PROMPT as PROMPT,
    manifest_of as manifest_of,
    stored_files as stored_files,
)
from .generated import MixedDataset as MixedDataset, SETTINGS as SETTINGS, Setting as Setting, patient_of as patient_of
from .prompts import CheXGenBench as CheXGenBench, Prompts as Prompts
from .views import ViewXGen as ViewXGen
