"""Whatever reads a user's file reads it the same, whichever program left it: its marks, its ends of lines, packed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netdfl.core.errors import NetdflError
from netdfl.core.given_files import given_text
from netdfl.core.rng import Streams
from netdfl.links.rules.latency import empirical
from netdfl.links.rules.loss import Trace
from netdfl.links.rules.mahimahi import mahimahi
from netdfl.scenario.build import compile_schedule
from netdfl.scenario.json_schema import FILE
from netdfl.scenario.load import load
from netdfl.scenario.measured.graph_file import read_graph_file
from netdfl.scenario.measured.table_file import read_table_file
from netdfl.standalone.request import read_peers
from netdfl.study.plan import load_study
from netdfl.topology.static import edge_list, gml, graphml
from netdfl.training.data.on_disk import table
from netdfl.training.data.own import shared
from netdfl.training.data.partitions import given
from netdfl.worlds.simulated.compute import measured
from netdfl.worlds.simulated.compute import table as compute_table
from tests.topology.test_sndlib import TRIANGLE

SCENARIO = {"schema": "netdfl/1", "name": "read", "nodes": 3, "rounds": 2, "world": "simulated", "algorithm": "dpsgd"}
SCENARIO |= {"task": {"kind": "consensus", "dim": 2}, "topology": "full"}
GRAPHML = """<?xml version="1.0"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><key id="l" for="edge" attr.name="latency" attr.type="double"/>
<graph edgedefault="undirected"><node id="0"/><node id="1"/><node id="2"/>
<edge source="0" target="1"><data key="l">4</data></edge><edge source="1" target="2"/></graph></graphml>
"""
SITES = GRAPHML.replace('target="2"/>', 'target="2"><data key="l">5</data></edge>')
GML = "graph [\n node [ id 0 ]\n node [ id 1 ]\n node [ id 2 ]\n"
GML += " edge [ source 0 target 1 latency 4 ]\n edge [ source 1 target 2 ]\n]\n"
CONTACTS = "start_s,end_s,src,dst\n0,0.3,0,1\n0.2,0.4,1,2\n"
STUDY = f"schema: netdfl/study/1\nname: y\nsweeps:\n  s: {{scenario: {json.dumps(SCENARIO)}, seeds: 1}}\n"
WRITTEN = json.dumps(SCENARIO, indent=1).replace("{", "{\n") + "\n"


def events(event: dict[str, object]) -> Callable[[str], object]:
    def read(file: str) -> object:
        found = compile_schedule(load(SCENARIO | {"events": [event | {"file": file}]}))
        return [(each.action, each.at_ns, repr(each.parameters), repr(each.blocks)) for each in found]

    return read


def rows(file: str) -> object:
    found = shared(table(Path(), file=file, target="price"))
    x, y = found.train.take(__import__("torch").arange(len(found.train)))
    return x.tolist(), y.tolist(), {name: list(values) for name, values in found.columns.items()}


def study(file: str) -> object:
    made = Path(file).parent / "made"
    made.mkdir()
    return [(plan.name, plan.seeds, plan.scenario.read_text()) for plan in load_study(Path(file), made)]


def facts(read: Callable[..., Any], **how: object) -> Callable[[str], object]:
    return lambda file: read(file, delay_unit="ms", rate_unit="Mbit", **how).facts


READERS: Mapping[str, tuple[str, str, Callable[[str], object]]] = {
    "kind measured": ("a.json", '{"schema": "netdfl/compute/1",\n "train_ns": [5, 7, 9]}\n',
                      lambda file: [measured(Streams(0), file=file)(node, 0) for node in range(3)]),  # type: ignore[operator]
    "kind table": ("a.csv", "node,compute_ms\n0,5\n1,7\n2,9\n",
                   lambda file: [compute_table(Streams(0), file=file)(node, 0) for node in range(3)]),
    "kind given": ("a.json", "[[0, 2],\n [1]]\n",
                   lambda file: [part.tolist() for part in given(np.zeros(3, np.int64), 2, Streams(0), file=file)]),
    "name table": ("a.csv", "rooms,city,price\n1,a,2.5\n2,b,3.5\n", rows),
    "kind edge_list": ("a.csv", "0,1\n1,2\n", lambda file: edge_list(3, Streams(0), file=file).graph(0).edges),
    "kind gml": ("a.gml", GML, lambda file: gml(3, Streams(0), file=file).graph(0).edges),
    "kind graphml": ("a.graphml", GRAPHML, lambda file: graphml(3, Streams(0), file=file).graph(0).edges),
    "model trace": ("a.txt", "0\n1\n0\n", lambda file: Trace(0, file=file).losses),
    "dist empirical": ("a.csv", "delay_ms\n2\n5\n", lambda file: repr(empirical(file=file).quantile)),
    "kind mahimahi": ("a.txt", "2\n3\n5\n", lambda file: mahimahi(file=file)),
    "links_from graph": ("a.graphml", GRAPHML, facts(read_graph_file, by_distance=False)),
    "links_from sndlib": ("a.xml", TRIANGLE, facts(read_graph_file, by_distance=False)),
    "links_from json": ("a.json", '{"a": {"b": 10},\n "b": {"a": 8}}\n', facts(read_table_file, values="rtt")),
    "links_from table": ("a.csv", "src,dst,rtt\n0,1,10\n1,2,20\n", facts(read_table_file, values="rtt")),
    "links_from iperf": ("a.csv", "t,10.0.0.1,5,10.0.0.2,4,3,0-9,1,8\nt,10.0.0.2,5,10.0.0.1,4,3,0-9,1,9\n",
                         facts(read_table_file, values="rtt")),
    "links_from matrix": ("a.csv", "0 8\n9 0\n", facts(read_table_file, values="rtt")),
    "underlay": ("a.graphml", SITES, lambda file: load(SCENARIO | {"underlay": {"file": file}}).underlay),
    "churn": ("a.csv", "node,leave_s,join_s\n1,0.1,0.2\n", events({"from": "0s", "to": "1s", "churn": "all"})),
    "contact_plan": ("a.csv", CONTACTS, events({"from": "0s", "to": "1s", "contact_plan": "0..2--0..2"})),
    "trace": ("a.txt", "2\n3\n5\n", events({"from": "0s", "to": "20ms", "trace": "0->1", "interval": "2ms"})),
    # what no scenario names
    "a scenario": ("a.yaml", WRITTEN, lambda file: load(file).topology),
    "a study": ("a.yaml", STUDY, study),
    "peers": ("a.yaml", "0: a:5000\n1: b:5000\n", lambda file: read_peers(Path(file))),
}  # fmt: skip
"""By the part of a scenario that names the file: its name, what is in it, and how it is read."""
NO_TEXT = {"name arrays"}


def utf8(text: str) -> bytes:
    return text.encode()


LEFT: Mapping[str, tuple[Callable[[str], bytes], str]] = {
    "byte order mark": (lambda text: b"\xef\xbb\xbf" + utf8(text), ""),
    "lines of Windows": (lambda text: utf8(text.replace("\n", "\r\n")), ""),
    "no end of the last line": (lambda text: utf8(text.removesuffix("\n")), ""),
    "all of that": (lambda text: b"\xef\xbb\xbf" + utf8(text.removesuffix("\n").replace("\n", "\r\n")), ""),
    "UTF-16": (lambda text: text.replace("\n", "\r\n").encode("utf-16"), ""),
    "packed": (lambda text: gzip.compress(utf8(text)), ".gz"),
}


@pytest.mark.parametrize("left", LEFT)
@pytest.mark.parametrize("reader", READERS)
def test_a_file_means_the_same_however_its_bytes_were_left(reader: str, left: str, tmp_path: Path) -> None:
    name, text, read = READERS[reader]
    (tmp_path / name).write_bytes(utf8(text))
    plain = read(str(tmp_path / name))
    written, ending = LEFT[left]
    other = tmp_path / "other"
    other.mkdir()
    (other / f"{name}{ending}").write_bytes(written(text))
    assert read(str(other / f"{name}{ending}")) == plain


def named_files(schema: object, key: str = "") -> Iterator[str]:
    """Which part of a scenario names a file: its discriminator and name, or the key that it stands at."""
    if isinstance(schema, dict):
        properties = schema.get("properties", {})
        if isinstance(properties, dict) and "file" in properties:
            kinds = [f"{name} {each['const']}" for name, each in properties.items() if "const" in each]
            yield (kinds or [next((name for name in schema.get("required", ()) if name != "file"), key)])[0]
        for name, each in schema.items():
            yield from named_files(each, key if name in ("anyOf", "properties", "items") else name)
    for each in schema if isinstance(schema, list) else ():
        yield from named_files(each, key)


def test_every_file_that_a_scenario_names_has_its_reader_above() -> None:
    named = set(named_files(json.loads(FILE.read_text())))
    assert len(named) > 10
    assert named - {key.removesuffix(f" {key.split()[-1]}") for key in READERS if key.startswith("links_from")} == (
        {key for key in READERS if not key.startswith(("links_from", "a ", "peers"))} | NO_TEXT
    )


@pytest.mark.parametrize("reader", sorted(set(READERS)))
def test_what_is_no_text_is_refused_with_the_files_name(reader: str, tmp_path: Path) -> None:
    name, text, read = READERS[reader]
    (tmp_path / name).write_bytes(utf8(text)[:3] + b"\xff\xfe\xfa\xc3" + utf8(text)[3:])
    with pytest.raises((ValueError, NetdflError), match=name):
        read(str(tmp_path / name))


def test_a_damaged_packed_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"0,1\n" * 99)[:-9])
    with pytest.raises(ValueError, match=r"a\.gz is packed by gzip, and damaged"):
        given_text(tmp_path / "a.gz")
