"""Select columns of a file."""
