"""Pure tensor functions: batch dimensions first, items last; nothing here knows of modules or distributions."""

from ksubset.numerics.joint import covariance, covariance_product, joint_inclusion_probabilities
from ksubset.numerics.marginals import logits_from_marginals
from ksubset.numerics.moments import (
    exclusion_probabilities,
    inclusion_probabilities,
    log_normalizer,
    log_poisson_binomial,
)
from ksubset.numerics.sampling import Sampler
from ksubset.numerics.tilt import tilt
from ksubset.numerics.topk import top_k

__all__ = [
    "Sampler",
    "covariance",
    "covariance_product",
    "exclusion_probabilities",
    "inclusion_probabilities",
    "joint_inclusion_probabilities",
    "log_normalizer",
    "log_poisson_binomial",
    "logits_from_marginals",
    "tilt",
    "top_k",
]
