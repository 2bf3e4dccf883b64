"""The code of the page on distributions does what it says, and so does its table of what estimators use."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import ksubset
from ksubset import DPS, GumbelTopK, KSubset, SubsetDistribution, expectation

PAGE = (Path(__file__).parents[2] / "docs" / "distributions.md").read_text()


def test_the_examples_print_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    code = "".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    printed = capsys.readouterr().out.splitlines()
    promised = re.findall(r"^print\(.*\)  # (tensor\(.*?\)(?=,|$))", code, re.MULTILINE)
    assert printed == promised


def test_windows_are_an_exponential_family() -> None:
    code = re.search(r"```python\n(from ksubset import SubsetDistribution.*?)\n\ny = ", PAGE, re.DOTALL)
    assert code is not None
    namespace: dict[str, Any] = {"torch": torch}
    exec(code[1], namespace)
    w = torch.randn(2, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    dist = namespace["Window"](3, w)
    windows = torch.tensor([[1.0, 1, 1, 0, 0], [0, 1, 1, 1, 0], [0, 0, 1, 1, 1]])
    p = dist.log_density(windows[:, None]).exp()
    torch.testing.assert_close(p.sum(0), torch.ones(2, dtype=torch.float64))
    mean = torch.einsum("sb,sn->bn", p.float(), windows)
    torch.testing.assert_close(dist.mean, mean)
    vector = torch.tensor([1.0, -2, 0.5, 3, 1])
    (product,) = torch.autograd.grad(dist.mean, w, vector.expand(2, 5), retain_graph=True)
    torch.testing.assert_close(dist.covariance_product(vector), product)
    share = dist.sample((20_000,)).mean(0)
    assert ((share - mean).abs() < 0.02).all()
    assert (dist.sample_distinct(3).sum(0) == torch.tensor([1.0, 2, 3, 2, 1])).all()


def _table() -> list[tuple[str, set[str]]]:
    rows = re.findall(r"^\| (`.*) \| (`.*) \|$", PAGE.partition("besides")[2], re.MULTILINE)
    words = [[re.findall(r"`(\w+)`", cell) for cell in row] for row in rows]
    return [(name, set(members)) for names, members in words for name in names]


def test_the_table_has_all_estimators() -> None:
    assert {name for name, _ in _table()} == {
        name
        for name in ksubset.estimators.__all__
        if isinstance(getattr(ksubset, name), type)
        and issubclass(getattr(ksubset, name), ksubset.Estimator)
        and name != "Estimator"
    }


@pytest.mark.parametrize(("name", "members"), _table())
def test_estimators_use_the_members_that_the_table_says(name: str, members: set[str]) -> None:
    used = set()

    class Recorded(KSubset):
        def __getattribute__(self, attribute: str) -> Any:
            if attribute in SubsetDistribution.__abstractmethods__ | {"to_rows", "from_rows"}:
                used.add(attribute)
            return super().__getattribute__(attribute)

    make: Any = getattr(ksubset, name)
    dist = KSubset(2, torch.zeros(4, requires_grad=True))
    dist.__class__ = Recorded
    used.clear()
    expectation(lambda z: z[..., 0] ** 2, dist, make(0.5) if make in (GumbelTopK, DPS) else make(), 3).backward()
    # What a KSubset uses of its own members to compute them is no matter of the estimator.
    assert used - {"logits", "to_rows", "from_rows"} <= members
    assert members <= used
