"""`python -m netdfl.cli`: the command line, as the processes of nodes and images call it."""

from __future__ import annotations

from netdfl.cli import main

if __name__ == "__main__":
    main()
