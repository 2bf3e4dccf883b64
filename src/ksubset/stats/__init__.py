"""Statistics whose likelihood is the normaliser of k-subsets. Needs the extra ``stats``."""

from ksubset._support.extras import require

for _package in ("pandas", "scipy", "numba"):
    require(_package, "stats")

from ksubset.stats.conditional_logit import ConditionalLogit, ConditionalLogitResults  # noqa: E402
from ksubset.stats.cox import CoxPH, CoxPHResults  # noqa: E402
from ksubset.stats.designs import SampleEstimate, SamplingDesign, pps_sample  # noqa: E402
from ksubset.stats.losses import conditional_logit_loss, cox_exact_loss  # noqa: E402

__all__ = [
    "ConditionalLogit",
    "ConditionalLogitResults",
    "CoxPH",
    "CoxPHResults",
    "SampleEstimate",
    "SamplingDesign",
    "conditional_logit_loss",
    "cox_exact_loss",
    "pps_sample",
]
