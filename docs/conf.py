"""How Sphinx builds these pages: `make docs`. A warning fails, such as a link to a page that is not there."""

project = "medimg_eval"
extensions = ["myst_parser"]
exclude_patterns = ["_build"]
myst_heading_anchors = 4
"""Depth of the headings that links may name."""
