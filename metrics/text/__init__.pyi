from .meteor import meteor_of as meteor_of
from .profiles import cleaned as cleaned, cleaner as cleaner
from .scores import Spread as Spread, TextScores as TextScores, text_scores as text_scores
from .texts import (
    read_part as read_part,
    read_value as read_value,
    texts_of as texts_of,
    unserved as unserved,
    with_others as with_others,
)
from .gram_counts import Words as Words
from .word_overlap import overlap as overlap
