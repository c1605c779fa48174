"""The screenshots of README, of a trained run: `python tests/screenshots.py RUN FOLDER`."""

import argparse
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from lookback import look
from test_browser import CHROMIUM, LOADED, image_tags, tensorboard

SOURCE = "attention"


def main() -> None:
    """Open the explorer and the board on a run, and leave a picture of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("folder", type=Path)
    typed = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        assert look.main([str(typed.run), "--source", SOURCE, "--output", name]) == 0
        tab = browser.new_page(viewport={"width": 1240, "height": 1000})
        tab.goto((Path(name) / "explorer.html").as_uri())
        tab.locator("#story0 .gtitle").wait_for()
        tab.locator("#story0").screenshot(path=typed.folder / "explorer.png")
        with tensorboard(typed.run, Path(name) / "log") as url:
            assert image_tags(url)
            tab = browser.new_page(viewport={"width": 1500, "height": 900})
            tab.set_default_timeout(120_000)
            tab.goto(f"{url}/#images&tagFilter=cross")
            tab.wait_for_function(f"({LOADED})() >= 4", timeout=60_000)
            tab.wait_for_timeout(1_000)
            tab.screenshot(path=typed.folder / "tensorboard.png")
        browser.close()


if __name__ == "__main__":
    main()
