from .analysis import analyse_items as analyse_items, write_items as write_items
from .irt import fit_two_parameters as fit_two_parameters
from .response_matrix import cronbach_alpha as cronbach_alpha, item_correlations as item_correlations
