"""The list of many runs as it is asked for, and the orders that change runs: taken with `--write` alone."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from netdfl.collection.labels import Labels, read_labels
from netdfl.record.directory import hold
from netdfl.running.run import run
from netdfl.scenario.load import loads
from netdfl.web.app import make_app
from netdfl.web.folder import RunFolder
from netdfl.web.many import compare
from netdfl.web.serving import RequestGuard
from tests.agreeing import agreeing

OWN = "127.0.0.1:8000"
SMALL = agreeing("small", 4, 3, "seed: 3\nlinks: {default: {latency: 5ms}}", compute="10ms")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kept") / "run"
    run(loads(SMALL), out=path, page=False)
    return path


@pytest.fixture
def runs(kept: Path, tmp_path: Path) -> Path:
    for name in ("a", "b"):
        shutil.copytree(kept, tmp_path / "runs" / name)
    return tmp_path / "runs"


def many(kept: Path, root: Path, number: int) -> Path:
    """Runs with a scenario and a result alone, of ten learning rates."""
    result = json.loads((kept / "result.json").read_text())
    text = (kept / "scenario.yaml").read_text()
    for i in range(number):
        path = root / f"20260101T{i // 60:02d}{i % 60:02d}00Z-{i}"
        path.mkdir(parents=True)
        (path / "scenario.yaml").write_text(text.replace("dim: 2", f"dim: {i % 10}"))
        (path / "result.json").write_text(json.dumps(result | {"seed": i, "verdict": "pass" if i % 2 else "fail"}))
    return root


def asked(folder: Path, path: str, method: str = "GET", body: bytes = b"", write: bool = True, **more: str) -> Any:
    """The status and text of one answer to a page of our own, unless `more` headers say otherwise."""
    app = RequestGuard(make_app(RunFolder(folder), "secret", write=write), 8000, "secret")
    headers = {"host": OWN, "origin": f"http://{OWN}"} | more
    where, _, query = path.partition("?")
    scope = {
        "type": "http", "method": method, "path": where, "raw_path": where.encode(), "query_string": query.encode(),
        "headers": [(name.encode(), text.encode()) for name, text in headers.items() if text],
    }  # fmt: skip
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    asyncio.run(app(scope, receive, send))
    return sent[0]["status"], b"".join(part.get("body", b"") for part in sent[1:]).decode()


def name_of(folder: Path, place: str) -> str:
    rows = json.loads(RunFolder(folder).listed())["runs"]
    return {row["place"]: row["id"] for row in rows}[place]


def test_a_page_of_a_thousand_runs_has_fifty(kept: Path, tmp_path: Path) -> None:
    root = many(kept, tmp_path / "runs", 1000)
    status, text = asked(root, "/secret/runs")
    found = json.loads(text)
    assert (status, found["total"], found["found"], len(found["runs"])) == (200, 1000, 1000, 50)
    assert [row["seed"] for row in found["runs"][:2]] == [999, 998]
    assert len(text) < 100_000
    for query, seeds in (
        ({"filter": "dim >= 8 pass seed < 30"}, [29, 19, 9]),
        ({"filter": "seed < 3", "order": "up"}, [0, 1, 2]),
        ({"skip": "998"}, [1, 0]),
        ({"sort": "dim", "filter": "seed < 12", "order": "up"}, [0, 10, 1, 11, 2, 3, 4, 5, 6, 7, 8, 9]),
    ):
        rows = json.loads(asked(root, f"/secret/runs?{urlencode(query)}")[1])["runs"]
        assert [row["seed"] for row in rows] == seeds
    groups = json.loads(asked(root, "/secret/runs?by=dim")[1])
    assert [(group["value"], group["runs"]) for group in groups["groups"][:2]] == [("0", 100), ("1", 100)]
    assert groups["groups"][0]["verdicts"] == {"fail": 100}
    assert (groups["runs"], groups["by"], groups["found"]) == ([], "task.dim", 10)


def test_a_filter_that_can_not_be_read_says_so_beside_the_whole_list(runs: Path) -> None:
    found = json.loads(asked(runs, f"/secret/runs?filter={quote('seed <')}")[1])
    assert "can't be read" in found["wrong"]
    assert len(found["runs"]) == 2
    found = json.loads(asked(runs, f"/secret/runs?filter={quote('algoritm.lr > 0.1')}")[1])
    assert found["wrong"] == "no run here has a key 'algoritm.lr'; did you mean 'algorithm.lr'?"


def test_a_column_that_was_chosen_has_its_values_though_all_runs_are_equal_in_it(runs: Path) -> None:
    query = urlencode({"filter": "momentum = 0", "columns": "place,algorithm.lr,momentum,took,gone"})
    found = json.loads(asked(runs, f"/secret/runs?{query}")[1])
    assert (found["wrong"], found["found"], found["keys"]) == ("", 2, [])
    (row, _) = found["runs"]
    assert row["keys"] == {"algorithm.lr": "0.1", "momentum": "0.0", "took": row["duration_s"]}
    assert {"algorithm.lr", "algorithm.momentum"} <= set(found["all_keys"])
    by = json.loads(asked(runs, "/secret/runs?by=seed&columns=place,algorithm.lr")[1])
    assert (by["wrong"], by["found"]) == ("", 1)


def test_metrics_of_models_are_columns_means_of_groups_and_figures_of_a_comparison(runs: Path) -> None:
    result = json.loads((runs / "a/result.json").read_text())
    course = {"last": 0.25, "least": 0.2, "most": 0.9, "mean_last_5": 0.3}
    courses = {"test_mae": course, "id": course, "place": course}  # a task's metrics have other names than these
    (runs / "a/result.json").write_text(json.dumps(result | {"metrics": courses}))
    found = json.loads(asked(runs, "/secret/runs?filter=mae+%3C+1")[1])
    assert found["metrics"] == ["test_mae", "consensus_distance", "train_loss"]
    assert found["usual_metrics"] == ["test_mae"]
    (row,) = found["runs"]
    assert (row["test_mae"], row["place"], row["id"]) == (0.25, "a", name_of(runs, "a"))
    assert row["consensus_distance"] == result["consensus_distance"]
    (group,) = json.loads(asked(runs, "/secret/runs?by=seed")[1])["groups"]
    assert (group["test_mae"], group["consensus_distance"]) == (0.25, result["consensus_distance"])
    figures = json.loads(asked(runs, f"/secret/curves?runs={name_of(runs, 'a')}")[1])["figures"]
    assert figures[row["id"]]["test_mae"] == 0.25


@pytest.mark.parametrize("order", ["labels", "throw_away"])
def test_orders_are_taken_with_write_alone_from_the_page_itself_alone(runs: Path, order: str) -> None:
    path = f"/secret/run/{name_of(runs, 'a')}/{order}"
    body = b'{"add": ["x"]}'
    assert asked(runs, path, "POST", body, write=False)[0] == 404
    assert asked(runs, path, "GET")[0] == 405
    for headers in ({"origin": ""}, {"origin": "http://evil.example"}, {"host": "evil.example"},
                    {"sec-fetch-site": "cross-site"}):  # fmt: skip
        assert asked(runs, path, "POST", body, **headers)[0] == 403
    assert asked(runs, path.replace("secret", "guessed"), "POST", body)[0] == 403
    assert read_labels(runs / "a") == Labels()
    assert asked(runs, path, "POST", body)[0] == 200
    assert not (runs / "a").exists() or read_labels(runs / "a") == Labels(("x",))


def test_labels_change_by_what_is_sent(runs: Path) -> None:
    path = f"/secret/run/{name_of(runs, 'a')}/labels"
    assert asked(runs, path, "POST", b'{"add": ["x", "y"], "note": "why"}') == (200, "x, y")
    assert asked(runs, path, "POST", b'{"remove": ["x"], "archived": true}') == (200, "y")
    assert read_labels(runs / "a") == Labels(("y",), "why", True)
    found = json.loads(asked(runs, "/secret/runs")[1])
    assert ([row["place"] for row in found["runs"]], found["archived"]) == (["b"], 1)
    both = json.loads(asked(runs, "/secret/runs?archived=yes")[1])["runs"]
    assert {row["place"]: row["note"] for row in both} == {"a": "why", "b": ""}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "this is no change of labels"),
        (b'{"tags": ["x"]}', "this is no change of labels"),
        (b'{"note": 3}', "this is no change of labels"),
        (b'{"add": ["a,b"]}', "is no tag"),
        (b'{"note": "' + b"x" * (1 << 16) + b'"}', "this is no change of labels"),
    ],
)
def test_what_is_no_order_is_refused_with_the_reason(runs: Path, body: bytes, why: str) -> None:
    status, text = asked(runs, f"/secret/run/{name_of(runs, 'a')}/labels", "POST", body)
    assert (status, why in text) == (409, True)
    assert read_labels(runs / "a") == Labels()


def test_a_run_is_thrown_away_unless_it_goes_on(runs: Path) -> None:
    path = f"/secret/run/{name_of(runs, 'a')}/throw_away"
    with hold(runs / "a"):
        status, text = asked(runs, path, "POST")
    assert (status, "still going on" in text) == (409, True)
    assert asked(runs, path, "POST") == (200, ".trash/a")
    assert asked(runs, path, "POST") == (409, "there is no such run here; look again")
    assert [row["place"] for row in json.loads(asked(runs, "/secret/runs")[1])["runs"]] == ["b"]


def test_a_comparison_has_bytes_by_round_and_numbers_of_keys(kept: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    run(loads(SMALL, ["links.default.latency=8ms"]), out=other, page=False)
    found = compare([("a", kept), ("b", other)], kept.parents[1])
    key = "links.default.latency.delay"
    assert (found["differences"][key], found["numbers"][key]) == ({"a": "5ms", "b": "8ms"}, {"a": 0.005, "b": 0.008})
    curve, result = found["curves"]["a"]["error"], json.loads((kept / "result.json").read_text())
    assert curve["nbytes"] == [result["bytes_sent"] * (each + 1) // 3 for each in curve["round"]]
    assert found["figures"]["a"]["nbytes"] == result["bytes_sent"]


def test_a_curve_is_named_by_the_keys_that_differ_and_by_its_run(kept: Path, tmp_path: Path) -> None:
    lines = {"a": "seed: 3", "b": "seed: 4", "again": "seed: 3", "wide": "seed: 3"}
    for name, line in lines.items():
        shutil.copytree(kept, tmp_path / name)
        text = (kept / "scenario.yaml").read_text().replace("seed: 3", line)
        (tmp_path / name / "scenario.yaml").write_text(text.replace("dim: 2", "dim: 5") if name == "wide" else text)

    def named(*names: str) -> tuple[dict[str, str], dict[str, str]]:
        found = compare([(name, tmp_path / name) for name in names], tmp_path)
        return found["groups"], found["names"]

    assert named("a", "b") == ({"a": "small", "b": "small"}, {"a": "a", "b": "b"})
    assert named("a", "again")[0] == {"a": "a", "again": "again"}
    two, five = "small, task.dim: 2", "small, task.dim: 5"
    assert named("a", "b", "wide")[0] == {"a": two, "b": two, "wide": five}
    apart = {"a": f"{two} · a", "again": f"{two} · again", "wide": five}
    assert named("a", "again", "wide") == (apart, {**apart, "wide": f"{five} · wide"})
