"""Pictures of the page for the docs: light and dark, wide and on a phone, of a small fleet and of a large one.

    netdfl run scenarios/under_loss.yaml --on simulated --out runs/small
    netdfl run benchmarks/thousand.yaml --out runs/large
    netdfl run scenarios/faults/lost_message.yaml --on simulated --out runs/stalled
    python -m benchmarks.screenshots runs/small runs/large --stalled runs/stalled
    python -m benchmarks.screenshots --many sweeps/loss/cells

The last takes the list of a folder of runs, with all of them compared.

It also prints how many pictures a second the graph of each run draws while it is moved.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from netdfl.report.html import write_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser

COLORS = 192
HEIGHT = {1280: 1250, 800: 1250, 400: 1500}
FRAMES = """async () => {
  const cy = document.querySelector('.graph').graph, began = performance.now();
  for (let i = 0; i < 60; i++) { cy.panBy({ x: i % 2 ? 4 : -4, y: 0 }); await new Promise(requestAnimationFrame); }
  return 60000 / (performance.now() - began);
}"""


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="*", type=Path, help="run directories")
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    parser.add_argument("--stalled", type=Path, help="a run whose first stall is drawn: who waits, and the messages")
    parser.add_argument("--many", type=Path, help="a folder of runs: its list, and a comparison of the first")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for run in given.runs:
            address = write_report(run).resolve().as_uri()
            for width in HEIGHT:
                for scheme in ("light", "dark"):
                    _take(browser, address, width, scheme, given.out / f"page-{run.name}-{width}-{scheme}.png")
        if given.stalled is not None:
            _take_stall(browser, write_report(given.stalled).resolve().as_uri(), given.out)
        if given.many is not None:
            _take_many(browser, given.many, given.out)
        browser.close()


def _take_many(browser: Browser, folder: Path, out: Path) -> None:
    """The list of runs, and below it what is compared."""
    command = [sys.executable, "-m", "netdfl", "serve", str(folder), "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    address = server.stdout.readline().strip()
    try:
        for width in HEIGHT:
            for scheme in ("light", "dark"):
                page = browser.new_page(viewport={"width": width, "height": HEIGHT[width]}, color_scheme=scheme)
                page.goto(address)
                page.get_by_role("button", name="compare all that fit").click()
                page.locator("#scatter svg").wait_for(timeout=120_000)
                page.wait_for_timeout(500)
                _keep(page.screenshot(full_page=width > 400), out / f"many-{width}-{scheme}.png")
                page.close()
    finally:
        server.terminate()
        server.wait()


def _take_stall(browser: Browser, address: str, folder: Path) -> None:
    """Who waits for whom, and the lanes around the beginning."""
    page = browser.new_page(viewport={"width": 1100, "height": 1000})
    page.goto(address)
    page.locator("[data-stall='0']").click()
    page.wait_for_timeout(500)
    _keep(page.locator("#stall").screenshot(), folder / "stall-waits.png")
    page.locator("#handle").fill("180")
    page.get_by_role("button", name="closer").click()
    page.wait_for_timeout(500)
    _keep(page.locator("#lanes").screenshot(), folder / "stall-messages.png")
    page.close()


def _keep(picture: bytes, target: Path) -> None:
    from PIL import Image

    Image.open(BytesIO(picture)).convert("RGB").quantize(COLORS).save(target, optimize=True)


def _take(browser: Browser, address: str, width: int, scheme: str, target: Path) -> None:
    page = browser.new_page(viewport={"width": width, "height": HEIGHT[width]}, color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(address)
    page.locator(".graph canvas").first.wait_for()
    page.wait_for_timeout(1500)
    _keep(page.screenshot(), target)
    print(f"{target}  {target.stat().st_size / 1e3:.0f} kB  {page.evaluate(FRAMES):.0f} frames a second")
    page.close()


if __name__ == "__main__":
    main()
