"""The progress of a proof on disk, so that an interrupted one can be continued."""

from __future__ import annotations

import json
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from netdfl.core.errors import InputError
from netdfl.core.files import OTHER_OUT, read_plain, version_of, write_whole, writing
from netdfl.prove.enumeration import AnsweredPart
from netdfl.prove.proof import ScenarioProof
from netdfl.scenario.loading.identity import scenario_hash
from netdfl.scenario.loading.sources import hash_of_sources

FILE = "progress.json"
_PARTS = TypeAdapter(dict[str, AnsweredPart])


class ProofJournal:
    """The progress of a proof, kept in a folder.

    Progress of another proof, or by another version of netdfl, is ignored.
    """

    def __init__(self, folder: Path, proof: ScenarioProof) -> None:
        """Read the earlier progress of `proof` in `folder`; none if the file is damaged."""
        self._file, self._key = folder / FILE, _key(proof)
        try:
            self.answered = _PARTS.validate_json(read_plain(self._file)).get(self._key)
        except (OSError, InputError, ValidationError):
            self.answered = None

    def keep(self, answered: AnsweredPart | None) -> None:
        """Store the answered part of the proof; with None, nothing is left to continue, and the file is removed."""
        with writing(self._file.parent, more=OTHER_OUT):
            if answered is None:
                self._file.unlink(missing_ok=True)
                return
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._file, (json.dumps({self._key: asdict(answered)}) + "\n").encode())


def _key(proof: ScenarioProof) -> str:
    """Return a hash of everything on which the schedules of a proof and their order depend."""
    said = {
        "scenario": scenario_hash(proof.scenario),
        "sources": hash_of_sources(proof.scenario),
        "bound": str(proof.bound),
        "properties": [each.name for each in proof.properties],
        "without": list(proof.without),
        "netdfl": version_of("netdfl"),
    }
    return sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
