"""statsmodels' conditional logit, wherever it can compute one, and the values that it is tested with."""

import numpy as np
import pytest

from ksubset.stats import ConditionalLogit

peer = pytest.importorskip("statsmodels.discrete.conditional_models")

# The small data of statsmodels' tests of its conditional models.
Y, G = [0, 1, 0, 1, 0, 1, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1, 2, 2, 2, 2]
X = np.array([[0, 1, 0, 0, 1, 1, 0, 0, 1, 0], [0, 0, 1, 0, 0, 1, 0, 1, 1, 1]]).T


def test_values_that_its_tests_have_from_stata() -> None:
    one = ConditionalLogit(Y, X[:, 0], G).fit()
    np.testing.assert_allclose([one.params.item(), one.bse.item()], [0.9272407, 1.295155], rtol=1e-6)
    two = ConditionalLogit(Y, X, G).fit()
    np.testing.assert_allclose(two.params, [1.011074, 1.236758], rtol=1e-6)
    np.testing.assert_allclose(two.bse, [1.420784, 1.361738], rtol=1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("strata", "size", "columns"), [(25, 8, 2), (60, 4, 3), (6, 30, 1)])
def test_random_data(strata: int, size: int, columns: int) -> None:
    rng = np.random.RandomState(34234)
    x = rng.normal(size=(strata * size, columns))
    y, g = rng.randint(0, 2, size=len(x)), rng.permutation(np.repeat(np.arange(strata), size))
    ours, theirs = ConditionalLogit(y, x, g).fit(), peer.ConditionalLogit(y, x, groups=g)
    params = ours.params.to_numpy()
    assert ours.llf == pytest.approx(theirs.loglike(params), rel=1e-10)
    np.testing.assert_allclose(theirs.score(params), 0, atol=1e-7)
    np.testing.assert_allclose(ours.bse, np.sqrt(np.diag(np.linalg.inv(-theirs.hessian(params)))), rtol=1e-4)
    # Its own search ends at a gradient of 1e-5.
    np.testing.assert_allclose(ours.params, theirs.fit(disp=0).params, atol=2e-4)


def test_the_summary_has_its_layout() -> None:
    ours = str(ConditionalLogit(Y, X, G).fit().summary()).splitlines()
    theirs = str(peer.ConditionalLogit(np.array(Y), X, groups=np.array(G)).fit(disp=0).summary()).splitlines()
    assert ours[0].strip() == theirs[0].strip()
    heading = "coef std err z P>|z| [0.025 0.975]"
    row = [[i for i, line in enumerate(text) if " ".join(line.split()) == heading] for text in (ours, theirs)]
    assert [len(found) for found in row] == [1, 1]
    values = [text[found[0] + 2].split()[1:] for text, found in zip((ours, theirs), row, strict=True)]
    np.testing.assert_allclose(*(np.array(line, float) for line in values), atol=0.0011)
