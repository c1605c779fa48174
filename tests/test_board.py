"""What the event files and metrics.jsonl of a run hold."""

import io
import json
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from conftest import train
from lookback import experiment
from lookback.board import Board, Probe, board_arguments, clearest_head, make_probe
from lookback.evaluate import Example
from lookback.figures import Panel
from lookback.tasks.reverse import Reverse

SMALL = 20_000_000


def events(folder: Path) -> Any:
    read = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0, "tensors": 0})
    read.Reload()
    return read


def test_each_step_is_one_point_of_the_loss(tiny_run: Path) -> None:
    read = events(tiny_run)
    for tag in ("loss", "token_accuracy", "learning_rate", "tokens_per_second"):
        assert [point.step for point in read.Scalars(f"train/{tag}")] == list(range(1, 25))
    assert [point.step for point in read.Scalars("val/exact_match")] == [10, 20, 24]
    assert [point.step for point in read.Scalars("length/8/exact_match")] == [24]


def test_every_layer_and_head_has_all_its_images(tiny_run: Path) -> None:
    read = events(tiny_run)
    tags = {
        f"attention/{kind}/layer{layer}/head{head}"
        for kind in ("encoder_self", "decoder_self", "cross")
        for layer in range(2)
        for head in range(3)
    }
    assert set(read.Tags()["images"]) == tags
    for tag in tags:
        assert [image.step for image in read.Images(tag)] == [5, 10, 15, 20, 24]


def test_an_image_is_a_picture_of_the_frame_of_its_kind(tiny_run: Path) -> None:
    read = events(tiny_run)
    picture = Image.open(io.BytesIO(read.Images("attention/cross/layer1/head2")[0].encoded_image_string))
    assert picture.mode == "RGB"
    assert picture.width > picture.height > 100  # two probes side by side


def test_samples_are_logged_as_a_table(tiny_run: Path) -> None:
    read = events(tiny_run)
    text = read.Tensors("samples/val/text_summary")[-1].tensor_proto.string_val[0].decode()
    assert text.startswith("| source | wanted | wrote |")
    assert text.count("\n") == 9


def test_a_run_is_one_event_file_and_small(tiny_run: Path) -> None:
    files = list(tiny_run.rglob("*tfevents*"))
    assert len(files) == 1
    assert files[0].stat().st_size < SMALL


def test_metrics_hold_the_same_numbers_as_the_board(tiny_run: Path) -> None:
    lines = [json.loads(line) for line in (tiny_run / "metrics.jsonl").read_text().splitlines()]
    losses = {line["step"]: line["train/loss"] for line in lines if "train/loss" in line}
    assert losses == pytest.approx({point.step: point.value for point in events(tiny_run).Scalars("train/loss")})


def test_zero_turns_images_off(tmp_path: Path) -> None:
    assert train(tmp_path / "run", "board.images_every=0", "train.steps=2") == 0
    assert events(tmp_path / "run").Tags()["images"] == []
    assert [point.step for point in events(tmp_path / "run").Scalars("train/loss")] == [1, 2]


def test_points_after_the_step_that_is_resumed_from_are_dropped(tmp_path: Path) -> None:
    with Board(tmp_path, 0) as board:
        for step in range(1, 8):
            board.scalars(step, {"train/loss": float(step)})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 8, "tra')  # a kill in the middle of a line
    with Board(tmp_path, 4) as board:
        for step in range(5, 7):
            board.scalars(step, {"train/loss": 100.0 + step})
    wanted = [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0), (5, 105.0), (6, 106.0)]
    assert [(point.step, point.value) for point in events(tmp_path).Scalars("train/loss")] == wanted
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line["train/loss"]) for line in lines] == wanted


def test_without_tensorboard_a_run_goes_on_with_a_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with Board(tmp_path, 0) as board:
        board.scalars(1, {"train/loss": 2.5})
        board.samples(1, [Example(["a"], ["a"], ["a"], True)])
    assert "no TensorBoard log" in capsys.readouterr().err
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"step": 1, "train/loss": 2.5}


def test_symbols_that_are_markup_stay_text(tmp_path: Path) -> None:
    with Board(tmp_path, 0) as board:
        board.samples(3, [Example(["<b>"], ["x"], ["<script>"], True)])
    text = events(tmp_path).Tensors("samples/val/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "<script>" not in text
    assert "**&lt;script&gt;**" in text


def test_the_printed_command_shows_every_image() -> None:
    assert board_arguments("runs") == "--logdir runs --samples_per_plugin images=500"


def test_a_probe_is_a_fixed_string_with_its_symbols() -> None:
    one, two = (make_probe(Reverse(alphabet_size=26), 4) for _ in range(2))
    assert one.read == two.read
    assert one.read[0] == "<bos>"
    assert one.read[-1] == one.written[-1] == "<eos>"
    assert one.written[:-1] == one.read[-2:0:-1]
    assert one.alignment is not None
    assert [one.read[place] for place in one.alignment] == one.written[:-1]


def test_maps_of_a_probe_have_a_row_a_query_and_sum_to_one(tiny_run: Path) -> None:
    task, model = experiment.load(tiny_run)
    model.train()  # dropout 0.5: maps must not show it
    maps = make_probe(task, 4).watch(model)
    assert maps["encoder_self/layer0"].shape == (3, 6, 6)
    assert maps["decoder_self/layer1"].shape == (3, 5, 5)
    assert maps["cross/layer0"].shape == (3, 5, 6)
    for weights in maps.values():
        assert np.allclose(weights.sum(axis=-1), 1.0, atol=1e-5)
        assert weights.min() >= 0
    assert (np.triu(maps["decoder_self/layer0"], k=1) == 0).all()


def test_the_clearest_head_is_the_one_that_looks_where_the_answer_stands() -> None:
    maps = {
        "encoder_self/layer0": np.ones((1, 3, 3)),
        "cross/layer0": np.array([[[0.1, 0.7, 0.2], [0.1, 0.8, 0.1]], [[0.6, 0.2, 0.2], [0.2, 0.2, 0.6]]]),
    }
    for alignment, wanted in ((np.array([2, 0]), (1, 0.2)), (np.array([1, 1]), (0, 0.75)), (None, (0, 0.75))):
        found = clearest_head(maps, alignment)
        assert found is not None
        assert found[:2] == ("cross/layer0", wanted[0])
        assert found[2] == pytest.approx(wanted[1])
    assert clearest_head({"encoder_self/layer0": np.ones((1, 3, 3))}, None) is None


def test_a_run_leaves_its_maps_as_pictures_and_arrays(tiny_run: Path) -> None:
    folder = tiny_run / "attention"
    names = sorted(path.name for path in folder.glob("*.png"))
    assert len(names) == 2 * 3 * 2  # probes, kinds, layers
    with np.load(folder / "maps.npz") as arrays:
        assert arrays["probe0/cross/layer1"].shape == (3, 4, 5)
        assert arrays["probe1/read"].tolist()[0] == "<bos>"


def test_each_kind_of_map_names_its_rows_and_columns() -> None:
    probe = Probe(make_probe(Reverse(alphabet_size=26), 2).batch, list("^ab$"), list("ba$"), None)
    panels = {kind: probe.panel(f"{kind}/layer0") for kind in ("encoder_self", "decoder_self", "cross")}
    assert {kind: ("".join(panel.rows), list(panel.columns)) for kind, panel in panels.items()} == {
        "encoder_self": ("^ab$", list("^ab$")),
        "decoder_self": ("ba$", ["<bos>", "b", "a"]),
        "cross": ("ba$", list("^ab$")),
    }
    assert (panels["cross"].row_axis, panels["cross"].column_axis) == (
        "symbol being written",
        "symbol of the source",
    )
    assert panels["encoder_self"].row_axis == "symbol that looks"
    assert panels["decoder_self"].column_axis == "symbol written before"


class HandMade:
    """A probe whose maps are given."""

    def watch(self, model: object) -> dict[str, Any]:
        dark, bright = np.zeros((2, 3)), np.ones((2, 3))
        return {"cross/layer0": np.stack([dark, bright, np.eye(2, 3)])}

    def panel(self, place: str) -> Panel:
        return Panel("t", ["p", "q"], ["a", "b", "c"], "rows", "columns")


def test_each_head_has_its_own_map_in_its_own_image(tmp_path: Path) -> None:
    with Board(tmp_path, 0) as board:
        board.attention(7, cast(Any, None), cast(Any, [HandMade()]))
    read, sums = events(tmp_path), []
    for head in range(3):
        [image] = read.Images(f"attention/cross/layer0/head{head}")
        assert image.step == 7
        sums.append(np.asarray(Image.open(io.BytesIO(image.encoded_image_string))).astype(float).sum())
    assert sums[0] < sums[2] < sums[1]


def test_twenty_five_images_a_tag_are_all_in_the_file(tmp_path: Path) -> None:
    with Board(tmp_path, 0) as board:
        for step in range(1, 26):
            board.attention(step, cast(Any, None), cast(Any, [HandMade()]))
    assert [image.step for image in events(tmp_path).Images("attention/cross/layer0/head1")] == list(range(1, 26))


def test_a_result_is_never_logged_twice_at_one_step(tmp_path: Path) -> None:
    for value in (0.5, 0.75):
        with Board(tmp_path, 4 if value > 0.5 else 0) as board:
            board.scalars(4, {"length/8/exact_match": value})
            board.scalars(5, {"train/loss": value})
    read = events(tmp_path)
    assert [(point.step, point.value) for point in read.Scalars("length/8/exact_match")] == [(4, 0.5)]
    assert [(point.step, point.value) for point in read.Scalars("train/loss")] == [(5, 0.75)]


def test_damaged_lines_of_metrics_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1, "a": 1}\n\xff\xfe\n[]\n{"b": 2}\n{"step": 2, "a": 3}\n')
    with Board(tmp_path, 2):
        pass
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1, "a": 1}\n{"step": 2, "a": 3}\n'
