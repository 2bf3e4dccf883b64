"""Digests of what a stored result depends on."""

import threading

import numpy as np
import pytest
import torch

from ksubset._support.identity import differences, digests

pytest.importorskip("joblib", reason="joblib is not installed")


def digest(value: object) -> str:
    return digests({"value": value})["value"]


def test_digests_are_of_content() -> None:
    assert digest(np.arange(3)) == digest(np.arange(3)) != digest(np.arange(3.0))
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1, "b": 3})


def test_digests_are_those_of_equal_values() -> None:
    assert digest(np.int64(3)) == digest(3) != digest(np.int64(4))
    assert digest({"rate": [np.float64(0.1)]}) == digest({"rate": [0.1]})
    table = np.arange(6.0).reshape(2, 3)
    assert digest(np.asfortranarray(table)) == digest(table) != digest(np.asfortranarray(table.T))


def test_digests_of_tensors_are_of_content() -> None:
    numbers = torch.arange(6.0)
    assert digest(numbers) == digest(numbers.clone().requires_grad_()) != digest(numbers.double())
    assert digest([numbers]) == digest([numbers.clone()]) != digest([numbers.view(2, 3)])
    assert digest(numbers[::2]) == digest(torch.tensor([0.0, 2.0, 4.0]))


@pytest.mark.parametrize("value", [lambda: 0, threading.Lock(), [lambda: 0], {"a": {"b": threading.Lock()}}])
def test_what_has_no_name_has_no_digest(value: object) -> None:
    with pytest.raises(TypeError, match=f"^value: expected a value that can be pickled, got {type(value).__name__}"):
        digest(value)


def test_differences_are_named() -> None:
    assert differences({"a": "1", "b": "2"}, {"b": "2", "a": "1"}) == []
    assert differences({"b": "2", "a": "1", "c": "3"}, {"d": "4", "c": "3", "a": "2"}) == ["b", "a", "d"]
