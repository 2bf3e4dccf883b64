"""Models by name for columns of any kind."""

from typing import Any

import numpy as np
import pandas as pd
from sklearn import ensemble
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, StandardScaler

__all__ = ["MODELS", "make_model"]

MODELS = ("hist-gradient-boosting", "random-forest", "extra-trees", "k-nearest-neighbors", "linear")


def make_model(model: str, *, classify: bool, seed: int = 0) -> Any:
    """A model for any of a table's features, of any kind, as a scikit-learn pipeline with the defaults of scikit-learn.

    Arguments:
        model: One of `MODELS`; linear is logistic regression, or ridge regression.
        classify: Whether the target is a class.
        seed: Of the model, if it draws.

    Raises:
        ValueError: There is no such model.
    """
    numbers, texts = make_column_selector(dtype_include="number"), make_column_selector(dtype_include="category")
    one_hot = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=20, sparse_output=False)
    if model == "hist-gradient-boosting":
        # It takes at most 255 categories.
        ordinal = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan, max_categories=254)
        encoder = make_pipeline(ordinal, FunctionTransformer(_as_categories, feature_names_out="one-to-one"))
        # It takes what is missing, but no numbers that are missing in all rows.
        zeros = SimpleImputer(strategy="constant", fill_value=0.0, keep_empty_features=True)
        columns = make_column_transformer(
            (encoder, texts), (zeros, _void), remainder="passthrough", verbose_feature_names_out=False
        )
        kind = ensemble.HistGradientBoostingClassifier if classify else ensemble.HistGradientBoostingRegressor
        boosting = kind(categorical_features="from_dtype", random_state=seed)
        return make_pipeline(columns.set_output(transform="pandas"), boosting)
    if model in ("random-forest", "extra-trees"):
        forests = {
            "random-forest": (ensemble.RandomForestClassifier, ensemble.RandomForestRegressor),
            "extra-trees": (ensemble.ExtraTreesClassifier, ensemble.ExtraTreesRegressor),
        }
        forest = forests[model][not classify](random_state=seed)
        return make_pipeline(make_column_transformer((one_hot, texts), remainder="passthrough"), forest)
    scaled = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler())
    columns = make_column_transformer((scaled, numbers), (one_hot, texts))
    if model == "k-nearest-neighbors":
        return make_pipeline(columns, KNeighborsClassifier() if classify else KNeighborsRegressor())
    if model == "linear":
        return make_pipeline(columns, LogisticRegression(max_iter=1000) if classify else Ridge())
    raise ValueError(f"model: expected one of {', '.join(MODELS)}, got {model!r}")


def _void(frame: pd.DataFrame) -> list[str]:
    numbers = frame.select_dtypes("number")
    return list(numbers.columns[numbers.isna().all()])


def _as_categories(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.astype("category")
