"""`python -m tasklib` is the `tasklib` command."""

from tasklib.cli import main

if __name__ == "__main__":
    main()
