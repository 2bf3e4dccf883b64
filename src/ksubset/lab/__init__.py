"""The laboratory: bias, variance, error and cost of gradient estimators, on problems whose gradient is known."""
