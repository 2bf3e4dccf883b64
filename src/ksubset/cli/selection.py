"""Columns of a data set for a model."""

import math
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.console import Console

from ksubset.cli.console import Command, app, bar, one_thread, say

if TYPE_CHECKING:
    from ksubset.selection import KSubsetSelector, Progress
    from ksubset.selection.tabular.select import Selection

__all__: list[str] = []

_NEARLY = 5
_CHANCE = 0.05
_GUESSED = " (default: guessed, and printed unless it is usual)"


@app.command(cls=Command)
def select(
    data: Annotated[
        Path, typer.Argument(metavar="file", help="CSV and its like, Parquet, Feather or Excel", show_default=False)
    ],
    target: Annotated[str, typer.Option(metavar="column", help="what the model is to predict", show_default=False)],
    k: Annotated[
        str,
        typer.Option(metavar="int", help="columns to keep; the best of several: 5,10,20 or auto", show_default=False),
    ],
    model: Annotated[
        str,
        typer.Option(
            metavar="str", help="hist-gradient-boosting, random-forest, extra-trees, k-nearest-neighbors or linear"
        ),
    ] = "hist-gradient-boosting",
    task: Annotated[
        str | None, typer.Option(metavar="str", help="classification or regression (default: by what the target has)")
    ] = None,
    scoring: Annotated[
        str | None,
        typer.Option(
            metavar="str",
            help="a score of scikit-learn; of two classes, in order, the second is the positive one "
            "(default: accuracy or r2)",
        ),
    ] = None,
    cv: Annotated[int, typer.Option(min=2, metavar="int", help="folds of the cross-validation")] = 5,
    max_evaluations: Annotated[int, typer.Option(metavar="int", help="model fits of the search, for each k")] = 1000,
    jobs: Annotated[int, typer.Option(metavar="int", help="fits at a time; -1: as many as there are cores")] = 1,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, metavar="int", help="seed of all that is random")] = 0,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="column", help="a column to leave out; may be repeated")
    ] = None,
    always_include: Annotated[
        list[str] | None,
        typer.Option(metavar="column", help="a column to keep in any case, which counts; may be repeated"),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(metavar="column", help="rows of one value stay together, in a fold or held out; no feature"),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(metavar="column", help="folds and rows held out are later than what predicts them; no feature"),
    ] = None,
    sep: Annotated[str | None, typer.Option(metavar="mark", help=f"between cells of text{_GUESSED}")] = None,
    encoding: Annotated[str | None, typer.Option(metavar="str", help=f"of text, such as latin-1{_GUESSED}")] = None,
    decimal: Annotated[str | None, typer.Option(metavar="mark", help=f"decimal mark of text{_GUESSED}")] = None,
    thousands: Annotated[str | None, typer.Option(metavar="mark", help=f"between thousands{_GUESSED}")] = None,
    na: Annotated[
        list[str] | None, typer.Option(metavar="cell", help="a cell of text that means missing; may be repeated")
    ] = None,
    comment: Annotated[str | None, typer.Option(metavar="mark", help="what begins a comment in text")] = None,
    header: Annotated[bool, typer.Option("--header/--no-header", help="whether text has names of columns")] = True,
    test_share: Annotated[
        float, typer.Option(metavar="float", help="fraction of the rows that is held out for the scores at the end")
    ] = 0.2,
    permutations: Annotated[
        int,
        typer.Option(min=0, metavar="int", help="searches with shuffled targets, for a p-value; each costs as much"),
    ] = 0,
    stability: Annotated[
        int,
        typer.Option(min=0, metavar="int", help="halves of the rows to choose on again, for the stability"),
    ] = 0,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="file", help="file of all scores, from which the same command resumes")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="file", help="CSV or Parquet file for the columns kept and the target, all rows"),
    ] = None,
) -> None:
    """Keep the k columns of a file with which a model predicts best.

    Shows what that is worth: the score on rows held out, with all columns, with those kept, and with random ones.
    Ctrl-C ends the search with the best so far.

    Example: ksubset select data.csv --target y --k 10 --out selected.csv
    """
    from ksubset.selection.tabular import files, leaks, models, select, types

    sizes = _sizes(k)
    source = files.Source(data, files.CsvFormat(sep, encoding, header, comment, decimal, thousands, tuple(na or ())))
    frame = source.read()
    if out is not None:
        files.check_out(out, data)
    table = types.tabulate(frame, target, task, exclude or (), source.format, groups, time)
    estimator = models.make_model(model, classify=table.classes is not None, seed=seed)
    score = scoring or table.scoring
    console, messages = Console(), Console(stderr=True)
    kind = "regression" if table.classes is None else f"classification, {_classes(table.classes)}"
    say(console, f"{data}: {len(table.target)} rows, {table.features.shape[1]} columns to choose from")
    say(console, f"target {target}: {kind}")
    if source.notes:
        say(console, f"guessed: {', '.join(source.notes)}")
    for how in dict.fromkeys(table.notes.values()):
        names = [name for name, note in table.notes.items() if note == how]
        say(console, f"read as numbers: {_listed(names)} ({how})")
    if table.dropped:
        say(console, f"dropped: {table.dropped} rows without a target")
    for how in dict.fromkeys(table.suspects.values()):
        names = [name for name, seems in table.suspects.items() if seems == how]
        say(messages, f"warning: {_listed(names)}{':' * (len(names) > 1)} {how}; --exclude leaves a column out")
    with (
        bar(messages, "search", max_evaluations, "fit") as advance,
        one_thread(),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")

        part = ""

        def show(progress: "Progress") -> None:
            nonlocal part
            text = f"{progress.part}, k = {progress.n_features_to_select}, best {score} {_number(progress.best_score)}"
            # Without a terminal a line for each further search says enough.
            if messages.is_terminal or progress.part == "search":
                advance(text.removeprefix("search, "), progress.n_fits)
            elif progress.part != part:
                say(messages, progress.part)
            part = progress.part

        selection = select.select(
            table, estimator, sizes, scoring=scoring, cv=cv, max_evaluations=max_evaluations, jobs=jobs, seed=seed,
            always_include=always_include or (), test_share=test_share, permutations=permutations,
            stability_parts=stability, checkpoint=checkpoint, callback=show,
        )  # fmt: skip
    # One of each place, as a model may warn in every fit.
    for warning in {(one.filename, one.lineno): one for one in caught}.values():
        say(messages, f"warning: {' '.join(str(warning.message).split())}")
    for name, alone in leaks.leaks(table, seed).items():
        say(
            messages,
            f"warning: {name!r} alone predicts {target!r} ({table.scoring} {_number(alone)}); if it is known only when "
            f"{target!r} is, leave it out by --exclude {name!r}",
        )
    _report(console, selection, model, score)
    if out is not None:
        kept = {*selection.selector.get_feature_names_out(), target}
        source.save(kept, out)
        say(console, f"\n{out}: {len(kept) - 1} columns and the target, {len(frame)} rows")


def _sizes(k: str) -> list[int] | str:
    if k == "auto":
        return k
    try:
        return [int(size) for size in k.split(",")]
    except ValueError as error:
        raise ValueError(f"k: expected an integer, several as 5,10,20, or auto, got {k!r}") from error


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:_NEARLY])) + (f" and {len(names) - _NEARLY} more" if len(names) > _NEARLY else "")


def _classes(classes: list[str]) -> str:
    return f"{len(classes)} classes: {', '.join(classes[:5])}" + (", ..." if len(classes) > 5 else "")


def _report(console: Console, selection: "Selection", model: str, score: str) -> None:
    selector = selection.selector
    kept, others = selection.columns(kept=True), selection.columns(kept=False)
    nearly = dict([(name, probability) for name, probability in others.items() if probability > 0.005][:_NEARLY])
    total = len(kept) + len(others)
    path = selector.path_
    lines = []
    if len(path["n_features_to_select"]) > 1:
        nested = selector.outer_scores_.shape[1] > 0
        lines += ["", f"{'k':>4}  {score}, cross-validated" + (", and nested" if nested else "")]
        for place, size in enumerate(path["n_features_to_select"]):
            mean, error = _number(path["mean_test_score"][place]), _number(path["standard_error"][place])
            own = f", {_number(float(selector.outer_scores_[place].mean()))}" if nested else ""
            lines.append(f"{size:>4}  {mean} (standard error {error}){own}")
    lines += ["", f"kept {len(kept)} of {total} columns, {selector.n_fits_} fits of {model}"]
    lines.append(f"cross-validated {score} {_number(selector.best_score_)}, by which the search went")
    if not np.isnan(selector.score_):
        lines.append(f"nested {score} {_number(selector.score_)}, of searches on rows they had not seen")
    if len(nulls := selector.null_scores_):
        lines.append(
            f"{len(nulls)} searches with shuffled targets: {_number(float(nulls.mean()))}, at most "
            f"{_number(float(nulls.max()))} (p = {selector.p_value_:.2g})"
        )
    again = selection.stability
    title = "column"
    width = max(len(title), *map(len, (*kept, *nearly)))
    lines += ["", f"{title:<{width}}  inclusion probability" + ("  chosen on halves" if again else "")]
    chosen = dict(zip(again.names, again.frequencies, strict=True)) if again else {}

    def row(name: str, probability: float) -> str:
        return f"{name:<{width}}  {probability:.2f}" + (f"{'':>19}{chosen[name]:.2f}" if again else "")

    lines += [row(name, probability) for name, probability in kept.items()]
    if nearly:
        lines += ["nearly kept:", *(row(name, probability) for name, probability in nearly.items())]
    if again:
        low, high = again.interval()
        lines.append(
            f"stability {again.index:.2f} (95 %: {low:.2f} to {high:.2f}; chance has 0, the same choice each time 1)"
        )
    lines += _stand_ins(selector)
    lines += ["", f"{score} on the {selection.num_test} rows held out"]
    lines.append(f"  no column: {_number(selection.nothing)}")
    lines.append(f"  all {total} columns: {_number(selection.everything)}")
    if draws := selection.random:
        lines.append(
            f"  {len(kept)} random columns: {_number(float(np.mean(draws)))} ± {_number(float(np.std(draws, ddof=1)))} "
            f"(mean ± standard deviation of {len(draws)} draws)"
        )
    if math.isnan(selection.p_value):
        verdict = "as this score is not defined on these rows"
    else:
        better = "no better" if selection.p_value > _CHANCE else "better"
        verdict = f"{better} than chance (p = {selection.p_value:.3g})"
    lines.append(f"  the {len(kept)} kept: {_number(selection.kept)}, {verdict}")
    for line in lines:
        say(console, line)


def _stand_ins(selector: "KSubsetSelector") -> list[str]:
    """What could replace a column at no loss that its error would not explain."""
    level = [one for one in selector.substitutes() if one.loss <= one.standard_error]
    best = {one.kept: one for one in reversed(level)}
    lines = ["could stand in, at no loss beyond its error:"] if best else []
    return lines + [
        f"  {one.stand_in[0]} for {one.kept[0]} ({-one.loss:+.3f} ± {one.standard_error:.3f})" for one in best.values()
    ]


def _number(value: float) -> str:
    return f"{value:.3f}" if value == 0 or 0.001 <= abs(value) < 1000 else f"{value:.3g}"
