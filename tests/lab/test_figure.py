from ksubset.lab import figure, measurements
from ksubset.lab.results import Result


def test_every_estimator_has_a_line() -> None:
    assert list(figure._LINES) == list(measurements.ESTIMATORS)
    assert len(set(figure._LINES.values())) == len(figure._LINES)


def test_the_figure_has_a_column_for_each_problem(result: Result) -> None:
    drawn = figure.figure({"toy": result, "again": result})
    assert len(drawn.axes) == 4
    left = {line.get_label(): line for line in drawn.axes[0].get_lines()}
    assert list(left["LeaveOneOut"].get_xdata()) == [2, 8]
    assert list(left["LeaveOneOut"].get_ydata()) == [8.0, 2.0]
    assert list(left["SIMPLE"].get_xdata()) == [16]
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == [
        "LeaveOneOut",
        "SIMPLE",
        "Hybrid(ReplayedSlope)",
    ]
