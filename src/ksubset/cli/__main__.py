"""``python -m ksubset.cli``."""

from ksubset.cli import main

if __name__ == "__main__":
    main()
