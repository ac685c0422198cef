from .profiles import cleaned as cleaned, cleaner as cleaner
from .rouge import texts_of as texts_of
from .scores import Spread as Spread, TextScores as TextScores, text_scores as text_scores
from .word_overlap import Words as Words, overlap as overlap
