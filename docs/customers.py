"""Writes customers.csv, the data of the tutorial: customers of a shop that does not exist, drawn at random.

What they spend depends on five of the columns, and on nothing else: on how long they have been customers, their income,
how often they ordered, and on whether the newsletter comes in their language. The last takes two columns, of which
either alone says nothing.
"""

from pathlib import Path

import numpy as np
import pandas as pd

ROWS = 600
TODAY = pd.Timestamp("2026-01-01")


def customers(seed: int = 0) -> pd.DataFrame:
    """One customer in a row; the last column is the target, in euros."""
    rng = np.random.default_rng(seed)
    days = rng.integers(30, 3650, ROWS)
    income = np.exp(rng.normal(7.9, 0.35, ROWS)).round(-1)
    language, newsletter = rng.choice(["French", "German"], (2, ROWS))
    orders = rng.poisson(rng.gamma(6.0, 2.0, ROWS))
    table = pd.DataFrame(
        {
            "customer": 10_001 + np.arange(ROWS),
            "since": TODAY - pd.to_timedelta(days, unit="D"),
            "age": rng.integers(18, 85, ROWS),
            "income": income,
            "household": rng.choice([1, 2, 3, 4, 5], ROWS, p=[0.35, 0.3, 0.15, 0.14, 0.06]),
            "region": rng.choice(["north", "east", "south", "west"], ROWS),
            "language": language,
            "newsletter": newsletter,
            "orders": orders,
            "parcels": orders + rng.binomial(orders, 0.1),
            "returns": rng.binomial(orders, 0.1),
            "complaints": rng.poisson(0.3, ROWS),
            "discount": rng.choice([0, 5, 10, 15], ROWS),
            "payment": rng.choice(["card", "invoice", "transfer"], ROWS, p=[0.5, 0.3, 0.2]),
            "device": rng.choice(["phone", "laptop", "tablet"], ROWS, p=[0.55, 0.35, 0.1]),
            "app": rng.random(ROWS) < 0.4,
            "last_visit": TODAY - pd.to_timedelta(rng.integers(1, 90, ROWS), unit="D"),
            "hour": rng.integers(0, 24, ROWS),
            "screen": rng.normal(15, 3, ROWS).round(1),
        }
    )
    spent = 0.1 * days + 0.1 * income + 20 * orders + 250 * (language == newsletter) + rng.normal(0, 60, ROWS)
    table["spent"] = spent.clip(0).round(2)
    for column, share in (("age", 0.08), ("income", 0.05), ("device", 0.1), ("screen", 0.15)):
        table[column] = table[column].mask(rng.random(ROWS) < share)
    return table


if __name__ == "__main__":
    customers().to_csv(Path(__file__).with_suffix(".csv"), index=False)
