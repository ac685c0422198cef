"""Tables of a paper and their footnotes.

- `table`: from runs to rows, columns and cells
- `layout`, `columns`, `cells`: what stands where, in which form
- `render`, `latex`, `xlsx`: Markdown, CSV, HTML, LaTeX, a workbook
- `footnotes`, `kind_footnotes`: what a reader must know
- `published_layout`: the authors' own table of a benchmark
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
