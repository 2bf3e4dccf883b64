"""Configuration of the documentation."""

import ksubset

project = "ksubset"
author = copyright = "The ksubset developers"  # noqa: A001 - the name is Sphinx's
release = ksubset.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
html_theme = "furo"
myst_enable_extensions = ["dollarmath"]
# The tutorial is run whenever it is rendered, and neither an error nor a warning in it goes unseen.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 600  # seconds, for a cell
nb_output_stderr = "warn"
# Links to headings, as in the list of contents of a Markdown page.
myst_heading_anchors = 3
napoleon_custom_sections = ["Shapes"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
# Single backticks mean code, in docstrings as in Markdown.
default_role = "code"
