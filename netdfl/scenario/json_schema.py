"""The JSON Schema of scenario files, for editors: `python -m netdfl.scenario.json_schema [--check]`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from netdfl.core.files import write_or_check
from netdfl.scenario.model.choices import inlined
from netdfl.scenario.model.schema import SCHEMA, Scenario

FILE = Path(__file__).parent / f"{SCHEMA.replace('/', '-')}.schema.json"


def text() -> str:
    """Return the JSON schema of scenario files, including every component (algorithm, dataset ...) by name."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"netdfl scenario ({SCHEMA})",
        **inlined(Scenario.model_json_schema(by_alias=True)),
    }
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.exit(write_or_check(FILE, text(), "python -m netdfl.scenario.json_schema", sys.argv[1:]))
