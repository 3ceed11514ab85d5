"""`python -m netdfl.cli`: the command line, in the form that node processes and images call."""

from __future__ import annotations

from netdfl.cli import main

if __name__ == "__main__":
    main()
