import json
from pathlib import Path
from typing import Any

import pytest

from ksubset.lab import results
from ksubset.lab.results import Result


def test_files_can_be_read_again(result: Result, tmp_path: Path) -> None:
    path = tmp_path / "measurements.json"
    results.save({"toy": result}, path)
    assert results.load(path) == {"toy": result}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("text", ["nonsense", "[]", '{"toy": {"settings": {}}}', '{"toy": 3}'])
def test_other_files_are_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "measurements.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"measurements\.json: expected measurements written by 'ksubset lab'"):
        results.load(path)


@pytest.mark.parametrize(
    ("place", "value"), [(("measurements", 0, 0), "abc"), (("measurements",), []), (("environment",), None)]
)
def test_damaged_measurements_are_named(result: Result, tmp_path: Path, place: tuple[Any, ...], value: Any) -> None:
    path = tmp_path / "measurements.json"
    results.save({"toy": result}, path)
    content = json.loads(path.read_text())
    *way, last = "toy", *place
    at = content
    for step in way:
        at = at[step]
    at[last] = value
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"measurements\.json: expected measurements written by 'ksubset lab'"):
        results.load(path)


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match=r"reference: expected an integer of 1000 or more, got 1"):
        results.Settings(reference=1)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"seeds": ()}, r"seeds: expected different integers, got \[\]"),
        ({"seeds": (1, 1)}, r"seeds: expected different integers, got \[1, 1\]"),
        ({"samples": (2.5,)}, r"samples: expected different integers, got \[2\.5\]"),
        ({"repeats": 2.5}, r"repeats: expected an integer of 2 or more, got 2\.5"),
    ]
    for given, message in wrong:
        with pytest.raises(ValueError, match=message):
            results.Settings(**given)


def test_an_estimator_that_is_unknown_is_named(result: Result, tmp_path: Path) -> None:
    path = tmp_path / "measurements.json"
    results.save({"toy": result}, path)
    path.write_text(path.read_text().replace(f'"{result.measurements[0].estimator}"', '"magic"'))
    with pytest.raises(ValueError, match=r"expected measurements written by 'ksubset lab', got .*'magic'"):
        results.load(path)
