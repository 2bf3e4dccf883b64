"""Formulas: what a model is fitted to, and the same columns of new rows."""

import copy
import importlib
import pickle
import warnings
from collections.abc import Collection, Container
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ksubset.stats.data import check_rows, column_of, kind, matching_columns, table

__all__ = ["Covariates", "by_formula", "new_rows"]


class Covariates:
    """The right side of a formula, with the categories and the state of transforms that the first rows have given it.

    Arguments:
        formula: The whole formula.
        spec: Of the right side, as formulaic has made it.
        needed: Names of the columns that it is made of.
        columns: Names of all columns that there were.
        context: Names that were no columns, and what they stood for.
    """

    def __init__(
        self, formula: str, spec: Any, needed: list[str], columns: Collection[Any], context: dict[str, Any]
    ) -> None:
        self._formula, self._spec, self._needed, self._columns = formula, spec, needed, columns
        # Modules cannot be pickled, and models can.
        self._modules = {name: value.__name__ for name, value in context.items() if isinstance(value, ModuleType)}
        self._others = {name: value for name, value in context.items() if name not in self._modules}

    def __getstate__(self) -> dict[str, Any]:
        # A local function cannot be pickled, and nothing but new rows needs it.
        return {
            **self.__dict__,
            "_others": {name: value for name, value in self._others.items() if _is_picklable(value)},
        }

    def of(self, data: pd.DataFrame) -> pd.DataFrame:
        """The columns of new rows.

        Raises:
            ValueError: Columns or values are missing, columns are numbers or categories where those of the first rows
                were not, or there are categories that the first rows did not have.
        """
        import formulaic  # noqa: PLC0415 - see `by_formula`

        if missing := [name for name in self._needed if name not in data.columns]:
            raise ValueError(
                f"exog must have the columns {self._needed} of the formula {self._formula!r}, and has no {missing}"
            )
        # Formulaic takes notes in what it is given.
        spec = copy.deepcopy(self._spec)
        # A column must not take the name of what was none.
        known = _plain_text(data[[name for name in data.columns if name in self._columns]])
        context = self._others | {name: importlib.import_module(module) for name, module in self._modules.items()}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", formulaic.errors.DataMismatchWarning)
                matrix = spec.get_model_matrix(known, context=context)
        except formulaic.errors.DataMismatchWarning as error:
            # What formulaic does about it is not done here.
            raise ValueError(f"exog: {str(error).partition('. They')[0]}") from error
        except ValueError as error:
            raise ValueError(_refused("exog", error)) from error
        except formulaic.errors.FormulaicError as error:
            raise ValueError(f"exog does not fit the formula {self._formula!r}: {error}") from error
        # Numbers in place of categories would count as each of their columns.
        for name, (expected, _) in self._spec.encoder_state.items():
            if (found := matrix.model_spec.encoder_state[name][0]) is not expected:
                raise ValueError(f"exog: {name!r} must be {expected.value} as in the fit, got {found.value} values")
        return _without_intercept(matrix)


def by_formula(formula: str, data: pd.DataFrame) -> tuple[pd.Series, pd.DataFrame, Covariates]:
    """The two sides of a formula, and the right one for new rows; an intercept has no meaning here, and is left out.

    Raises:
        TypeError: `data` is no data frame.
        ValueError: The formula is none, has not one left side or several right ones, or values are missing.
    """
    import formulaic  # noqa: PLC0415 - half a second, and arrays do without
    from formulaic.utils.context import capture_context  # noqa: PLC0415

    if not isinstance(data, pd.DataFrame):
        raise TypeError(f"data must be a pandas DataFrame, got {kind(data)}")
    # Names that are no columns are those of whoever called `from_formula`.
    context = capture_context(2) or {}
    try:
        matrices = formulaic.model_matrix(formula, _plain_text(data), context=context, na_action="raise")
    except ValueError as error:
        raise ValueError(_refused("data", error)) from error
    except formulaic.errors.FormulaicError as error:
        raise ValueError(f"the formula {formula!r} cannot be read, or not with this data: {error}") from error
    sides: list[Any] = [getattr(matrices, side, None) for side in ("lhs", "rhs")]
    left, right = sides
    # Several parts of a side are no matrix.
    if not all(isinstance(side, formulaic.ModelMatrix) for side in sides) or pd.DataFrame(left).shape[1] != 1:
        raise ValueError(f"the formula must be 'outcome ~ covariates' with one outcome of 0 and 1, got {formula!r}")
    spec = right.model_spec
    found = {source: _names(spec, source, known) for source, known in (("data", data.columns), ("context", context))}
    # New rows need values of their own.
    of_rows = {name for name in found["context"] if np.ndim(context[name]) == 1 and len(context[name]) == len(data)}
    known = {name: context[name] for name in found["context"] - of_rows}
    return (
        pd.DataFrame(left).iloc[:, 0],
        _without_intercept(right),
        Covariates(formula, spec, sorted(found["data"] | of_rows), {*data.columns, *of_rows}, known),
    )


def new_rows(
    exog: Any, names: list[str], covariates: Covariates | None, **given: Any
) -> tuple[NDArray[np.float64], pd.Index | None, dict[str, Any]]:
    """Read covariates of new rows, the index of these, and what else is given, also as names of their columns.

    Arguments:
        exog: A table with the columns of the formula, or, where there is none, those of the model; or an array of
            these.
        names: The columns of the model.
        covariates: Of the formula, if there is one.
        given: Values of the rows; names of columns where there is a formula and a table.

    Raises:
        TypeError, ValueError: Columns are missing or no numbers, there are new categories, or rows do not fit.
    """
    data = None if covariates is None else table(exog)
    if covariates is None or data is None:
        x, _, index = matching_columns(exog, names)
    else:
        x = matching_columns(covariates.of(data), names).values
        index = exog.index if isinstance(exog, pd.DataFrame) else None
        given = {name: column_of(data, column, name) for name, column in given.items()}
    check_rows(index, "exog", **given)
    return x, index, given


def _plain_text(data: pd.DataFrame) -> pd.DataFrame:
    """With text of the dtype "string", which formulaic takes for numbers, as objects."""
    return data.astype({name: object for name, dtype in data.dtypes.items() if isinstance(dtype, pd.StringDtype)})


def _is_picklable(value: Any) -> bool:
    try:
        pickle.dumps(value)
    # A lambda, a lock or a file each refuse in their own way.
    except Exception:
        return False
    return True


def _names(spec: Any, source: str, known: Container[str]) -> set[str]:
    """The names of a side of a formula that come from a source; a method or part of one is a variable as well."""
    variables = {str(variable) for variable in spec.variables_by_source.get(source, ())}
    return {name if name in known else name.partition(".")[0] for name in variables}


def _without_intercept(matrix: Any) -> pd.DataFrame:
    return pd.DataFrame(matrix).drop(columns="Intercept", errors="ignore")


def _refused(name: str, error: ValueError) -> str:
    advice = "; leave rows with missing values out first (dropna)" if "null values" in str(error) else ""
    return f"{name}: {str(error).rstrip('.')}{advice}"
