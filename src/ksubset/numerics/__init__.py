"""Pure tensor functions: batch dimensions first, items last; nothing here knows of modules or distributions."""

from ksubset.numerics.quadrature import inclusion_probabilities, log_normalizer
from ksubset.numerics.sampling import sample_indices, sampling_table
from ksubset.numerics.tilt import tilt
from ksubset.numerics.topk import top_k

__all__ = ["inclusion_probabilities", "log_normalizer", "sample_indices", "sampling_table", "tilt", "top_k"]
