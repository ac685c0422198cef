from .corpus import Corpus as Corpus
from .porter import stem as stem
from .report_sections import (
    NAMES as NAMES,
    canonical as canonical,
    chosen as chosen,
    sections as sections,
    section_spans as section_spans,
)
from .sentences import sentence_spans as sentence_spans
from .strings import LONG as LONG, SENTENCES as SENTENCES, either as either, ending as ending, lower as lower
from .tokenizers import (
    blank_words as blank_words,
    normalised as normalised,
    split_words as split_words,
    stemmed_words as stemmed_words,
    words as words,
    words_13a as words_13a,
)
