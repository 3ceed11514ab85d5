"""Generate `netdfl/transport/v1` from the .proto files; `--check` fails where the committed code differs."""

from __future__ import annotations

import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("netdfl/v1/data.proto", "netdfl/v1/control.proto", "netdfl/v1/meeting.proto")
TARGET = ROOT / "netdfl" / "transport" / "v1"
INIT = '"""Generated from protos/netdfl/v1 by protos/generate.py."""\n'


def generate() -> dict[str, str]:
    """The generated modules and stubs, by file name."""
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as out:
        arguments = ["protoc", f"-I{ROOT / 'protos'}", f"--python_out={out}", f"--pyi_out={out}", *SOURCES]
        if protoc.main(arguments) != 0:
            raise SystemExit("protoc failed; its message stands above")
        made = {path.name: path.read_text() for path in (Path(out) / "netdfl" / "v1").iterdir()}
    return {"__init__.py": INIT, **made}


def main(check: bool) -> int:
    """Write the generated code, or with `check` compare it with what is there. Returns the exit code."""
    made = generate()
    if not check:
        TARGET.mkdir(parents=True, exist_ok=True)
        for name, text in made.items():
            (TARGET / name).write_text(text)
        return 0
    stale = [name for name, text in made.items() if not _same(TARGET / name, text)]
    if stale:
        print(
            f"{TARGET.relative_to(ROOT)} differs from the .proto files in {', '.join(sorted(stale))}; run "
            f"`python protos/generate.py` and commit the result (here: grpcio-tools {version('grpcio-tools')})"
        )
    return 1 if stale else 0


def _same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text() == text


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
