"""Files of columns: guess how they are written, read them, and save some columns as they are."""

import codecs
import contextlib
import csv
import dataclasses
import functools
import itertools
import re
import warnings
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import chardet
import clevercsv
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from chardet import EncodingEra
from pandas.io.common import get_handle

from ksubset._support.files import prepare, write

__all__ = ["CsvFormat", "Source", "check_out"]

_TEXT, _OUT = (".csv", ".tsv", ".txt"), (".csv", ".parquet")
_PACKED = (".gz", ".bz2", ".xz", ".zip", ".zst")
_OTHERS = (".parquet", ".feather", ".xlsx", ".xls")
_SEPARATORS = (",", ";", "\t", "|")
_MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_NOT_ASCII = re.compile(rb'[^\s\d,;|"]*[\x80-\xff][^\s\d,;|"]*')
_LONG = r"\d{19}"
# Bytes for the guess of the encoding, and characters for that of the separator.
_SAMPLE, _SNIFFED = 2**20, 20_000


@dataclass(frozen=True)
class CsvFormat:
    """How a file of text is written. What is None is guessed from the file.

    Arguments:
        sep: Between cells.
        encoding: As Python names it.
        header: Whether the first line has the names of the columns; else they are called x0, x1, ...
        comment: What a line of comment starts with.
        decimal: The decimal mark of numbers.
        thousands: What stands between thousands.
        na: Cells that stand for a missing value, besides those that pandas knows (none, NA, NaN, null, ...).

    Raises:
        ValueError: A mark is no single character, or two are the same.
    """

    sep: str | None = None
    encoding: str | None = None
    header: bool = True
    comment: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    na: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("sep", "comment", "decimal", "thousands"):
            mark = getattr(self, name)
            if mark is not None and len(mark) != 1:
                raise ValueError(f"{name}: expected a single character, got {mark!r}")
        if self.decimal is not None and self.decimal == self.thousands:
            raise ValueError(f"thousands: expected another mark than decimal, got {self.thousands!r}")


class Source:
    """A file of columns.

    Arguments:
        data: Text (CSV and its like, perhaps compressed), Parquet, Feather or Excel, by its ending.
        format: How text is written.

    Raises:
        ValueError: It has another ending, or cannot be decoded; a format is given for a file that is no text.
        FileNotFoundError: There is no such file.

    Attributes:
        format: With all that was guessed.
        notes: What was guessed, in words, other than a comma and UTF-8.
    """

    def __init__(self, data: Path, format: CsvFormat | None = None) -> None:
        self.path, self._ending = data, _ending(data)
        if self._ending not in (*_TEXT, *_OTHERS):
            raise ValueError(f"data: expected a file that ends in {', '.join((*_TEXT, *_OTHERS))}, got {data}")
        if not data.is_file():
            raise FileNotFoundError(f"data: expected a file, got {data}")
        given = format or CsvFormat()
        if given != CsvFormat() and not self._is_text:
            raise ValueError(f"data: expected a file of text, as its format is given, got {data}")
        self.format, self.notes = self._guessed(given) if self._is_text else (given, [])

    @property
    def _is_text(self) -> bool:
        return self._ending in _TEXT

    def read(self) -> pd.DataFrame:
        """Its columns in Arrow's types, in which integers and truth values may be missing.

        Raises:
            ValueError: It is empty, two columns have the same name, or it is of another kind than its ending says.
            ImportError: pandas needs another package for Excel.
        """
        try:
            names = self._names()
            # pandas would rename them without a word.
            twice = _repeated(names)
            frame = pd.DataFrame() if twice else self._frame(names, dtype_backend="pyarrow")
            twice = twice or _repeated(list(frame.columns))
        except (ValueError, csv.Error) as error:
            kind = f"a {self._ending[1:]} file that can be read"
            raise ValueError(f"data: expected {kind}, got {self.path} ({error})") from error
        if twice:
            raise ValueError(
                f"data: expected columns of different names, got {', '.join(map(repr, twice))} more than once"
            )
        if frame.empty:
            raise ValueError(f"data: expected columns and rows, got none in {self.path}")
        return frame

    def save(self, columns: Collection[str], out: Path) -> None:
        """Write some columns, all rows, in their order, with their types; from text to CSV the very same cells.

        Raises:
            OSError: The file cannot be written; what was there stays.
        """
        to_text = _ending(out) == ".csv"
        options: dict[str, Any] = (
            {"dtype": str, "keep_default_na": False, "na_values": []}
            if self._is_text and to_text
            else {"dtype_backend": "pyarrow"}
        )
        frame = self._frame(columns, **options)
        frame = frame[[name for name in frame.columns if name in columns]]
        write(out, frame.to_csv(index=False).encode() if to_text else frame.to_parquet(index=False))

    def _guessed(self, given: CsvFormat) -> tuple[CsvFormat, list[str]]:
        notes = []
        try:
            # pandas unpacks by the ending.
            with get_handle(self.path, "rb", compression="infer", is_text=False) as handles:
                sample = handles.handle.read(_SAMPLE)
            encoding = given.encoding or _encoding(bytes(sample))
            text = codecs.getincrementaldecoder(encoding)().decode(sample)
        except (UnicodeDecodeError, LookupError) as error:
            raise ValueError(f"encoding: expected one that {self.path} is written in, got {error}") from error
        if given.encoding is None and encoding != "utf-8-sig":
            notes.append(f"encoding {encoding}")
        lines = [line for line in text.splitlines() if line.strip()]
        if given.comment is not None:
            lines = [line for line in lines if not line.startswith(given.comment)]
        separator = given.sep or _separator("\n".join(lines)[:_SNIFFED], self._ending)
        if given.sep is None and separator != ("\t" if self._ending == ".tsv" else ","):
            notes.append(f"separator {separator!r}")
        return dataclasses.replace(given, sep=separator, encoding=encoding), notes

    def _names(self) -> list[str]:
        """The names as they stand in a file of text or Parquet."""
        if self._ending == ".parquet":
            return list(pq.read_schema(self.path).names)
        if not self._is_text or not self.format.header:
            return []
        with get_handle(self.path, "r", encoding=self.format.encoding, compression="infer") as handles:
            lines = (str(line) for line in handles.handle)
            mark = self.format.comment
            below = itertools.dropwhile(lambda line: not line.strip() or bool(mark and line.startswith(mark)), lines)
            # A name in quotes may go on in the next line.
            return next(csv.reader(below, delimiter=self.format.sep or ","), [])

    def _frame(self, columns: Collection[str], **options: Any) -> pd.DataFrame:
        if self._ending == ".parquet":
            in_order = [name for name in pq.read_schema(self.path).names if name in columns]
            return _named(pd.read_parquet(self.path, columns=in_order, **options).reset_index(drop=True))
        if self._ending == ".feather":
            return _named(pd.read_feather(self.path, **options))
        if not self._is_text:
            return _sheet(pd.read_excel(self.path, header=None, dtype=object))
        how = self.format
        try:
            with warnings.catch_warnings():
                # As R writes names of rows: the last cells would be lost, and all columns have the name of another.
                warnings.filterwarnings("error", "Length of header", pd.errors.ParserWarning)
                read = functools.partial(
                    pd.read_csv, self.path, sep=how.sep, encoding=how.encoding, header=0 if how.header else None,
                    comment=how.comment, decimal=how.decimal or ".", thousands=how.thousands, index_col=False,
                    low_memory=False, **{"na_values": list(how.na)} | options,
                )  # fmt: skip
                try:
                    frame: pd.DataFrame = read()
                except OverflowError:  # whole numbers that fit into no integer of Arrow, which as text become floats
                    cells = read(dtype=str)
                    long = [name for name in cells if cells[name].str.contains(_LONG).any()]
                    frame = read(dtype=dict.fromkeys(long, str))
        except pd.errors.ParserWarning as warning:
            raise ValueError("its rows have more cells than the header has names") from warning
        return frame if how.header else frame.rename(columns=lambda place: f"x{place}")


def check_out(out: Path, data: Path) -> None:
    """Check that columns can be written to a file, before a long search for them.

    Raises:
        ValueError: The ending is neither that of CSV nor of Parquet, or the file is that of the data.
        OSError: There is no such folder, or the file cannot be written.
    """
    if _ending(out) not in _OUT:
        raise ValueError(f"out: expected a file that ends in {' or '.join(_OUT)}, got {out}")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"out: expected a file in a folder that exists, got {out}")
    if out.resolve() == data.resolve():
        raise ValueError(f"out: expected another file than that of the data, got {out}")
    if out.is_dir():
        raise IsADirectoryError(f"out: expected a file, got the folder {out}")
    prepare(out.parent)


def _repeated(names: list[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if name and count > 1)


def _named(frame: pd.DataFrame) -> pd.DataFrame:
    """With text for names that are numbers or dates."""
    return frame.set_axis([str(name) for name in frame.columns], axis=1)


def _sheet(cells: pd.DataFrame) -> pd.DataFrame:
    """Columns of a sheet, wherever on it they are: the first row has their names, and all rows below are theirs."""
    cells = cells.dropna(how="all").dropna(how="all", axis=1)
    columns = [_arrow(cells.iloc[1:, place].tolist()) for place in range(cells.shape[1])]
    frame = pd.DataFrame({place: pd.arrays.ArrowExtensionArray(column) for place, column in enumerate(columns)})
    names = [f"Unnamed: {place}" if pd.isna(name) else name for place, name in enumerate(cells[:1].to_numpy().ravel())]
    return _named(frame.set_axis(names, axis=1))


def _arrow(cells: list[Any]) -> pa.Array:
    """Numbers where truth values are among them, and text where cells are of other kinds."""
    for kind in (None, pa.float64()):
        with contextlib.suppress(pa.ArrowInvalid, pa.ArrowTypeError):
            return pa.array(cells, kind, from_pandas=True)
    return pa.array([None if pd.isna(cell) else str(cell) for cell in cells])


def _ending(path: Path) -> str:
    """The last suffix but that of a compression."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = len(suffixes) > 1 and suffixes[-1] in _PACKED
    return suffixes[-1 - packed] if suffixes else ""


def _encoding(sample: bytes) -> str:
    for mark, name in _MARKS.items():
        if sample.startswith(mark):
            return name
    try:
        codecs.getincrementaldecoder("utf-8-sig")().decode(sample)
    except UnicodeDecodeError:
        # A few letters among many numbers tell more without these.
        words = b"\n".join(dict.fromkeys(_NOT_ASCII.findall(sample)))
        found = chardet.detect(words, encoding_era=EncodingEra.MODERN_WEB, prefer_superset=True, compat_names=False)
        return found["encoding"] or "latin-1"
    return "utf-8-sig"


def _separator(text: str, ending: str) -> str:
    usual = "\t" if ending == ".tsv" else ","
    try:
        found = clevercsv.Sniffer().sniff(text, delimiters=_SEPARATORS)
    except clevercsv.Error:
        return usual
    # A single column has no separator.
    return usual if found is None else found.delimiter or usual
