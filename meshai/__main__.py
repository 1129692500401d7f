"""``python -m meshai`` is the ``meshai`` command."""

from meshai.cli import main

if __name__ == "__main__":
    main()
