from .patterns import Vocabulary as Vocabulary, folded as folded, spans_of as spans_of
from .report_leakage import Leakage as Leakage, leakage as leakage, rare_phrases as rare_phrases
