"""What a person sees in a browser: the page of attention maps, and the maps on TensorBoard.

Chromium is driven through the real controls. With LOOKBACK_SCREENSHOTS=FOLDER, pictures of both are left there.
"""

import io
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Dialog, FloatRect, Page, expect, sync_playwright
from scipy.stats import spearmanr

from lookback.explorer import page
from lookback.probes import Story
from test_explorer import NO_WIDTH, SCRIPT, a_look, a_plain_look

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome is installed"),
]
PATIENCE = 20_000  # milliseconds
STORY = Story(
    "transformer",
    [
        a_look(0, wrote="sssssssss", heads=4),
        a_look(100, wrote="ooleh", heads=4, sharp=2),
        a_look(200, wrote="olleh", heads=4, sharp=5),
    ],
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def tab(browser: Browser) -> Iterator[Page]:
    """A tab in which nothing may go wrong: no error, no warning, no dialog."""
    context = browser.new_context(viewport={"width": 1300, "height": 1100}, accept_downloads=True)
    opened = context.new_page()
    opened.set_default_timeout(PATIENCE)
    wrong: list[str] = []
    opened.on("console", lambda message: wrong.append(f"{message.type}: {message.text}"))
    opened.on("pageerror", lambda error: wrong.append(str(error)))

    def refuse(dialog: Dialog) -> None:
        wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    opened.on("dialog", refuse)
    yield opened
    context.close()
    assert wrong == []


class Explorer:
    """A page of stories, used as a person would.

    Args:
        tab: to open it in.
        folder: to write it to.
        stories: on the page.
    """

    def __init__(self, tab: Page, folder: Path, *stories: Story) -> None:
        self.tab = tab
        path = folder / "explorer.html"
        path.write_text(page(stories, "where the models look"), encoding="utf-8")
        self.url = path.as_uri()
        self.requests: list[str] = []
        tab.on("request", lambda request: self.requests.append(request.url))
        tab.goto(self.url)
        for number in range(len(stories)):
            tab.locator(f"#story{number} .gtitle").wait_for()

    def choose(self, label: str, story: int = 0) -> None:
        """Open the dropdown that has this entry, and click on it."""
        number = 1 if "layer" in label else 2 if "head" in label else 0
        self.tab.locator(f"#story{story} .updatemenu-header").nth(number).click()
        self.tab.locator(f"#story{story} .updatemenu-dropdown-button").get_by_text(label, exact=True).click()
        expect(self.tab.locator(".updatemenu-dropdown-button")).to_have_count(0)

    def slide(self, share: float, story: int = 0) -> None:
        """Click on the slider, from 0 = its left end to 1."""
        rail = self.tab.locator(f"#story{story} .slider-rail-touch-rect")
        rail.scroll_into_view_if_needed()
        box = rail.bounding_box()
        assert box is not None
        margin = 4
        self.tab.evaluate(
            f"() => {{ const plot = document.querySelector('#story{story} .js-plotly-plot')"
            f" || document.querySelector('#story{story}');"
            " window.drawn = new Promise(done => plot.once('plotly_update', () => done())); }"
        )
        self.tab.mouse.click(box["x"] + margin + share * (box["width"] - 2 * margin), box["y"] + box["height"] / 2)
        self.tab.evaluate("() => window.drawn")  # the step's name is written first, its maps and title come later

    def seen(self, story: int = 0) -> list[str]:
        """The titles of the maps that are seen, row by row."""
        return self.tab.locator(f"#story{story} .infolayer text[class^='x'][class$='title']").all_text_contents()

    def text(self, story: int = 0) -> str:
        return " ".join(self.tab.locator(f"#story{story} .gtitle .line").all_text_contents())

    def labels(self, letter: str, axes: str = "", story: int = 0) -> list[str]:
        """The symbols along an axis that is seen, from left to right or from the top downwards."""
        place = "left" if letter == "x" else "top"
        found = self.tab.locator(
            f"#story{story} .{letter}{axes}tick text"
        ).evaluate_all(  # at once: ticks come and go
            f"ticks => ticks.map(tick => [tick.getBoundingClientRect().{place}, tick.textContent])"
        )
        return [text.replace(NO_WIDTH, "") for _, text in sorted(found)]

    def picture(self, axes: str = "", story: int = 0) -> FloatRect:
        """Where the cells of a map are drawn: x, y, width, height in pixels."""
        box = self.tab.locator(f"#story{story} .subplot.x{axes}y{axes} .hm image").bounding_box()
        assert box is not None
        return box

    def brightness(self, rows: int, columns: int, axes: str = "", story: int = 0) -> Any:
        """How bright each cell of a map is on the screen, away from its mark: (rows, columns)."""
        box = self.picture(axes, story)
        shot = np.asarray(Image.open(io.BytesIO(self.tab.screenshot())).convert("L"), dtype=float)
        across = box["x"] + (np.arange(columns) + 0.15) * box["width"] / columns
        down = box["y"] + (np.arange(rows) + 0.15) * box["height"] / rows
        return shot[np.ix_(down.astype(int), across.astype(int))]

    def hover(self, row: int, column: int, rows: int, columns: int, axes: str = "") -> list[str]:
        """What is said about a cell when the mouse is over it, line by line."""
        self.tab.mouse.move(2, 2)
        expect(self.tab.locator(".hoverlayer .hovertext")).to_have_count(0)
        box = self.picture(axes)
        self.tab.mouse.move(
            box["x"] + (column + 0.5) * box["width"] / columns, box["y"] + (row + 0.5) * box["height"] / rows
        )
        self.tab.locator(".hoverlayer .hovertext").wait_for()
        lines = self.tab.locator(".hoverlayer .hovertext .line").all_text_contents()
        return [line.replace(NO_WIDTH, "") for line in lines]

    def shot(self) -> bytes:
        """A picture of the maps without what the mouse is over, taken when nothing fades any more."""
        self.tab.mouse.move(2, 2)
        shots = [b"", self.tab.locator("#story0").screenshot()]
        while shots[-1] != shots[-2] and len(shots) < 30:
            self.tab.wait_for_timeout(400)
            shots.append(self.tab.locator("#story0").screenshot())
        return shots[-1]


def leave(name: str, picture: bytes) -> None:
    """Keep a screenshot where LOOKBACK_SCREENSHOTS says, if it says so."""
    folder = os.environ.get("LOOKBACK_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / name).write_bytes(picture)


def grid(layers: int = 2, heads: int = 4) -> list[str]:
    return [f"layer {layer}, head {head}" for layer in range(layers) for head in range(heads)]


def test_the_page_opens_with_all_cross_attention_of_the_last_step(tab: Page, tmp_path: Path) -> None:
    explorer = Explorer(tab, tmp_path, STORY)
    assert explorer.seen() == grid()
    assert explorer.labels("x") == ["<bos>", *"hello", "<eos>"]
    assert explorer.labels("y") == [*"olleh", "<eos>"]
    assert explorer.text().split()[:6] == ["source", "hello", "wanted", "olleh", "wrote", "olleh"]
    assert "(right)" in explorer.text()
    assert tab.locator("#story0 .cbtitle").count() == 1
    tab.evaluate("window.scrollTo(0, 0)")
    leave("explorer.png", tab.screenshot(full_page=True))


def test_bright_cells_are_where_the_weights_are_large(tab: Page, tmp_path: Path) -> None:
    explorer = Explorer(tab, tmp_path, STORY)
    for axes, layer, head in (("", 0, 0), ("7", 1, 2)):
        weights = STORY.looks[-1].maps[f"cross/layer{layer}"][head]
        shown = explorer.brightness(6, 7, axes)
        assert spearmanr(weights.ravel(), shown.ravel()).statistic > 0.9
        assert (shown.argmax(axis=-1) == weights.argmax(axis=-1)).all()


def test_each_right_cell_has_a_mark_in_its_middle(tab: Page, tmp_path: Path) -> None:
    explorer = Explorer(tab, tmp_path, STORY)
    box = explorer.picture()
    places = [mark.bounding_box() for mark in tab.locator("#story0 .subplot.xy .heatmap-label").all()]
    found = sorted(
        (
            int((place["y"] + place["height"] / 2 - box["y"]) / box["height"] * 6),
            int((place["x"] + place["width"] / 2 - box["x"]) / box["width"] * 7),
        )
        for place in places
        if place and place["width"]
    )
    assert found == [(0, 5), (1, 4), (2, 3), (3, 2), (4, 1)]  # hello -> olleh


def test_kind_layer_head_and_step_are_chosen_by_clicks_and_keep_each_other(tab: Page, tmp_path: Path) -> None:
    explorer = Explorer(tab, tmp_path, STORY)
    shots = [explorer.shot()]
    explorer.choose("head 3")
    assert explorer.seen() == ["layer 0, head 3", "layer 1, head 3"]
    shots.append(explorer.shot())
    explorer.choose("layer 1")
    assert explorer.seen() == ["layer 1, head 3"]
    assert explorer.picture("8")["width"] > 400  # it has all the room
    shots.append(explorer.shot())
    explorer.slide(0)
    tab.get_by_text("training step: 0", exact=True).wait_for()
    assert explorer.seen() == ["layer 1, head 3"]
    assert explorer.labels("y", "8") == [*"sssssssss", "<eos>"]
    assert "9 wrong, ended 4 too late" in explorer.text()
    shots.append(explorer.shot())
    explorer.choose("decoder self-attention")
    assert explorer.seen() == ["layer 1, head 3"]
    assert explorer.labels("x", "8") == ["<bos>", *"sssssssss"]
    shots.append(explorer.shot())
    explorer.choose("encoder self-attention")
    assert explorer.labels("y", "8") == ["<bos>", *"hello", "<eos>"]
    shots.append(explorer.shot())
    explorer.slide(0.5)
    tab.get_by_text("training step: 100", exact=True).wait_for()
    explorer.choose("all layers")
    assert explorer.seen() == ["layer 0, head 3", "layer 1, head 3"]
    explorer.choose("cross-attention")
    explorer.choose("all heads")
    assert explorer.seen() == grid()
    assert explorer.labels("y") == [*"ooleh", "<eos>"]
    shots.append(explorer.shot())
    explorer.slide(1)
    tab.get_by_text("training step: 200", exact=True).wait_for()
    assert explorer.shot() == shots[0]  # back where it began
    assert len(set(shots)) == len(shots)


def test_wrong_symbols_are_red_and_bold(tab: Page, tmp_path: Path) -> None:
    Explorer(tab, tmp_path, STORY).slide(0.5)
    tab.get_by_text("training step: 100", exact=True).wait_for()
    style = "element => { const s = getComputedStyle(element); return [element.textContent, s.fill, s.fontWeight] }"
    parts = [part.evaluate(style) for part in tab.locator("#story0 .gtitle .line tspan").all()]
    red = [part for part in parts if part[1] == "rgb(208, 0, 0)"]
    assert red == [["o", "rgb(208, 0, 0)", "700"]]


def test_the_mouse_over_a_cell_shows_both_symbols_their_places_and_the_weight(tab: Page, tmp_path: Path) -> None:
    explorer = Explorer(tab, tmp_path, STORY)
    weights = STORY.looks[-1].maps["cross/layer1"]
    assert explorer.hover(3, 5, 6, 7, "7") == [
        "symbol being written: e (row 3)",
        "symbol of the source: o (column 5)",
        f"weight: {weights[2, 3, 5]:.3f}",
    ]
    assert explorer.hover(0, 5, 6, 7, "7")[2] == f"weight: {weights[2, 0, 5]:.3f}"  # on a mark


def test_nothing_but_the_file_is_asked_for(tab: Page, tmp_path: Path) -> None:
    explorer = Explorer(tab, tmp_path, STORY)
    explorer.choose("head 1")
    explorer.slide(0)
    explorer.hover(3, 5, 10, 7, "2")
    with tab.expect_download() as download:
        tab.locator("#story0 .modebar-btn").click()  # the only one: a picture to keep
    assert download.value.suggested_filename.endswith(".png")
    outside = [url for url in explorer.requests if not url.startswith(("data:", "blob:"))]
    assert outside == [explorer.url]
    assert tab.locator("a[href^='http']").count() == 0


def test_the_page_itself_forbids_the_network(browser: Browser, tmp_path: Path) -> None:
    tab = browser.new_page()
    Explorer(tab, tmp_path, STORY)
    assert tab.evaluate("fetch('data:,x').then(() => 'came', () => 'refused')") == "refused"
    tab.close()


def test_symbols_that_are_markup_stay_text_everywhere(tab: Page, tmp_path: Path) -> None:
    source = [SCRIPT, "<b>", "constructor", "%{z}", "&lt;", "$x^2$", " "]
    wrote = ["<b>", "<b>", "toString", "<img src=x onerror=alert(2)>"]
    name = f"<img src=x onerror=alert(3)>{SCRIPT}"
    story = Story(name, [a_look(step, source, wrote, heads=1) for step in (0, 10)])
    explorer = Explorer(tab, tmp_path, story)
    assert explorer.labels("x") == ["<bos>", *source[:-1], "␣", "<eos>"]
    assert explorer.labels("y") == ["<b>", "<b>", "toString", "<img␣src=x␣onerror=alert(2)>", "<eos>"]
    assert explorer.hover(1, 1, 5, 9)[:2] == [
        "symbol being written: <b> (row 1)",
        f"symbol of the source: {SCRIPT} (column 1)",
    ]
    assert explorer.hover(3, 4, 5, 9)[1] == "symbol of the source: %{z} (column 4)"
    explorer.slide(0)
    tab.get_by_text("training step: 0", exact=True).wait_for()
    for symbol in (SCRIPT, "<b>", "<img␣src=x␣onerror=alert(2)>"):
        assert symbol in explorer.text()
    assert tab.locator("h2").text_content() == name
    assert tab.locator("img").count() == 0


def test_two_stories_on_one_page_have_controls_of_their_own(tab: Page, tmp_path: Path) -> None:
    other = Story(
        "rnn_luong",
        [
            a_look(5, kinds=["cross"], layers=1, heads=1),
            a_look(6, wrote="olleh", kinds=["cross"], layers=1, heads=1),
        ],
    )
    plain = Story("rnn", [a_plain_look(7, "ox"), a_plain_look(8, "olleh")])
    explorer = Explorer(tab, tmp_path, STORY, other, plain)
    assert tab.locator("h2").all_text_contents() == ["transformer", "rnn_luong", "rnn"]
    assert tab.locator("#story1 .updatemenu-header").count() == 0
    before = explorer.shot()
    explorer.slide(0, story=1)
    tab.get_by_text("training step: 5", exact=True).wait_for()
    assert explorer.labels("y", story=1) == [*"oll", "<eos>"]
    assert "ended 2 too early" in explorer.text(1)
    explorer.slide(0, story=2)
    tab.get_by_text("training step: 7", exact=True).wait_for()
    assert "1 wrong, ended 3 too early" in explorer.text(2)
    assert tab.locator("#story2 .hm").count() == 0
    assert explorer.shot() == before
    explorer.choose("layer 0")
    assert explorer.seen(1) == ["layer 0, head 0"]
    leave("explorer_stories.png", tab.screenshot(full_page=True))


@contextmanager
def tensorboard(folder: Path, log: Path) -> Iterator[str]:
    """TensorBoard on a folder, at a free port of this machine; it is ended in every case."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = ["--logdir", str(folder), "--host", "127.0.0.1", "--port", str(port), "--load_fast=false"]
    arguments += ["--samples_per_plugin", "images=500"]
    with log.open("wb") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "tensorboard.main", *arguments], stdout=output, stderr=output
        )
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait(10)


def image_tags(url: str, seconds: float = 90) -> list[str]:
    """The tags of all images of a TensorBoard, as soon as it has read some."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(OSError), urllib.request.urlopen(f"{url}/data/plugin/images/tags", timeout=10) as answer:
            runs = json.load(answer)
            if any(runs.values()):
                return sorted(tag for tags in runs.values() for tag in tags)
        time.sleep(0.5)
    return []


# Counts the pictures that are there, with those inside of other elements, or 0 while one of them is not loaded.
LOADED = """() => {
  const images = root => [...root.querySelectorAll('*')].flatMap(
    node => node.shadowRoot ? images(node.shadowRoot) : node.tagName == 'IMG' ? [node] : []);
  const found = images(document);
  return found.every(image => image.complete && image.naturalWidth > 0) ? found.length : 0;
}"""


def test_tensorboard_shows_the_maps(browser: Browser, tiny_run: Path, tmp_path: Path) -> None:
    log = tmp_path / "tensorboard.log"
    with tensorboard(tiny_run, log) as url:
        tags = [tag for tag in image_tags(url) if tag.startswith("attention/cross/")]
        assert len(tags) == 6, log.read_text(errors="replace")  # 2 layers of 3 heads
        tab = browser.new_page(viewport={"width": 1500, "height": 1300})
        tab.set_default_timeout(3 * PATIENCE)
        asked: list[str] = []
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(f"{url}/#images")
        for tag in tags:
            tab.get_by_text(tag, exact=True).wait_for()
        tab.wait_for_function(f"({LOADED})() >= {len(tags)}")
        leave("tensorboard.png", tab.screenshot())
        tab.close()
    assert [address for address in asked if not address.startswith((url, "data:", "blob:"))] == []
