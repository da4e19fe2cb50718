"""Make the pictures of the README and the docs from a run: its figures, made small, and its page in a browser.

skyfed run quick --out runs/quick && python docs/images/make.py runs/quick
"""

import shutil
import sys
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
FIGURES = {"map": 1000, "fig3-accuracy": 800, "fig4-payload": 800, "accuracy-megabytes": 800}  # name: pixels wide


def shrink(source: Path, target: Path, width: int) -> None:
    """Write a picture this wide, with 128 colours at most."""
    with Image.open(source) as picture:
        height = round(picture.height * width / picture.width)
        small = picture.convert("RGB").resize((width, height), Image.Resampling.LANCZOS)
    small.quantize(128, dither=Image.Dither.NONE).save(target, optimize=True)


def photograph(page: Path, target: Path) -> None:
    """Write a picture of the page's map in its 25th round, with one vehicle in focus."""
    from playwright.sync_api import sync_playwright

    found = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page(viewport={"width": 1100, "height": 900})
        tab.goto(page.resolve().as_uri())
        tab.wait_for_selector("html[data-ready]", state="attached")
        tab.focus("#map")
        for _ in range(24):
            tab.keyboard.press("ArrowRight")
        tab.click("#vehicles button:nth-child(4)")
        tab.wait_for_timeout(1500)  # for the chart's movements to end
        tab.locator("#flights").screenshot(path=target)
        browser.close()
    shrink(target, target, 1000)


if __name__ == "__main__":
    run = Path(sys.argv[1])
    for name, width in FIGURES.items():
        shrink(run / "figures" / f"{name}.png", HERE / f"{name}.png", width)
    photograph(run / "report.html", HERE / "report-map.png")
