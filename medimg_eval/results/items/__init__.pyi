from .analysis import analyse_items as analyse_items, write_items as write_items
