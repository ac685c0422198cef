from .corpus import Batch as Batch, Corpus as Corpus
from .languages import (
    ENGLISH as ENGLISH,
    TOKENISER_OF as TOKENISER_OF,
    TOKENISERS as TOKENISERS,
    check_language as check_language,
    in_english as in_english,
    is_english as is_english,
    letters as letters,
    words_intl as words_intl,
)
from .porter import stem as stem
from .report_sections import (
    NAMES as NAMES,
    canonical as canonical,
    chosen as chosen,
    sections as sections,
    section_spans as section_spans,
)
from .sentences import sentence_spans as sentence_spans
from .strings import (
    LONG as LONG,
    SENTENCES as SENTENCES,
    either as either,
    ending as ending,
    late_pattern as late_pattern,
    lower as lower,
)
from .tokenizers import (
    blank_words as blank_words,
    normalised as normalised,
    split_words as split_words,
    stemmed_words as stemmed_words,
    words as words,
    words_13a as words_13a,
)
from .wordnet import WORDNET_FILES as WORDNET_FILES, WordNet as WordNet
