"""Select columns while a network is trained on them."""
