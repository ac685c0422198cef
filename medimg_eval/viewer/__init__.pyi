from .examples import draw_examples as draw_examples
from .scene import CaseView as CaseView
