"""How Sphinx builds these pages: `make docs`. A warning fails, as of a link to a page or heading that is not there."""

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import api_pages  # noqa: E402
import catalogue_pages  # noqa: E402
import concepts  # noqa: E402

import medimg_eval  # noqa: E402

project = "medimg_eval"
version = release = medimg_eval.__version__
extensions = ["myst_nb", "sphinx_design"]
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]
language = "en"
smartquotes = False

# Pages
myst_enable_extensions = ["attrs_inline", "colon_fence"]
myst_ref_domains = ["std"]
myst_heading_anchors = 4
"""Depth of the headings that links may name."""

# Notebooks are executed in an empty folder, anew once anything of the program has changed. One that fails is a warning.
nb_execution_mode = "cache"
nb_execution_in_temp = True
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_output_stderr = "remove"
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
"""Cells call `python` as a shell does in which the environment is active."""

# Look
LISTED = (
    "start",
    "evaluate",
    "data",
    "publish",
    "definitions",
    "gallery",
    "api",
    "extend",
    "develop",
    "catalogue/tasks",
)
"""Sections whose pages list their headings beside the text; the tables of the catalogue take all of the width."""

html_theme = "pydata_sphinx_theme"
html_title = "medimg_eval"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options: dict[str, Any] = {
    "logo": {"text": "medimg_eval"},
    "header_links_before_dropdown": 8,
    "navbar_end": ["theme-switcher"],
    "show_toc_level": 2,
    "show_prev_next": True,
    "navigation_with_keys": False,
    "secondary_sidebar_items": {f"{section}/**": ["page-toc"] for section in LISTED},
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": []}
copyright = "The medimg_eval developers, Apache-2.0"  # noqa: A001


def fingerprint() -> str:
    """A hash of the program, which the outputs of notebooks follow from."""
    code = hashlib.blake2b(digest_size=8)
    for folder in ("medimg_eval", "metrics", "models", "tasks", "configs"):
        held = HERE.parent / folder
        for path in sorted(path for end in ("py", "pyi", "yaml") for path in held.rglob(f"*.{end}")):
            code.update(path.read_bytes())
    return code.hexdigest()


nb_execution_cache_path = str(HERE / "_build" / "notebooks" / fingerprint())


def setup(app: Any) -> None:
    """Writes the pages that are made from the code before Sphinx looks for pages."""
    app.connect("builder-inited", _write_pages)


def _write_pages(app: Any) -> None:
    catalogue_pages.write(Path(app.srcdir, "catalogue"), catalogue_pages.pages())
    catalogue_pages.write(Path(app.srcdir, "api"), api_pages.pages())
    Path(app.srcdir, "_static", "concepts.svg").write_text(concepts.draw(), encoding="utf-8")
