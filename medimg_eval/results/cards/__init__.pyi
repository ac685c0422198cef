from .checklists import read_checklists as read_checklists
from .disclosure import Disclosure as Disclosure, disclose as disclose, write_card as write_card
from .generation import build_cards as build_cards
