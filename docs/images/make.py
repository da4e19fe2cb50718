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
    """Write a picture of the page's map in its 25th round."""
    from playwright.sync_api import sync_playwright

    found = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page(viewport={"width": 1048, "height": 1100})
        tab.goto(page.resolve().as_uri())
        tab.wait_for_selector("html[data-ready]", state="attached")
        tab.keyboard.press("Home")
        for _ in range(24):
            tab.keyboard.press("ArrowRight")
        tab.locator("#flights").scroll_into_view_if_needed()
        tab.wait_for_timeout(1500)  # for all movements to end
        tab.locator("#flights").screenshot(path=target)
        browser.close()
    with Image.open(target) as picture:  # all colours: few would blend those of the vehicles
        picture.convert("RGB").save(target, optimize=True)


if __name__ == "__main__":
    run = Path(sys.argv[1])
    for name, width in FIGURES.items():
        shrink(run / "figures" / f"{name}.png", HERE / f"{name}.png", width)
    photograph(run / "report.html", HERE / "report-map.png")
