"""Uses of subsets that depend on the input: explanations, codes, neighbours."""
