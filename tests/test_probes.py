"""Strings on which a model is watched."""

from pathlib import Path

import numpy as np
import pytest
import torch

from lookback import config, experiment, launcher, learner
from lookback.alignment import NOWHERE
from lookback.decode import greedy
from lookback.models.base import Seq2Seq
from lookback.probes import look, make_probe, validation_probe
from lookback.tasks.base import Task
from lookback.tasks.reverse import Reverse
from lookback.tasks.sort import Sort

REVERSE = Reverse(alphabet_size=26)
MODELS = ["transformer", "rnn_luong", "rnn_bahdanau"]


def small(model: str, *more: str) -> tuple[Task, Seq2Seq]:
    heads = ["model.num_heads=3", "model.d_ff=20"] if model == "transformer" else []
    return learner.build(
        config.build(launcher.compose("train", [f"model={model}", "model.d_model=12", *heads, *more]))
    )


def test_a_validation_probe_is_a_fixed_string_with_its_answer() -> None:
    one, two = (validation_probe(REVERSE, 4) for _ in range(2))
    assert one.read == two.read
    assert len(one.read) == 6
    assert one.read[0] == "<bos>"
    assert one.read[-1] == one.written[-1] == "<eos>"
    assert one.written[:-1] == one.read[-2:0:-1]
    assert [one.read[column] for _, column in one.cells()] == one.written[:-1]


def test_each_kind_of_map_names_its_rows_and_columns() -> None:
    probe = make_probe(REVERSE, REVERSE.spell("ab"))
    panels = {kind: probe.panel(f"{kind}/layer0") for kind in ("encoder_self", "decoder_self", "cross")}
    read = ["<bos>", "a", "b", "<eos>"]
    assert {kind: (panel.rows, panel.columns) for kind, panel in panels.items()} == {
        "encoder_self": (read, read),
        "decoder_self": (["b", "a", "<eos>"], ["<bos>", "b", "a"]),
        "cross": (["b", "a", "<eos>"], read),
    }
    cross = panels["cross"]
    assert (cross.row_axis, cross.column_axis) == ("symbol being written", "symbol of the source")
    assert panels["encoder_self"].row_axis == "symbol that looks"
    assert panels["decoder_self"].column_axis == "symbol written before"
    assert cross.title == "ab"
    assert probe.panel("cross/layer0", "head 1").title == "head 1"


def test_right_cells_are_outlined_in_cross_attention_alone() -> None:
    probe = make_probe(Sort(alphabet_size=26), REVERSE.spell("cab"))
    assert probe.panel("cross/layer1").outlined == [(0, 2), (1, 3), (2, 1)]
    assert probe.panel("encoder_self/layer0").outlined == probe.panel("decoder_self/layer0").outlined == []


@pytest.mark.parametrize(
    ("wrote", "ended", "written", "right"),
    [
        ("cba", True, ["c", "b", "a", "<eos>"], [3, 2, 1, NOWHERE]),
        ("c", True, ["c", "<eos>"], [3, 2]),  # where it should have gone on, it should have looked at b
        ("", True, ["<eos>"], [3]),
        ("zzzzz", True, ["z"] * 5 + ["<eos>"], [3, 2, 1, NOWHERE, NOWHERE, NOWHERE]),
        ("zz", False, ["z", "z"], [3, 2]),
    ],
)
def test_rows_are_what_was_written_and_right_cells_those_of_the_answer(
    wrote: str, ended: bool, written: list[str], right: list[int]
) -> None:
    source = REVERSE.spell("abc")
    probe = make_probe(REVERSE, source, np.array(REVERSE.target_vocabulary.encode(wrote), int), ended=ended)
    assert probe.written == written
    assert probe.right.tolist() == right
    assert probe.batch.decoder_input.shape[1] == len(written)


def test_maps_of_a_probe_have_a_row_a_query_and_sum_to_one(tiny_run: Path) -> None:
    task, model = experiment.load(tiny_run)
    model.train()  # dropout 0.5: maps must not show it
    maps = validation_probe(task, 4).watch(model)
    assert model.training
    assert maps["encoder_self/layer0"].shape == (3, 6, 6)
    assert maps["decoder_self/layer1"].shape == (3, 5, 5)
    assert maps["cross/layer0"].shape == (3, 5, 6)
    for weights in maps.values():
        assert np.allclose(weights.sum(axis=-1), 1.0, atol=1e-5)
        assert weights.min() >= 0
    assert (np.triu(maps["decoder_self/layer0"], k=1) == 0).all()


@pytest.mark.parametrize("name", MODELS)
def test_a_look_shows_what_greedy_decoding_writes_and_the_maps_of_that(name: str) -> None:
    task, model = small(name)
    source = task.spell("hello")
    found = look(model, task, source, 70, 4)
    ids = torch.tensor([[1, *source, 2]])
    decoded = greedy(model, ids, torch.tensor([7]), 6 + 4)
    wrote = task.target_vocabulary.decode(decoded.tokens[0].tolist())
    assert found.step == 70
    assert "".join(found.example.source) == "hello"
    assert found.probe.written == wrote
    assert found.probe.read == ["<bos>", *"hello", "<eos>"]
    assert found.maps["cross/layer0"].shape[1:] == (len(wrote), 7)


@pytest.mark.parametrize("name", MODELS)
def test_watching_what_was_written_predicts_what_was_written(name: str) -> None:
    """So its maps are those of free-running decoding: the decoder reads the same symbols, and answers the same."""
    task, model = small(name)
    probe = look(model, task, task.spell("abcdef"), 0, 5).probe
    batch = probe.batch
    with torch.no_grad():
        logits = model.eval()(batch.source, batch.source_lengths, batch.decoder_input, {})
    assert torch.equal(logits.argmax(dim=-1), batch.labels)


def test_a_model_without_attention_has_no_maps() -> None:
    task, model = small("rnn")
    assert look(model, task, task.spell("abc"), 0, 5).maps == {}


@pytest.mark.parametrize(
    ("text", "what"), [("", r"but is ''"), ("héllo!", r"but is 'héllo!' \(unknown: '!' 'é'\)")]
)
def test_a_text_of_other_symbols_is_refused(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=f"source must be made of the task's symbols, abc.*, {what}"):
        REVERSE.spell(text)
