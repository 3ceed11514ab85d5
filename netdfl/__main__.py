"""`python -m netdfl`: the command line, where the script `netdfl` is not on the path."""

from __future__ import annotations

from netdfl.cli import main

if __name__ == "__main__":
    main()
