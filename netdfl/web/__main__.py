"""`python -m netdfl.web RUN`: the page server next to a run; it prints its address and ends with its standard input."""

import sys
from pathlib import Path

from netdfl.core.errors import InputError
from netdfl.web.serving import serve_beside

if __name__ == "__main__":
    try:
        serve_beside(Path(sys.argv[1]), lambda address: print(address, flush=True))
    except InputError as error:
        print(f"! {error}", flush=True)
        sys.exit(2)
