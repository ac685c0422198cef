from .attention import every_figure as every_figure
from .examples import draw_examples as draw_examples
from .report_pages import write_pages as write_pages
from .scene import CaseView as CaseView
