"""Configuration of the documentation."""

import re

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

import ksubset

project = "ksubset"
author = copyright = "The ksubset developers"  # noqa: A001 - the name is Sphinx's
release = ksubset.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
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


def _mathml(node: nodes.math | nodes.math_block, display: str) -> str:
    """A formula, with a space between the name of a function and its argument where that has no bracket."""
    space = r'\1<mspace width="0.167em"/>'
    return re.sub(
        r"(<mi>(?:log|exp|sin|cos)</mi>)(?=<m(?:i|sub|sup|subsup)>)", space, convert(node.astext(), display=display)
    )


def _inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(_mathml(node, "inline"))
    raise nodes.SkipNode


def _display(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(f"<div>{_mathml(node, 'block')}</div>")
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Formulas in MathML, which browsers draw without a script from elsewhere."""
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))


html_math_renderer = "mathml"
