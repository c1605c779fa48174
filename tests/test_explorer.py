"""The page that shows attention maps: what is in its figures. test_browser.py looks at it as a person would."""

import html
import re
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import plotly.graph_objects as go  # type: ignore[import-untyped]
import pytest
import torch
from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

from lookback.alignment import NOWHERE
from lookback.data import Batch
from lookback.evaluate import Example
from lookback.explorer import MARK, figure, labels, page
from lookback.probes import AXES, Look, Probe, Story

LAYERS, HEADS = 2, 3
SOURCE, WROTE = "hello", "oll"  # 7 symbols are read and 4 written, marks included
SCRIPT = "<script>alert(1)</script>"
NO_WIDTH = "\u200b"


def a_look(
    step: int = 10,
    source: Sequence[str] = SOURCE,
    wrote: Sequence[str] = WROTE,
    kinds: Sequence[str] = ("encoder_self", "decoder_self", "cross"),
    layers: int = LAYERS,
    heads: int = HEADS,
    right: Sequence[int] | None = None,
    sharp: float = 0.0,
) -> Look:
    """A look at a model that should reverse: weights are drawn, and the sharper, the more on the right cells."""
    read, written = ["<bos>", *source, "<eos>"], [*wrote, "<eos>"]
    if right is None:
        right = [len(source) - row if row < len(source) else NOWHERE for row in range(len(wrote))] + [NOWHERE]
    batch = Batch(torch.zeros(1, len(read)), torch.tensor([len(read)]), torch.zeros(1, len(written) + 1))
    probe = Probe(batch, read, written, np.array(right))
    generator = np.random.default_rng(step)
    maps = {}
    for layer, kind in product(range(layers), kinds):
        panel = probe.panel(f"{kind}/layer{layer}")
        scores = generator.normal(size=(heads, len(panel.rows), len(panel.columns)))
        for row, column in panel.outlined:
            scores[:, row, column] += sharp
        weights = np.exp(scores)
        maps[f"{kind}/layer{layer}"] = (weights / weights.sum(axis=-1, keepdims=True)).astype(np.float32)
    return Look(step, Example(list(source), list(source[::-1]), list(wrote), True), probe, maps)


def a_plain_look(step: int = 10, wrote: str = WROTE) -> Look:
    return a_look(step, wrote=wrote, kinds=())


def named(drawn: go.Figure) -> dict[str, Any]:
    return {trace.name: trace for trace in drawn.data}


def menu(drawn: go.Figure, name: str) -> dict[str, Any]:
    """What each entry of a dropdown does: label -> arguments."""
    found = [menu for menu in drawn.layout.updatemenus if menu.name == name]
    return {button.label: button.args for button in found[0].buttons}


def bare(text: str) -> str:
    """Text as a person sees it: without characters that have no width, and without markup."""
    return html.unescape(re.sub("<[^>]*>", "", text.replace("<br>", "\n"))).replace(NO_WIDTH, "")


def rest(text: str) -> str:
    """The page without plotly's own script."""
    assert text.count(get_plotlyjs()) == 1
    return text.replace(get_plotlyjs(), "")


def test_every_head_of_every_map_is_drawn_and_only_cross_attention_is_seen_at_first() -> None:
    traces = named(figure(Story("one", [a_look()])))
    assert set(traces) == {
        f"{kind}/layer{layer}/head{head}"
        for kind in ("cross", "encoder_self", "decoder_self")
        for layer in range(LAYERS)
        for head in range(HEADS)
    }
    assert {name for name, trace in traces.items() if trace.visible} == {
        name for name in traces if name.startswith("cross/")
    }


def test_the_rows_of_a_picture_are_the_queries_of_its_map() -> None:
    look = a_look()
    for name, trace in named(figure(Story("one", [look]))).items():
        place, _, head = name.rpartition("/head")
        assert np.array(trace.z) == pytest.approx(look.maps[place][int(head)], abs=0.0005)
    shapes = {name: np.array(trace.z).shape for name, trace in named(figure(Story("one", [look]))).items()}
    assert shapes["cross/layer1/head2"] == (4, 7)
    assert shapes["encoder_self/layer0/head0"] == (7, 7)
    assert shapes["decoder_self/layer0/head1"] == (4, 4)


def test_rows_and_columns_have_the_symbols_of_their_kind() -> None:
    traces = named(figure(Story("one", [a_look()])))
    read, written = ["<bos>", *"hello", "<eos>"], [*"oll", "<eos>"]
    for kind, rows, columns in (
        ("cross", written, read),
        ("encoder_self", read, read),
        ("decoder_self", written, ["<bos>", *"oll"]),
    ):
        trace = traces[f"{kind}/layer1/head2"]
        assert [bare(label) for label in trace.y] == rows
        assert [bare(label) for label in trace.x] == columns
        for name in AXES[kind]:
            assert f"{name}: <b>%" in trace.hovertemplate


def test_the_first_row_is_on_top_and_one_scale_from_0_to_1_is_for_all() -> None:
    drawn = figure(Story("one", [a_look()]))
    axes = [drawn.layout[name] for name in drawn.layout if name.startswith("yaxis")]
    assert len(axes) == LAYERS * HEADS
    assert {(axis.type, axis.autorange) for axis in axes} == {("category", "reversed")}
    assert {trace.coloraxis for trace in drawn.data} == {"coloraxis"}
    scale = drawn.layout.coloraxis
    assert (scale.cmin, scale.cmax) == (0, 1)
    assert scale.colorscale[0] == (0, "#000004")  # the ends of matplotlib's magma
    assert scale.colorscale[-1] == (1, "#fcfdbf")


def test_equal_symbols_are_places_of_their_own() -> None:
    found = labels(["l", "l", "o", "l"])
    assert len(set(found)) == 4
    assert [bare(label) for label in found] == ["l", "l", "o", "l"]


def test_no_label_is_a_word_that_javascript_knows() -> None:
    assert all(label.endswith(NO_WIDTH) for label in labels(["constructor", "__proto__"]))


def test_symbols_that_cannot_be_seen_are_spelt_out() -> None:
    assert [bare(label) for label in labels([" ", "\n", "\u202e", NO_WIDTH])] == ["␣", "\\n", "\\u202e", "\\u200b"]


def test_right_cells_of_cross_attention_are_marked_and_no_others() -> None:
    traces = named(figure(Story("one", [a_look(right=[5, NOWHERE, 3, NOWHERE])])))
    for name, trace in traces.items():
        marked = {
            (row, column) for row, texts in enumerate(trace.text) for column, text in enumerate(texts) if text
        }
        assert marked == ({(0, 5), (2, 3)} if name.startswith("cross/") else set())
        assert {text for texts in trace.text for text in texts} <= {"", MARK}


def test_the_kind_menu_shows_all_maps_of_one_kind_and_names_their_axes() -> None:
    drawn = figure(Story("one", [a_look()]))
    names = list(named(drawn))
    choices = menu(drawn, "kind")
    assert list(choices) == ["cross-attention", "encoder self-attention", "decoder self-attention"]
    for kind, (traces, layout) in zip(("cross", "encoder_self", "decoder_self"), choices.values(), strict=True):
        assert traces["visible"] == [name.startswith(f"{kind}/") for name in names]
        assert [bare(text).partition(": ")[2] for text in layout.values()] == list(AXES[kind])


def seen(layout: dict[str, Any], axes: str) -> bool:
    """Whether a panel can be seen, and asserts that its labels can be seen with it."""
    x, y = layout[f"xaxis{axes}"], layout[f"yaxis{axes}"]
    large = all(axis["domain"][1] - axis["domain"][0] > 0.05 for axis in (x, y))
    labelled = [axis["visible"] and axis["showticklabels"] for axis in (x, y)]
    assert labelled == [large, large]
    assert (x["visible"] and x["title"]["text"] != "") == large
    return large


@pytest.mark.parametrize("layer", [None, 0, 1])
@pytest.mark.parametrize("head", [None, 0, 1, 2])
def test_layer_and_head_together_say_which_maps_are_seen(layer: int | None, head: int | None) -> None:
    drawn = figure(Story("one", [a_look()]))
    layers, heads = menu(drawn, "layer"), menu(drawn, "head")
    assert list(layers) == ["all layers", "layer 0", "layer 1"]
    assert list(heads) == ["all heads", "head 0", "head 1", "head 2"]
    for choice in (layers["all layers" if layer is None else f"layer {layer}"][0], heads["head 1"][0]):
        for path, value in choice.items():
            drawn.layout[path] = value
    for path, value in heads["all heads" if head is None else f"head {head}"][0].items():
        drawn.layout[path] = value
    layout = drawn.layout.to_plotly_json()
    for name, trace in named(drawn).items():
        _, place, number = name.split("/")
        wanted = layer in (None, int(place[-1])) and head in (None, int(number[-1]))
        assert seen(layout, trace.xaxis.removeprefix("x")) == wanted


def test_maps_stand_in_a_grid_layers_downwards_and_heads_to_the_right() -> None:
    drawn = figure(Story("one", [a_look()]))
    traces, across, down = named(drawn), {}, {}
    for layer, head in product(range(LAYERS), range(HEADS)):
        trace = traces[f"cross/layer{layer}/head{head}"]
        x, y = drawn.layout[trace.xaxis.replace("x", "xaxis")], drawn.layout[trace.yaxis.replace("y", "yaxis")]
        assert (x.anchor, y.anchor, y.scaleanchor) == (trace.yaxis, trace.xaxis, trace.xaxis)
        assert x.title.text == f"layer {layer}, head {head}"
        across[layer, head], down[layer, head] = x.domain, y.domain
    for head in range(HEADS):
        assert 0 <= down[1, head][0] < down[1, head][1] < down[0, head][0] < down[0, head][1] <= 1
        assert across[0, head] == across[1, head]
    for layer in range(LAYERS):
        edges = [edge for head in range(HEADS) for edge in across[layer, head]]
        assert edges == sorted(set(edges))
        assert edges[0] == 0
        assert edges[-1] == pytest.approx(1)
        assert down[layer, 0] == down[layer, 1] == down[layer, 2]


def test_no_control_undoes_another() -> None:
    drawn = figure(Story("one", [a_look(10), a_look(20)]))
    changes = [
        {path for choice in menu(drawn, name).values() for part in choice for path in part}
        for name in ("kind", "layer", "head")
    ]
    changes.append({path for step in drawn.layout.sliders[0].steps for part in step.args for path in part})
    assert all(changes)
    assert len(set.union(*changes)) == sum(map(len, changes))


def test_the_slider_goes_through_all_steps_and_starts_at_the_last() -> None:
    looks = [a_look(10, wrote="xx"), a_look(20, wrote="ollehhh"), a_look(30, wrote="olleh")]
    drawn = figure(Story("one", looks))
    (slider,) = drawn.layout.sliders
    assert [step.label for step in slider.steps] == ["10", "20", "30"]
    assert slider.active == 2
    names = list(named(drawn))
    for look, step in zip(looks, slider.steps, strict=True):
        data, layout = step.args
        for number, name in enumerate(names):
            place, _, head = name.rpartition("/head")
            assert np.array(data["z"][number]) == pytest.approx(look.maps[place][int(head)], abs=0.0005)
        cross = names.index("cross/layer1/head0")
        assert [bare(label) for label in data["y"][cross]] == look.probe.written
        marks = np.argwhere(np.array(data["text"][cross]) == MARK)
        assert [tuple(cell) for cell in marks.tolist()] == look.probe.cells()
        assert look.example.verdict() in layout["title.text"]
    last = slider.steps[-1].args
    assert drawn.layout.title.text == last[1]["title.text"]
    for number, trace in enumerate(drawn.data):
        assert all(np.array_equal(trace[name], values[number]) for name, values in last[0].items())


def test_one_look_has_no_slider() -> None:
    assert not figure(Story("one", [a_look()])).layout.sliders


def test_wrong_symbols_are_red_and_bold_and_texts_stand_below_each_other() -> None:
    text = figure(Story("one", [a_look(wrote="oxlehh")])).layout.title.text
    assert bare(text).split("\n") == [
        "source  hello",
        "wanted  olleh",
        "wrote   oxlehh   (2 wrong, ended 1 too late)",
    ]
    assert re.findall('<b><span style="color: #d00000">(.)</span></b>', text) == ["x", "h"]


def test_symbols_of_several_characters_stand_below_each_other() -> None:
    text = figure(Story("one", [a_look(source=["a", "<unk>", "<"], wrote=["<unk>", "b", "a"])])).layout.title.text
    assert [line.rstrip() for line in bare(text).split("\n")] == [
        "source  a     <unk> <",
        "wanted  <     <unk> a",
        "wrote   <unk> b     a    (2 wrong)",
    ]


def test_symbols_and_names_that_are_markup_stay_text() -> None:
    look = a_look(source=[SCRIPT, "<b>", "&lt;"], wrote=["<b>", "<i>"])
    trace = named(figure(Story("one", [look])))["cross/layer0/head0"]
    assert trace.x[1] == f"&lt;script&gt;alert(1)&lt;/script&gt;{NO_WIDTH}"
    assert [bare(label) for label in trace.x] == look.probe.read
    text = rest(page([Story(f"name {SCRIPT}", [look])], f"title {SCRIPT}"))
    assert SCRIPT not in text
    assert text.count("<title>title &lt;script&gt;alert(1)&lt;/script&gt;</title>") == 1
    assert "<h2>name &lt;script&gt;alert(1)&lt;/script&gt;</h2>" in text
    assert not re.search("<b>(?!row|column)", text)


def test_the_page_needs_nothing_but_itself() -> None:
    text = rest(page([Story("one", [a_look()]), Story("other", [a_look(20)])], "maps"))
    assert "default-src 'none'" in text
    assert not re.search(r"""https?:|//\w+\.|\b(src|href)\s*=|@import|url\(""", text)


def test_each_story_has_a_figure_of_its_own_and_plotly_is_there_once() -> None:
    text = rest(page([Story("first", [a_look()]), Story("second", [a_look(20)])], "maps"))
    assert re.findall(r'<div id="(\w+)"', text) == ["story0", "story1"]
    assert re.findall("<h2>(.*)</h2>", text) == ["first", "second"]
    assert text.index("first") < text.index('"story0"') < text.index("second") < text.index('"story1"')


def test_a_model_without_attention_shows_its_texts_and_says_so() -> None:
    story = Story("rnn", [a_plain_look(10, "xx"), a_plain_look(20, "olleh")])
    drawn = figure(story)
    assert not drawn.data
    assert not drawn.layout.updatemenus
    assert not drawn.layout.xaxis.visible
    assert "(right)" in drawn.layout.title.text
    assert ["2 wrong" in step.args[1]["title.text"] for step in drawn.layout.sliders[0].steps] == [True, False]
    text = rest(page([story], "texts"))
    assert "has no attention" in text
    assert "Each map" not in text
    assert MARK not in text
    assert "has no attention" not in rest(page([Story("one", [a_look()])], "maps"))


def test_a_control_with_nothing_to_choose_is_left_out() -> None:
    drawn = figure(Story("rnn_luong", [a_look(kinds=["cross"], layers=1, heads=1)]))
    assert [trace.name for trace in drawn.data] == ["cross/layer0/head0"]
    assert drawn.data[0].visible
    assert not drawn.layout.updatemenus


def test_marks_are_explained_only_where_there_are_some() -> None:
    nowhere = Story("sum", [a_look(right=[NOWHERE] * 4)])
    assert "marks the symbol" not in rest(page([nowhere], "maps"))
    assert "marks the symbol" in rest(page([nowhere, Story("one", [a_look()])], "maps"))


def test_ten_steps_of_two_layers_and_four_heads_add_little_to_plotly() -> None:
    looks = [a_look(step, source="abcdefghijkl", wrote="lkjihgfedcba", heads=4) for step in range(10)]
    assert len(rest(page([Story("one", looks)], "maps")).encode()) < 600_000  # plotly's script has 4,800,000


def test_layers_keep_their_order_when_there_are_more_than_ten() -> None:
    drawn = figure(Story("deep", [a_look(layers=11, heads=1, kinds=["cross"])]))
    tops = [drawn.layout[trace.yaxis.replace("y", "yaxis")].domain[1] for trace in drawn.data]
    assert [trace.name for trace in drawn.data] == [f"cross/layer{layer}/head0" for layer in range(11)]
    assert tops == sorted(tops, reverse=True)


def test_a_page_without_stories_and_a_story_without_looks_are_refused() -> None:
    with pytest.raises(ValueError, match="stories must be at least one"):
        page([], "nothing")
    with pytest.raises(ValueError, match="looks of 'empty' must be at least one"):
        Story("empty", [])


def test_looks_with_different_heads_are_refused() -> None:
    with pytest.raises(ValueError, match="looks of 'mixed' must have the same places and heads"):
        Story("mixed", [a_look(), a_look(heads=HEADS + 1)])


def test_a_long_string_goes_on_below_and_nothing_of_it_is_cut() -> None:
    source = "abcdefghij" * 19
    look = a_look(source=source, wrote=source[::-1][:-1] + "x", layers=1, heads=1, kinds=["cross"])
    drawn = figure(Story("one", [look]))
    lines = bare(drawn.layout.title.text).splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["source", "wanted", "wrote"] * 3
    assert max(map(len, lines)) <= 130  # of 9 pixels each, in 1234
    for number, text in enumerate((source, source[::-1], source[::-1][:-1] + "x")):
        parts = [line.partition("   (")[0][8:].rstrip() for line in lines[number::3]]
        assert [len(part) for part in parts] == [80, 80, 30]
        assert "".join(parts) == text
    assert lines[-1].endswith("   (1 wrong)")
    short = figure(Story("one", [a_look(layers=1, heads=1, kinds=["cross"])]))
    assert drawn.layout.height - short.layout.height == drawn.layout.margin.t - short.layout.margin.t == 6 * 20


def test_long_names_are_broken_and_not_cut() -> None:
    assert "h1, h2 { overflow-wrap: anywhere; }" in rest(page([Story("one", [a_look()])], "x" * 500))
