"""Numbers that a file has as text: decimal commas, thousands, currencies, percents, and marks of what is missing."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ksubset.selection.tabular.files import CsvFormat

__all__ = ["Numbers", "parse"]

# What people write where a value is missing; pandas reads others, such as NA and null, as missing by itself.
_MISSING = frozenset({"", "?", "-", "--", ".", "n.a.", "missing", "unknown", "#value!", "#ref!", "#div/0!"})
# From this share of numbers on, a column of text is likely to be one of numbers with slips.
_NEARLY = 0.8

# Marks of typesetters: spaces that do not break or are narrow, the minus sign, and the apostrophe.
_TYPED = str.maketrans("\u00a0\u2009\u202f\u2212\u2019", "   -'")
_CURRENCY = r"[$€£¥]"
_PLAIN = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_GROUPED = r"[1-9]\d{{0,2}}(?:{0}\d{{3}})+"


@dataclass(frozen=True)
class Numbers:
    """What a column of text is as one of numbers.

    Arguments:
        values: NaN where one is missing, or is no number, and infinite where it is beyond all floats, `(N)`.
        notes: How it was read, in words; none where it is written as Python would write it.
        others: Cells that are no numbers, each once; without any it is a column of numbers.
    """

    values: NDArray[np.float64]
    notes: list[str]
    others: list[str]


@dataclass(frozen=True)
class _Notation:
    pattern: re.Pattern[str]
    note: str
    to_plain: Callable[[pd.Series], pd.Series]


def _notation(number: str, note: str, thousands: str, decimal: str) -> _Notation:
    def to_plain(text: pd.Series) -> pd.Series:
        if thousands:
            text = text.str.replace(thousands, "", regex=False)
        return text.str.replace(decimal, ".", regex=False) if decimal != "." else text

    # Digits of other scripts stand among marks of their own, and are text.
    return _Notation(re.compile(rf"[-+]?(?:{number})", re.ASCII), note, to_plain)


_POINT = _notation(_PLAIN, "", "", ".")
_COMMA = _notation(_PLAIN.replace(r"\.", ","), "decimal commas", "", ",")
# One of these is chosen for all numbers of a column, and the first that fits them.
_NOTATIONS = (
    _POINT,
    _notation(rf"(?:{_GROUPED.format(',')}|\d+)(?:\.\d*)?", "commas between thousands", ",", "."),
    _COMMA,
    _notation(rf"(?:{_GROUPED.format('[.]')}|\d+)(?:,\d*)?", "points between thousands, decimal commas", ".", ","),
    _notation(rf"(?:{_GROUPED.format(' ')}|\d+)(?:\.\d*)?", "spaces between thousands", " ", "."),
    _notation(rf"(?:{_GROUPED.format(' ')}|\d+)(?:,\d*)?", "spaces between thousands, decimal commas", " ", ","),
    _notation(rf"(?:{_GROUPED.format(chr(39))}|\d+)(?:\.\d*)?", "apostrophes between thousands", "'", "."),
)


def parse(text: pd.Series, format: CsvFormat) -> Numbers | None:
    """Numbers in text, whatever the country; None where most cells are none, or some begin with a 0 as codes do.

    Arguments:
        text: Strings, or None where missing, `(N)`.
        format: Of the file: its decimal mark and what stands between thousands hold if they are given. Where
            semicolons separate cells, 1,234 is not much more than one.
    """
    cells = text.astype(object).where(text.notna(), "").str.translate(_TYPED).str.strip()
    marks = cells.str.lower().isin(_MISSING)
    given = cells[~marks]
    if not len(given):
        return None
    bare = given.str.replace(rf"^([-+]?)\s*{_CURRENCY}\s*|\s*{_CURRENCY}$", r"\1", regex=True)
    percent = bare.str.endswith("%")
    bare = bare.str.removesuffix("%").str.strip()
    # Accountants write what is below zero in brackets.
    bare = bare.str.replace(r"^\((.+)\)$", r"-\1", regex=True)
    if bare.str.match(r"[-+]?0\d").any():
        return None
    notations = [one for one in _NOTATIONS if _allowed(one, format)]
    if format.sep == ";" and _COMMA in notations:
        notations = [_POINT, _COMMA, *notations] if _POINT in notations else [_COMMA, *notations]
    if not notations:
        return None
    fits = [bare.map(lambda cell, one=one: one.pattern.fullmatch(cell) is not None) for one in notations]
    best = max(range(len(fits)), key=lambda place: (fits[place].sum(), -place))
    numbers, notation = fits[best], notations[best]
    if numbers.mean() < _NEARLY:
        return None
    values = np.full(len(text), np.nan)
    places = np.flatnonzero(~marks.to_numpy())[numbers.to_numpy()]
    values[places] = notation.to_plain(bare[numbers]).to_numpy(np.float64)
    values[places] /= np.where(percent[numbers], 100.0, 1.0)
    notes = [notation.note] if notation.note else []
    notes += ["currencies"] if given.str.contains(_CURRENCY, regex=True).any() else []
    notes += ["percents"] if percent.any() else []
    found = sorted(set(cells[marks & (cells != "")]))
    notes += [f"{', '.join(map(repr, found))} as missing"] if found else []
    others = sorted(set(given[~numbers]))
    return Numbers(values, notes, others)


def _allowed(notation: _Notation, format: CsvFormat) -> bool:
    """Whether a notation is one of the marks that are given."""
    marks = (format.decimal, "1234{}5"), (format.thousands, "1{0}234{0}567")
    return all(mark is None or notation.pattern.fullmatch(example.format(mark)) for mark, example in marks)
