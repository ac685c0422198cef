"""Words of change: a list that others have published."""

_WORDS = """
bigger change cleared constant decrease decreased decreasing elevated elevation enlarged enlargement enlarging
expanded greater growing improved improvement improving increase increased increasing larger new persistence
persistent persisting progression progressive reduced removal resolution resolved resolving smaller stability stable
stably unaltered unchanged unfolded worse worsen worsened worsening
"""
CHANGE_WORDS = frozenset(_WORDS.split())
"""The 44 words of F1-temporal, after Bannur et al. 2023 (BioViL-T), as Libra and RadEval have them."""
