"""In real processes too a node under an automatic deadline asks for what is missing, and cuts off nobody."""

from __future__ import annotations

from pathlib import Path

from netdfl.running.run import run
from netdfl.scenario.load import loads

LOSSY = """
schema: netdfl/1
name: asking
nodes: 6
rounds: 15
world: {kind: processes}
task: {kind: consensus, dim: 4, dtype: float64}
algorithm: dpsgd
topology: {kind: random_sym, neighbors: 3}
links: {default: {latency: 20ms, loss: 10%}}
wait: {deadline: auto}
"""


def test_lost_messages_are_found_by_asking(tmp_path: Path) -> None:
    finished = run(loads(LOSSY), out=tmp_path / "run", page=False)
    fates = dict(
        finished.run.rows("SELECT split_part(fate, ':', 1), count(*) FROM messages WHERE kind = 'data' GROUP BY 1")
    )
    assert fates["dropped"] > 10
    assert fates.keys() <= {"dropped", "delivered"}
    ended = dict(finished.run.rows("SELECT ended, count(*) FROM waits GROUP BY ended"))
    assert ended.keys() <= {"came", "lost"}
    kinds = {kind for (kind,) in finished.run.rows("SELECT DISTINCT kind FROM messages")}
    assert kinds == {"data", "query", "status"}
