"""A run for other programs: what they read of it is what the store holds."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from collections import Counter
from itertools import pairwise
from pathlib import Path

import networkx as nx
import pytest

import netdfl
from netdfl.core.errors import InputError
from netdfl.exports.export import export
from netdfl.record.messages import count_by_link
from netdfl.record.run import Run
from netdfl.scenario.load import loads
from tests.warm import warm_python

SCENARIO = """
schema: netdfl/1
name: traced
seed: 5
nodes: 5
rounds: 8
world: {kind: simulated, compute: {kind: uniform, low: 5ms, high: 20ms}}
task: {kind: consensus, dim: 30}
algorithm: sgp
topology: {kind: exponential}
wait: {for: all, deadline: 100ms}
links: {default: {latency: 5ms, loss: 10%}}
report: {tensorboard: true}
events:
  - {crash: 2, at: 60ms, restart_after: 50ms}
  - {pause: 1, at: 80ms, for: 30ms}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    pytest.importorskip("tensorboardX", reason="the run writes event files: pip install 'netdfl[tensorboard]'")
    return netdfl.run(loads(SCENARIO), out=tmp_path_factory.mktemp("runs") / "run", page=False).run


def count(run: Run, query: str) -> int:
    ((number,),) = run.rows(f"SELECT count(*) FROM {query}")
    return int(number)


def test_perfettos_classes_read_the_trace_and_count_what_the_store_has(run: Run, tmp_path: Path) -> None:
    schema = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="pip install perfetto")
    trace = schema.Trace()
    trace.ParseFromString(Path(export(run, "trace", out=str(tmp_path / "t.pftrace"))).read_bytes())
    names = {p.track_descriptor.uuid: p.track_descriptor.name for p in trace.packet if p.HasField("track_descriptor")}
    assert {f"node {node}" for node in range(5)} <= set(names.values())
    events = [p.track_event for p in trace.packet if p.HasField("track_event")]
    assert all(event.track_uuid in names for event in events)
    begun = Counter(event.name.split()[0] for event in events if event.type == event.TYPE_SLICE_BEGIN)
    assert begun["waiting"] == count(run, "waits WHERE until_s > since_s")
    assert begun["round"] == count(run, "metrics WHERE name = 'round_s'")
    assert begun["training"] == count(run, "metrics WHERE name = 'train_s' AND value > 0")
    assert begun["down"] == count(run, "events WHERE kind = 'crash'") == 1
    assert begun["paused"] == count(run, "events WHERE kind = 'pause'") == 1
    assert sum(event.type == event.TYPE_SLICE_END for event in events) == sum(begun.values())
    arrived = count(run, "messages WHERE arrived_s IS NOT NULL")
    leave = Counter(flow for event in events for flow in event.flow_ids)
    come = Counter(flow for event in events for flow in event.terminating_flow_ids)
    assert leave == come
    assert len(leave) == sum(leave.values()) == arrived
    dropped = [event for event in events if " dropped:" in event.name]
    assert len(dropped) == count(run, "messages WHERE fate LIKE 'dropped%'") > 0
    times = [p.timestamp for p in trace.packet if p.HasField("track_event")]
    assert times == sorted(times)
    values = [event.double_counter_value for event in events if event.type == event.TYPE_COUNTER]
    assert len(values) == count(
        run, "metrics WHERE node IS NULL AND name IN ('consensus_distance', 'weight_sum', 'error')"
    )


def test_training_fills_times_without_waits(run: Run) -> None:
    from netdfl.exports.course import TraceSpan, TrackLane, course

    spans = [each for each in course(run) if isinstance(each, TraceSpan) and each.track.lane is TrackLane.DOES]
    of_node = sorted((s.begin_ns, s.end_ns, s.name) for s in spans if s.track.node == 0)
    assert all(one[1] <= other[0] for one, other in pairwise(of_node))
    ((trained,),) = run.rows("SELECT sum(value) FROM metrics WHERE node = 0 AND name = 'train_s'")
    assert sum(end - begin for begin, end, name in of_node if name == "training") == pytest.approx(1e9 * trained)


def test_a_chrome_trace_has_the_same(run: Run, tmp_path: Path) -> None:
    trace = json.loads(Path(export(run, "trace", "json", str(tmp_path / "t.json"))).read_text())
    phases = Counter(event["ph"] for event in trace["traceEvents"])
    assert phases["s"] == phases["f"] == count(run, "messages WHERE arrived_s IS NOT NULL")
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X" and event["name"].startswith("waiting")]
    assert len(spans) == count(run, "waits WHERE until_s > since_s")


def test_a_stalled_wait_lasts_to_the_end_of_the_trace(tmp_path: Path) -> None:
    from netdfl.exports.course import TraceSpan, course

    sets = ["wait.deadline=none", "report.tensorboard=false", "algorithm=dpsgd", "topology=ring", "events=[]"]
    stalled = netdfl.run(loads(SCENARIO, sets), out=tmp_path / "stalled", page=False).run
    assert stalled.result["stalls"] or stalled.result["deadlocks"]
    found = [each for each in course(stalled) if isinstance(each, TraceSpan) and each.name.endswith("to the end")]
    assert found
    assert all(span.details["stall"] for span in found)


def test_the_graph_is_read_by_networkx(run: Run, tmp_path: Path) -> None:
    graph = nx.read_graphml(export(run, "graph", out=str(tmp_path / "g.graphml")), node_type=int)
    links = {link.edge: link for link in count_by_link(run)}
    assert {edge for edge in graph.edges if graph.edges[edge].get("messages")} == set(links)
    for edge, link in links.items():
        assert graph.edges[edge]["lost"] == link.counts.lost
        assert graph.edges[edge]["bytes"] == link.nbytes


@pytest.mark.parametrize("live", [True, False])
def test_tensorboard_reads_the_event_files(run: Run, live: bool, tmp_path: Path) -> None:
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="pip install tensorboard"
    )
    folder = str(run.path / "tensorboard") if live else export(run, "tensorboard", out=str(tmp_path / "tb"))
    events = reader.EventAccumulator(folder)
    events.Reload()
    written = {(s.step, s.value) for s in events.Scalars("fleet/consensus_distance")}
    rows = run.rows("SELECT round, value FROM metrics WHERE node IS NULL AND name = 'consensus_distance'")
    assert len(written) == len(rows)
    for round, value in rows:
        assert any(step == round and got == pytest.approx(value, rel=1e-6) for step, got in written)
    assert len(events.Scalars("node_003/round_s")) == count(run, "metrics WHERE node = 3 AND name = 'round_s'")
    assert "nodes_mean/round_s" in events.Tags()["scalars"]


def test_mlflow_has_the_run(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="pip install 'netdfl[mlflow]'")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (tmp_path / "tracked").as_uri()
    made = mlflow.MlflowClient(uri).get_run(export(run, "mlflow", out=uri))
    assert made.data.tags["verdict"] == run.result["verdict"]
    assert made.data.params["algorithm.name"] == "sgp"
    ((last,),) = run.rows(
        "SELECT arg_max(value, round) FROM metrics WHERE node IS NULL AND name = 'consensus_distance'"
    )
    assert made.data.metrics["fleet/consensus_distance"] == pytest.approx(last)


def test_standard_output_has_the_bytes_and_nothing_else(run: Run) -> None:
    def printed(*words: str) -> bytes:
        command = [warm_python(), "-m", "netdfl", "export", str(run.path), *words, "--out", "-"]
        return subprocess.run(command, capture_output=True, check=True).stdout

    rows = list(csv.DictReader(io.StringIO(printed("messages").decode())))
    assert len(rows) == count(run, "messages")
    assert "traceEvents" in json.loads(printed("trace", "--format", "json"))


def test_by_default_files_have_the_name_of_their_run(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = run.path.name
    assert [export(run, what) for what in ("messages", "waits", "graph")] == [
        f"{name}-messages.csv",
        f"{name}-waits.csv",
        f"{name}.graphml",
    ]
    assert (tmp_path / f"{name}-messages.csv").read_text().startswith("src,")


def test_what_is_not_there_is_named(run: Run, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a run has no 'nonsense': use one of .*messages.*model.*trace"):
        export(run, "nonsense")
    with pytest.raises(InputError, match="'csv' is no format of trace; choose one of pftrace, json"):
        export(run, "trace", "csv")
    with pytest.raises(InputError, match="can't be written"):
        export(run, "trace", out=str(tmp_path / "no" / "folder"))
    with pytest.raises(InputError, match="name a folder"):
        export(run, "tensorboard", out="-")
