"""Configuration of the documentation."""

import ksubset

project = "ksubset"
author = copyright = "The ksubset developers"  # noqa: A001 - the name is Sphinx's
release = ksubset.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
html_theme = "furo"
myst_enable_extensions = ["dollarmath"]
# Links to headings, as in the list of contents of a Markdown page.
myst_heading_anchors = 3
napoleon_custom_sections = ["Shapes"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
# Single backticks mean code, in docstrings as in Markdown.
default_role = "code"
