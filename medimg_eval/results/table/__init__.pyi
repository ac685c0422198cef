from .cells import (
    Cell as Cell,
    Column as Column,
    NO_RUN as NO_RUN,
    Row as Row,
    Settings as Settings,
    make_cell as make_cell,
    make_column as make_column,
)
from .columns import make_columns as make_columns, titles as titles
from .footnotes import comparability as comparability, write_footnotes as write_footnotes
from .groups import SMALL as SMALL, all_of as all_of
from .layout import (
    Heading as Heading,
    Layout as Layout,
    Line as Line,
    Span as Span,
    Style as Style,
    bounded as bounded,
    one_line as one_line,
)
from .layout import Look as Look
from .published_layout import build_authors_tables as build_authors_tables
from .kind_footnotes import CHANCE as CHANCE
from .render import (
    escape_markdown as escape_markdown,
    html_page as html_page,
    html_table as html_table,
    notebook_html as notebook_html,
    rich_table as rich_table,
    to_csv as to_csv,
    to_html as to_html,
    to_latex as to_latex,
    to_markdown as to_markdown,
    to_rich as to_rich,
    write_all as write_all,
    write_texts as write_texts,
)
from .severity_table import break_severities as break_severities, build_severity_tables as build_severity_tables
from .sheets import (
    Comparison as Comparison,
    Map as Map,
    Sheet as Sheet,
    cautions as cautions,
    p_relation as p_relation,
    p_text as p_text,
)
from .table import (
    Table as Table,
    baselines_last as baselines_last,
    build_table as build_table,
    check_interval as check_interval,
    check_numbers as check_numbers,
    named_runs as named_runs,
    ranked as ranked,
)
