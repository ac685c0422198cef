from .base import (
    Annotator as Annotator,
    PairAnnotator as PairAnnotator,
    TextAnnotator as TextAnnotator,
)
