"""One HTML file in which the attention maps of a training can be explored, in any browser and without a network.

plotly does all the drawing: the page has no script but plotly's own. This is the only room that knows it.
"""

import html
from collections.abc import Sequence
from itertools import product, zip_longest
from typing import Any

import numpy as np
import plotly.graph_objects as go  # type: ignore[import-untyped]
from plotly.io import to_html  # type: ignore[import-untyped]
from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

from lookback.probes import AXES, Look, Story, kind

KINDS = {"cross": "cross", "encoder_self": "encoder self", "decoder_self": "decoder self"}  # as they are offered
WIDTH = 1040  # pixels of a row of maps
LEFT, RIGHT, TOP, BOTTOM = 84, 110, 250, 12  # pixels around the maps, for their labels, scale, text and controls
BESIDE, BETWEEN = 50, 62  # pixels between two maps, for labels and titles
LARGEST, LEAST_HEIGHT, TEXT_ONLY = 420, 340, 140  # pixels: of a map, of all, and of a head with no maps below
LETTERS = 80  # of a line of text, so that what is wrong with it has room beside it
TEXT, LINE = 100, 20  # pixels: from the top to the text, which stands below the slider's steps; of a line of it
MENUS, SLIDER = {"kind": 0, "layer": 210, "head": 320}, 470  # pixels from the left
SLIVER = 1 / 4000  # the share of a side that a hidden map keeps; plotly allows no less than 1/4096
MARK, MARK_COLOUR, WRONG_COLOUR = "□", "#00e5ff", "#d00000"
SHADOW = f"1px 0 {MARK_COLOUR}, 0 1px {MARK_COLOUR}"  # makes the line of a mark thick enough to be seen
HOVER = "{}: <b>%{{y}}</b> (row %{{pointNumber[0]}})<br>{}: <b>%{{x}}</b> (column %{{pointNumber[1]}})<br>"
HOVER += "weight: <b>%{{z:.3f}}</b><extra></extra>"
HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'; \
style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'">
<title>{title}</title><style>
body {{ font: 14px/1.4 sans-serif; color: #222; margin: 1em 2em; }}
h1, h2 {{ overflow-wrap: anywhere; }}
p {{ max-width: 84em; margin: 0.3em 0; }} section {{ border-top: 1px solid #ccc; margin-top: 1em; }}
</style><script>{plotly}</script></head>
<body><h1>{title}</h1>
<noscript><p>Scripts in this file draw the maps, but this browser runs none.</p></noscript>
{explanation}"""


def page(stories: Sequence[Story], title: str) -> str:
    """The page of some runs.

    Args:
        stories: stand below each other, each with controls of its own; at least one.
        title: of the page.

    Returns:
        an HTML file that needs no other and no network; plotly's script, nearly 5 MB, is in it once.

    Raises:
        ValueError: if there is no story.
    """
    if not stories:
        raise ValueError("stories must be at least one, but there are none")
    parts = [HEAD.format(title=html.escape(title), plotly=get_plotlyjs(), explanation=explanation(stories))]
    config = {"displaylogo": False, "modeBarButtons": [["toImage"]], "typesetMath": False}
    for number, story in enumerate(stories):
        note = "" if story.looks[0].maps else "<p>This model has no attention, so there are no maps to show.</p>"
        drawn = to_html(figure(story), config, include_plotlyjs=False, full_html=False, div_id=f"story{number}")
        parts.append(f"<section>\n<h2>{html.escape(story.name)}</h2>\n{note}\n{drawn}\n</section>")
    return "\n".join([*parts, "</body>\n</html>\n"])


def explanation(stories: Sequence[Story]) -> str:
    """What to know before reading the maps, as paragraphs of HTML; only about what is on the page."""
    looks = [look for story in stories for look in story.looks]
    lines = []
    if any(look.maps for look in looks):
        lines.append(
            "Each map shows where one head of a model looks. A <b>row</b> is a symbol that looks, a <b>column</b> "
            "a symbol that it can look at, and the colour of their cell is the weight: 0 is dark, 1 is bright, and "
            "each row adds up to 1. Point at a cell to read it; rows and columns are counted from 0."
        )
    if any(look.probe.cells() for look in looks if look.maps):
        mark = f'<b style="background: #222; color: {MARK_COLOUR}; text-shadow: {SHADOW}">&nbsp;{MARK}&nbsp;</b>'
        lines.append(f"{mark} marks the symbol of the source that the right answer copies in this row.")
    red = f'<b style="color: {WRONG_COLOUR}">red</b>'
    lines.append(f"<i>Wanted</i> is the right answer, <i>wrote</i> what the model wrote; errors are {red}.")
    if any(len(story.looks) > 1 for story in stories):
        lines[-1] += " Move the slider to see earlier steps of the training."
    return "".join(f"<p>{line}</p>\n" for line in lines)


def figure(story: Story) -> go.Figure:
    """The maps, text and controls of one run; at first, all its cross-attention at the shown step."""
    grid = Grid(story.looks, story.shown)
    height = grid.top + grid.height + BOTTOM
    drawn = go.Figure(grid.traces()).update_layout(
        {"template": "none", "width": LEFT + WIDTH + RIGHT, "height": height},
        margin={"l": LEFT, "r": RIGHT, "t": grid.top, "b": BOTTOM, "autoexpand": False},
        plot_bgcolor="#555" if grid.kinds else None,  # the lines between cells
        dragmode=False,
        title={
            "text": words(story.looks[story.shown]),
            "xref": "paper",
            "x": 0,
            "y": 1 - TEXT / height,
            "yanchor": "top",
        },
        title_font={"family": "DejaVu Sans Mono, Menlo, Consolas, monospace", "size": 15, "color": "#222"},
        coloraxis={"colorscale": "magma", "cmin": 0, "cmax": 1},
        coloraxis_colorbar={"title_text": "weight", "len": 240, "lenmode": "pixels", "y": 1, "yanchor": "top"},
        updatemenus=grid.menus(),
        sliders=grid.sliders(),
    )
    if not grid.kinds:
        return drawn.update_layout(xaxis_visible=False, yaxis_visible=False)
    corner = {"x": 0, "xref": "paper", "xanchor": "left", "y": 1, "yref": "paper", "showarrow": False}
    drawn.add_annotation(corner, yanchor="top", xshift=8 - LEFT, textangle=-90)
    drawn.add_annotation(corner, yanchor="bottom", yshift=66)
    for axes in grid.panels.values():
        drawn.layout[f"xaxis{axes}"] = {"anchor": f"y{axes}", "side": "top", "autotickangles": [0, -90]}
        drawn.layout[f"yaxis{axes}"] = {"anchor": f"x{axes}", "autorange": "reversed", "scaleanchor": f"x{axes}"}
    common = {"type": "category", "ticks": "", "showgrid": False, "zeroline": False, "fixedrange": True}
    drawn.update_xaxes(common, constrain="domain", constraintoward="left", title_font_size=12, title_standoff=4)
    drawn.update_yaxes(common, constrain="domain", constraintoward="top")
    for path, value in (grid.names(grid.kinds[0]) | grid.show("layer", None) | grid.show("head", None)).items():
        drawn.layout[path] = value
    return drawn


class Grid:
    """Rows of layers and columns of heads, in which the maps of one kind are shown and those of the others wait.

    The width of a map hangs on the chosen head alone and its height on the chosen layer alone. So each control
    does its work without knowing the others: a map is seen where its kind, its layer and its head are chosen.

    Args:
        looks: of a story.
        shown: which of them is seen at first.
    """

    def __init__(self, looks: Sequence[Look], shown: int) -> None:
        self.looks = looks
        self.shown = range(len(looks))[shown]
        heads = {place: len(maps) for place, maps in looks[0].maps.items()}
        self.kinds = [name for name in KINDS if name in map(kind, heads)]
        self.layers = list(dict.fromkeys(place.partition("/")[2] for place in heads))
        self.counts = {"layer": len(self.layers), "head": max(heads.values(), default=0)}
        places = sorted(heads, key=lambda place: self.kinds.index(kind(place)))
        self.maps = [(place, head) for place in places for head in range(heads[place])]
        panels = product(range(self.counts["layer"]), range(self.counts["head"]))
        self.panels = {panel: f"{number + 1}" if number else "" for number, panel in enumerate(panels)}
        side = min(WIDTH / max(self.counts["head"], 1) - BESIDE, LARGEST)
        lines = max(words(look).count("<br>") + 1 for look in looks)
        self.top = (TOP if heads else TEXT_ONLY) + LINE * (lines - 3)
        self.height = max((side + BETWEEN) * len(self.layers), LEAST_HEIGHT) if heads else TEXT_ONLY // 2
        longest = max((max(maps.shape) for look in looks for maps in look.maps.values()), default=1)
        self.cell = side / longest  # pixels, where all maps are seen
        self.letters = min(max(self.cell / 1.2, 7), 12)  # pixels; plotly leaves labels out that have no room

    def traces(self) -> list[dict[str, Any]]:
        """One heatmap a map, with what the shown look has to show."""
        size = min(1.1 * self.cell, 18) if self.cell > 5 else None  # None = what a cell has room for
        mark = {"texttemplate": "%{text}", "textfont": {"color": MARK_COLOUR, "shadow": SHADOW, "size": size}}
        found = []
        for (place, head), content in zip(self.maps, self.contents(self.looks[self.shown]), strict=True):
            axes = self.panels[self.layers.index(place.partition("/")[2]), head]
            trace: dict[str, Any] = {"type": "heatmap", "xaxis": f"x{axes}", "yaxis": f"y{axes}"}
            trace |= {"name": f"{place}/head{head}", "visible": kind(place) == self.kinds[0]}
            trace |= dict.fromkeys(("xgap", "ygap"), int(self.cell > 10)) | {"coloraxis": "coloraxis"}
            trace["hovertemplate"] = HOVER.format(*AXES[kind(place)])
            found.append(trace | (mark if kind(place) == "cross" else {}) | content)
        return found

    def contents(self, look: Look) -> list[dict[str, Any]]:
        """What changes from step to step, for each map; text is the marks of right cells."""
        found = []
        for place, head in self.maps:
            panel, weights = look.probe.panel(place), look.maps[place][head]
            marks = np.full(weights.shape if kind(place) == "cross" else 0, "")
            for cell in look.probe.cells() if kind(place) == "cross" else []:
                marks[cell] = MARK
            content: dict[str, Any] = {"x": labels(panel.columns), "y": labels(panel.rows), "text": marks.tolist()}
            found.append(content | {"z": weights.astype(np.float64).round(3).tolist()})
        return found

    def names(self, name: str) -> dict[str, str]:
        """What to change in the layout so that it says what the rows and columns of a kind are."""
        rows, columns = AXES[name]
        return {"annotations[0].text": f"<b>rows:</b> {rows}", "annotations[1].text": f"<b>columns:</b> {columns}"}

    def show(self, what: str, chosen: int | None) -> dict[str, Any]:
        """What to change in the layout so that only one layer, or only one head, is seen; None = all of them."""
        letter, other = ("y", "x") if what == "layer" else ("x", "y")
        count, gap = self.counts[what], BETWEEN / self.height if what == "layer" else BESIDE / WIDTH
        size = (1 - gap * (count - 1)) / count
        found: dict[str, Any] = {}
        for (layer, head), axes in self.panels.items():
            number, rank = (layer, count - 1 - layer) if what == "layer" else (head, head)  # layer 0 is on top
            start, seen = rank * (size + gap), chosen in (None, number)
            whole = [start, min(start + size, 1)]
            found[f"{letter}axis{axes}.domain"] = whole if chosen is None else [0, 1 if seen else SLIVER]
            found[f"{letter}axis{axes}.visible"] = seen
            found[f"{letter}axis{axes}.tickfont.size"] = self.letters if chosen is None else 12
            found[f"{other}axis{axes}.showticklabels"] = seen
            if what == "layer":
                found[f"xaxis{axes}.title.text"] = f"layer {layer}, head {head}" if seen else ""
        return found

    def menus(self) -> list[dict[str, Any]]:
        """Dropdowns for kind, layer and head, where there is something to choose."""
        kinds = {name: [kind(place) == name for place, _ in self.maps] for name in self.kinds}
        changes = {
            f"{KINDS[name]}-attention": [{"visible": seen}, self.names(name)] for name, seen in kinds.items()
        }
        choices: dict[str, tuple[str, dict[str, list[Any]]]] = {"kind": ("update", changes)}
        for what, count in self.counts.items():
            changes = {f"{what} {number}": [self.show(what, number)] for number in range(count)}
            choices[what] = ("relayout", {f"all {what}s": [self.show(what, None)]} | changes if count > 1 else {})
        place = {"xanchor": "left", "y": 1 + (self.top - 8) / self.height, "yanchor": "top", "pad_t": 0}
        found = []
        for what, (method, changes) in choices.items():
            buttons = [{"label": label, "method": method, "args": args} for label, args in changes.items()]
            if len(buttons) > 1:
                found.append(place | {"name": what, "x": MENUS[what] / WIDTH, "buttons": buttons})
        return found

    def sliders(self) -> list[dict[str, Any]]:
        """A slider over the steps, if several; it sets all data, since plotly's frames leave the axes unchanged."""
        steps = []
        for look in self.looks:
            contents = self.contents(look)
            data = {name: [content[name] for content in contents] for name in (contents or [{}])[0]}
            steps.append({"label": f"{look.step}", "method": "update", "args": [data, {"title.text": words(look)}]})
        place = {
            "x": SLIDER / WIDTH,
            "len": 1 - SLIDER / WIDTH,
            "y": 1 + (self.top - 4) / self.height,
            "yanchor": "top",
        }
        state = {"active": self.shown, "currentvalue_prefix": "training step: ", "pad_t": 0}
        return [place | state | {"steps": steps}] if len(steps) > 1 else []


def labels(symbols: Sequence[str]) -> list[str]:
    """Symbols as names of places on an axis; characters without width tell equal ones apart."""
    names = [html.escape(visible(symbol), quote=False) for symbol in symbols]
    # each has one at least: plotly stumbles over bare words that JavaScript knows, such as "constructor"
    return [name + "\u200b" * names[: place + 1].count(name) for place, name in enumerate(names)]


def visible(symbol: str) -> str:
    """A symbol in characters that can be seen."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in symbol).replace(" ", "␣")


def words(look: Look) -> str:
    """What was read, wanted and written, symbol below symbol, in the few tags of HTML that plotly knows.

    Long strings go on below, in three more lines.
    """
    plain = [[(symbol, False) for symbol in row] for row in (look.example.source, look.example.wanted)]
    rows = [[(visible(symbol), wrong) for symbol, wrong in row] for row in [*plain, look.example.marked()]]
    widths = [max(len(symbol) for symbol, _ in column) for column in zip_longest(*rows, fillvalue=("", False))]
    spaced = "word" in (look.example.source_unit, look.example.target_unit)
    between = " " if spaced or max(widths, default=1) > 1 else ""
    across = max(1, LETTERS // (max(widths, default=1) + len(between)))
    lines = []
    for start in range(0, max(len(widths), 1), across):
        for name, row in zip(("source", "wanted", "wrote "), rows, strict=True):
            line = f"{name}  "
            for at, (symbol, wrong) in enumerate(row[start : start + across], start):
                text = html.escape(symbol, quote=False)
                line += f'<b><span style="color: {WRONG_COLOUR}">{text}</span></b>' if wrong else text
                line += " " * (widths[at] - len(symbol)) + between
            lines.append(line)
    return f"{'<br>'.join(lines)}   ({look.example.verdict()})"
