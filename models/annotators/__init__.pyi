from .base import (
    Annotator as Annotator,
    PairAnnotator as PairAnnotator,
    TextAnnotator as TextAnnotator,
)
from .language_model import (
    LabelledReport as LabelledReport,
    LanguageModelLabeler as LanguageModelLabeler,
    label_texts as label_texts,
)
