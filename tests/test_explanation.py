"""What is told of a head: numbers that agree with each other, and Markdown that no symbol breaks."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from markdown_it import MarkdownIt

from lookback import explain
from lookback.explanation import chosen_rows, code, numbers, table
from lookback.lesson import softmax
from lookback.models.recurrent import SCORES
from lookback.models.rnn_luong import RnnLuong
from lookback.probes import PlaceMaps
from lookback.subjects import Subject
from lookback.tasks.base import Task
from lookback.tasks.reverse import Reverse
from lookback.tokens import Vocabulary
from test_lookups import ENCODINGS, HEADS, TASK, transformer
from test_subjects import MAPS, REVERSE, RIGHT, scripted

RAW = {
    "task": {"_target_": "lookback.tasks.reverse.Reverse"},
    "model": {"_target_": "M", "d_model": 12, "positions": {"_target_": "lookback.positions.rotary.Rotary"}},
}
ROUNDING = 0.0015  # of a softmax of scores with three digits, and of weights with three


def run(folder: Path, encoding: str = "none", task: Task = TASK, *, log_length: bool = False) -> Subject:
    """A Transformer that nobody trained."""
    model = transformer(encoding, log_length=log_length)
    return replace(scripted(folder), name="a transformer", task=task, model=model, raw=RAW)


def told(folder: Path, wrote: str, cross: PlaceMaps, head: str | None = None) -> str:
    """What is told of a model that writes this for abc, with these maps."""
    one = replace(scripted(folder, {"abc": (wrote, cross)}), raw=RAW)
    return numbers(explain.explained(one, "abc", head))


def tables(text: str) -> list[tuple[list[str], list[list[str]]]]:
    """The tables of a Markdown text as a reader sees them: header and rows, cells without marks."""
    found, row = [], list[str]()
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        match token.type:
            case "table_open":
                rows = list[list[str]]()
            case "tr_open":
                row = []
            case "inline" if token.level >= 4:
                row.append("".join(child.content for child in token.children or ()))
            case "tr_close":
                rows.append(row)
            case "table_close":
                found.append((rows[0], rows[1:]))
    return found


def column(rows: Sequence[Sequence[str]], at: int) -> list[float]:
    return [float(row[at]) for row in rows]


# ------------------------------------------------------------------------------------------------------ numbers


@pytest.mark.parametrize("log_length", [False, True])
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("place", ["encoder_self/layer0", "decoder_self/layer0", "cross/layer0"])
def test_the_softmax_of_the_printed_scores_is_the_printed_weights(
    tmp_path: Path, place: str, encoding: str, log_length: bool
) -> None:
    it = explain.explained(run(tmp_path, encoding, log_length=log_length), "bead", f"{place}/head1")
    whole, *worked = tables(numbers(it))
    rows = chosen_rows(it)
    assert len(worked) == len(rows) >= 2
    for row, (header, cells) in zip(rows, worked, strict=True):
        keys = [int(cell) for cell in column(cells, 0)]
        printed = column(cells, -1)
        assert printed == [float(whole[1][row][1 + key]) for key in keys]
        np.testing.assert_allclose(softmax(np.array(column(cells, -2))), printed, rtol=0, atol=ROUNDING)
        np.testing.assert_allclose(sum(printed), 1, rtol=0, atol=0.001 * len(printed))
        np.testing.assert_allclose(np.array(column(cells, 2)) / 2, column(cells, 3), rtol=0, atol=0.001)  # d_k = 4
        if "bias" in header:
            summed = np.array(column(cells, 3)) + column(cells, 4)
            np.testing.assert_allclose(summed, column(cells, 5), rtol=0, atol=0.0016)


def test_columns_say_whether_there_is_a_bias(tmp_path: Path) -> None:
    for encoding, middle in (("rotary", []), ("relative", ["bias", "score"])):
        it = explain.explained(run(tmp_path, encoding), "bead", "cross/layer0/head1")
        text = numbers(it)
        assert tables(text)[1][0] == ["place", "key", "q . k", "q . k / sqrt(4)", *middle, "weight"]
        assert ("adds a bias to q . k / sqrt(d_k)" in text) == bool(middle)
        assert ("adds nothing to these scores" in text) != bool(middle)


def test_hidden_keys_have_no_number(tmp_path: Path) -> None:
    it = explain.explained(run(tmp_path), "bead", "decoder_self/layer0/head0")
    text = numbers(it)
    (_, rows), first, *_ = tables(text)
    for at, row in enumerate(rows):
        assert "-" not in row[1 : at + 2]
        assert set(row[at + 2 :]) <= {"-"}
    assert len(first[1]) == 1
    assert "- = hidden by the mask" in text
    assert "- What comes back is 1.000 times the value of place 0; there is no other." in text
    assert "The cosine between what comes back and the value of place 0 is 1.000." in text


def test_the_cosine_is_of_what_comes_back_and_the_value_of_the_largest_weight(tmp_path: Path) -> None:
    it = explain.explained(run(tmp_path), "bead", "encoder_self/layer0/head1")
    said = re.findall(r"value of place (\d) is (\S+)\.$", numbers(it), re.MULTILINE)
    value = it.found.scored.value if it.found.scored else np.empty(0)
    expected = []
    for row in chosen_rows(it):
        weights = it.found.weights[row]
        back, top = sum(weight * one for weight, one in zip(weights, value, strict=True)), int(np.argmax(weights))
        both = math.sqrt(sum(back**2)) * math.sqrt(sum(value[top] ** 2))
        expected.append((str(top), f"{sum(back * value[top]) / both:.3f}"))
    assert said == expected
    assert len({top for top, _ in said}) > 1


def test_sizes_and_positions_are_told(tmp_path: Path) -> None:
    text = numbers(explain.explained(run(tmp_path), "bead", "cross/layer0/head2"))
    sizes = f"d_model 12, {HEADS} heads, d_k = 12 / 3 = 4, positions: `rotary`."
    assert f"- Model: `a transformer`, with its weights of step 7; {sizes}\n" in text
    assert "- Task: `reverse`. Write what was read, twice.\n" in text  # the docstring's first line
    assert "- Head: `cross/layer0/head2`, because it was asked for.\n" in text
    longer = numbers(explain.explained(run(tmp_path, log_length=True), "bead", "cross/layer0/head2"))
    assert "`rotary`. Its queries and biases are multiplied by log10 of the number of keys.\n" in longer


# ------------------------------------------------------------------------------------------------- what it wrote


def test_a_right_output_and_a_head_that_looks_at_the_answer(tmp_path: Path) -> None:
    text = told(tmp_path, "cba", MAPS)
    assert "- Source: `abc`\n- Right answer: `cba`\n- Output of the model: `cba`, which is right.\n" in text
    assert "- Head: `cross/layer0/head1`, because it is the clearest of cross-attention" in text
    [(header, rows)] = tables(text)
    assert header == ["", "0 <bos>", "1 a", "2 b", "3 c", "4 <eos>"]
    assert [row[0] for row in rows] == ["0 c", "1 b", "2 a", "3 <eos>"]
    assert [[float(cell) for cell in row[1:]] for row in rows] == RIGHT.tolist()
    assert "| 0 `c` | 0.000 | 0.000 | 0.000 | **1.000** | 0.000 |" in text
    assert "| 3 `<eos>` | 0.000 | 0.000 | 0.000 | 0.000 | 1.000 |" in text  # EOS stands nowhere
    assert re.findall(r"^### Row (\d)", text, re.MULTILINE) == ["0", "1", "3"]
    assert "on place 3, `c`, where the answer stands.\n" in text
    assert "times the value of place 3; 0.000 is shared by all others. It is almost only that value." in text


def test_a_wrong_output_is_told_where_it_first_goes_wrong(tmp_path: Path) -> None:
    text = told(tmp_path, "cbx", MAPS)
    assert "- Output of the model: `cbx`, which is wrong (1 wrong).\n" in text
    assert re.findall(r"^### Row (\d)", text, re.MULTILINE) == ["0", "2", "3"]
    assert "### Row 2: `x` is being written\n\n- This is wrong: right is `a`.\n" in text
    assert text.count("This is wrong") == 1


def test_an_output_that_ends_early_or_late_is_wrong_there(tmp_path: Path) -> None:
    early = {**MAPS, "cross/layer0": MAPS["cross/layer0"][:, :2]}
    text = told(tmp_path, "c", early)
    assert "### Row 1: `<eos>` is being written\n\n- This is wrong: right is `b`.\n" in text
    late = {**MAPS, "cross/layer0": np.concatenate([MAPS["cross/layer0"]] * 2, axis=1)[:, :6]}
    text = told(tmp_path, "cbaab", late)
    assert "### Row 3: `a` is being written\n\n- This is wrong: right is `<eos>`.\n" in text
    assert "### Row 5: `<eos>` is being written\n\n- This is wrong: right is nothing.\n" in text
    nothing = {**MAPS, "cross/layer0": MAPS["cross/layer0"][:, 3:]}
    text = told(tmp_path, "", nothing)
    assert "- Output of the model: nothing, which is wrong (ended 3 too early).\n" in text
    assert re.findall(r"^### Row (\d)", text, re.MULTILINE) == ["0"]


def test_a_head_that_looks_elsewhere_is_not_said_to_be_right(tmp_path: Path) -> None:
    text = told(tmp_path, "cba", MAPS, "cross/layer0/head2")  # half on <bos>, half on the answer
    assert "- The largest weight is 0.500, on place 0, `<bos>`; the answer stands at place 3, `c`.\n" in text
    assert "It is mostly that value." in text
    text = told(tmp_path, "cba", MAPS, "cross/layer0/head0")  # at all five alike
    assert "0.800 is shared by all others. It is a blend in which no value has half of the weight." in text


def test_rows_of_the_encoder_write_nothing(tmp_path: Path) -> None:
    text = told(tmp_path, "xyz", MAPS, "encoder_self/layer0/head0")
    assert "### Row 2: `b` looks\n" in text
    assert "This is wrong" not in text
    assert "Bold" not in text


@pytest.mark.parametrize("score", SCORES)
def test_of_other_scores_it_says_what_they_are_and_gives_weights_only(tmp_path: Path, score: str) -> None:
    symbols = len(REVERSE.source_vocabulary)
    sizes = {"d_model": 12, "num_layers": 1, "cell": "gru", "bidirectional": False, "dropout": 0.0, "tied": False}
    model = RnnLuong(symbols, symbols, **sizes, score=score)  # type: ignore[arg-type]
    text = numbers(explain.explained(replace(scripted(tmp_path), model=model, raw=RAW), "abc", None))
    formula = {"dot": "query . state", "general": "query . W state", "additive": "v . tanh(W query + U state)"}
    said = f"d_model 12, 1 head. It is no Transformer: its score is not q . k / sqrt(d_k) but `{formula[score]}`"
    assert said in text
    assert "Only weights are given." in text
    assert len(tables(text)) == 1
    assert "cosine" not in text


# ---------------------------------------------------------------------------------------------------- Markdown

STRANGE = ["|", "`", "``", "<", ">", "<b>", "*", "_", "\\", "[a](b)", " ", " a", "a `b` c", "&amp;", "~~", "#", "$"]


@pytest.mark.parametrize("text", STRANGE)
def test_a_code_span_shows_exactly_its_text(text: str) -> None:
    [paragraph] = [token for token in MarkdownIt("commonmark").parse(f"- so {code(text)} is") if token.children]
    assert [(child.type, child.content) for child in paragraph.children or ()] == [
        ("text", "so "),
        ("code_inline", text),
        ("text", " is"),
    ]


@pytest.mark.parametrize("text", STRANGE)
def test_no_symbol_breaks_a_table(text: str) -> None:
    lines = table(["", code(text, in_table=True), "next"], [[code(text, in_table=True), "1", "2"]], names=1)
    assert tables("\n".join(lines)) == [(["", text, "next"], [[text, "1", "2"]])]


def test_a_line_break_is_shown_as_one_symbol() -> None:
    assert code("a\nb") == "`a�b`"


class Signs(Reverse):
    """Reverse what Markdown could take for its own."""

    def __init__(self) -> None:
        super().__init__(alphabet_size=5)
        self.source_vocabulary = self.target_vocabulary = Vocabulary(["|", "`", "<", "*", " "])


def test_a_whole_explanation_keeps_its_tables_whatever_the_symbols(tmp_path: Path) -> None:
    it = explain.explained(run(tmp_path, task=Signs()), "|`<* ", "cross/layer0/head0")
    text = numbers(it)
    assert "- Source: `` |`<*  ``\n" in text
    (header, rows), *worked = tables(text)
    assert header == ["", "0 <bos>", "1 |", "2 `", "3 <", "4 *", "5  ", "6 <eos>"]
    assert [row[0] for row in rows] == [f"{at} {symbol}" for at, symbol in enumerate(it.panel.rows)]
    assert {len(row) for row in rows} == {8}
    for _, keys in worked:
        assert [row[1] for row in keys] == ["<bos>", "|", "`", "<", "*", " ", "<eos>"]
