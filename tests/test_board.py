"""What the event files and metrics.jsonl of a run hold."""

import io
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from tensorboard.backend.event_processing import plugin_event_accumulator
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.summary.writer import event_file_writer
from tensorboard.util import tensor_util

from conftest import train
from lookback.board import Board, board_arguments
from lookback.evaluate import Example
from lookback.figures import CELL, COLOURS, OUTLINE, OUTLINE_WIDTH, Panel, Picture, level

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
    sheets = {f"attention_sheets/{tag.split('/')[1]}/{tag.split('/')[2]}" for tag in tags}
    assert set(read.Tags()["images"]) == tags | sheets | {"film"}
    for tag in tags | sheets:
        assert [image.step for image in read.Images(tag)] == [5, 10, 15, 20, 24]
    assert [image.step for image in read.Images("film")] == [24]


def test_every_head_is_measured_at_its_cadence(tiny_run: Path) -> None:
    read = events(tiny_run)
    for layer in range(2):
        for head in range(3):
            tags = [f"alignment/cross/layer{layer}/head{head}/{name}" for name in ("weight", "largest", "entropy")]
            tags += [
                f"alignment/{kind}/layer{layer}/head{head}/entropy" for kind in ("encoder_self", "decoder_self")
            ]
            for tag in tags:
                assert [point.step for point in read.Scalars(tag)] == [10, 20, 24]
    assert sum(tag.startswith("alignment/") for tag in read.Tags()["scalars"]) == 2 * 3 * 5


def test_all_heads_of_a_layer_are_in_one_chart(tiny_run: Path) -> None:
    [found] = events(tiny_run).Tensors("custom_scalars__config__")
    layout = layout_pb2.Layout()
    layout.ParseFromString(found.tensor_proto.string_val[0])
    [category] = layout.category
    charts = {chart.title: list(chart.multiline.tag) for chart in category.chart}
    assert charts["cross/layer1: largest"] == [f"^alignment/cross/layer1/head{head}/largest$" for head in range(3)]
    assert len(charts) == 2 * 5


def test_wrong_outputs_are_on_the_board_when_training_has_ended(tiny_run: Path) -> None:
    [found] = events(tiny_run).Tensors("failures/text_summary")
    assert found.step == 24
    assert "stopped early" in found.tensor_proto.string_val[0].decode()


def test_an_image_is_a_picture_of_the_frame_of_its_kind(tiny_run: Path) -> None:
    read = events(tiny_run)
    picture = Image.open(io.BytesIO(read.Images("attention/cross/layer1/head2")[0].encoded_image_string))
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


def served(folder: Path, tag: str) -> list[tuple[int, float]]:
    """The points of a tag as TensorBoard itself reads them."""
    read = plugin_event_accumulator.EventAccumulator(str(folder), tensor_size_guidance={"scalars": 0})
    read.Reload()
    return [(point.step, float(tensor_util.make_ndarray(point.tensor_proto))) for point in read.Tensors(tag)]


@pytest.mark.parametrize("start", [0, 1, 4, 7])
def test_tensorboard_itself_drops_what_is_after_the_step_that_is_resumed_from(tmp_path: Path, start: int) -> None:
    with Board(tmp_path, 0) as board:
        for step in range(8):
            board.scalars(step, {"train/loss": float(step)})
    first = [(step, float(step)) for step in range(8)]
    assert served(tmp_path, "train/loss") == first  # a fresh run has all its points
    time.sleep(
        1.0 - time.time() % 1.0
    )  # event files are read in the order of their names, which have whole seconds
    with Board(tmp_path, start) as board:
        board.scalars(9, {"train/loss": 109.0})
    assert served(tmp_path, "train/loss") == [*first[: start + 1], (9, 109.0)]


class FullDisk:
    """A file of events on a disk that is full after so many bytes."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, data: bytes) -> None:
        self.room -= len(data)
        if self.room < 0:
            raise OSError(28, "No space left on device")

    def flush(self) -> None:
        self.write(b"")

    def close(self) -> None:
        self.write(b"")


@pytest.mark.parametrize("room", [0, 300, 3000])
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)  # TensorBoard's own thread ends so
def test_a_disk_that_is_full_ends_the_events_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], room: int
) -> None:
    monkeypatch.setattr(event_file_writer.tf.io.gfile, "GFile", lambda *_: FullDisk(room))
    with Board(tmp_path, 0) as board:
        for step in range(60):
            board.scalars(step, {"train/loss": float(step)})
            board.samples(step, [Example(["a"], ["a"], ["a"], True)])
            board.attention(step, cast(Any, [HandMade()]), cast(Any, [MAPS]))
            board.film(step, Picture(np.zeros((2, 4), dtype=np.uint8)))
            board.flush()
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 60
    assert capsys.readouterr().err.count("no TensorBoard log") == 1


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


def test_words_of_samples_stand_apart(tmp_path: Path) -> None:
    shown = Example(["in", "a"], ["I", "GO"], ["I", "RUN"], True, source_unit="word", target_unit="word")
    with Board(tmp_path, 0) as board:
        board.samples(3, [shown, replace(shown, source_unit="character")])
    text = events(tmp_path).Tensors("samples/val/text_summary")[0].tensor_proto.string_val[0].decode()
    assert [line.split(" | ")[:3] for line in text.splitlines()[2:]] == [
        ["| in a", "I GO", "I **RUN**"],
        ["| ina", "I GO", "I **RUN**"],
    ]


def test_the_printed_command_shows_every_image() -> None:
    assert board_arguments("runs") == "--logdir runs --samples_per_plugin images=500"


class HandMade:
    """A probe of a given name: the frames of its maps are 2 by 3."""

    def panel(self, place: str, title: str = "t") -> Panel:
        return Panel(title, ["p", "q"], ["a", "b", "c"], "rows", "columns", [(0, 1)])


DARK, BRIGHT = np.zeros((2, 3)), np.ones((2, 3))
MAPS = {"cross/layer0": np.stack([DARK, BRIGHT, np.eye(2, 3)])}


def log_attention(folder: Path, steps: range) -> None:
    with Board(folder, 0) as board:
        for step in steps:
            board.attention(step, cast(Any, [HandMade()]), cast(Any, [MAPS]))


def picture(image: Any) -> NDArray[np.uint8]:
    return np.asarray(Image.open(io.BytesIO(image.encoded_image_string)).convert("RGB"))


def cell(drawn: NDArray[np.uint8], panel: int, row: int, column: int) -> list[int]:
    """The colour in the middle of a cell. Cells are found by the outline of cell (0, 1) in each panel."""
    ys, xs = np.nonzero((drawn == OUTLINE).all(axis=-1))
    lefts = [x for x in np.unique(xs) if x - 1 not in xs and x - CELL + OUTLINE_WIDTH - 1 not in xs]
    top, left = ys.min(), lefts[panel]
    found: list[int] = drawn[top + row * CELL + CELL // 2, left + (column - 1) * CELL + CELL // 2].tolist()
    return found


def test_each_head_has_its_own_map_in_its_own_image(tmp_path: Path) -> None:
    log_attention(tmp_path, range(7, 8))
    read = events(tmp_path)
    for head in range(3):
        [image] = read.Images(f"attention/cross/layer0/head{head}")
        assert image.step == 7
        drawn = picture(image)
        for row in range(2):
            for column in range(3):
                weight = MAPS["cross/layer0"][head, row, column]
                assert cell(drawn, 0, row, column) == COLOURS[level(weight)].tolist()


def test_a_contact_sheet_shows_all_heads_of_a_layer_in_order(tmp_path: Path) -> None:
    log_attention(tmp_path, range(7, 8))
    [image] = events(tmp_path).Images("attention_sheets/cross/layer0")
    drawn = picture(image)
    for head in range(3):
        assert cell(drawn, head, 1, 1) == COLOURS[level(MAPS["cross/layer0"][head, 1, 1])].tolist()
        assert cell(drawn, head, 1, 2) == COLOURS[level(MAPS["cross/layer0"][head, 1, 2])].tolist()


def test_twenty_five_images_a_tag_are_all_in_the_file(tmp_path: Path) -> None:
    log_attention(tmp_path, range(1, 26))
    assert [image.step for image in events(tmp_path).Images("attention/cross/layer0/head1")] == list(range(1, 26))


def test_probes_stand_side_by_side(tmp_path: Path) -> None:
    with Board(tmp_path, 0) as board:
        maps = [{"cross/layer0": DARK[None]}, {"cross/layer0": BRIGHT[None]}]
        board.attention(3, cast(Any, [HandMade(), HandMade()]), cast(Any, maps))
    [image] = events(tmp_path).Images("attention/cross/layer0/head0")
    assert cell(picture(image), 0, 1, 1) == COLOURS[0].tolist()
    assert cell(picture(image), 1, 1, 1) == COLOURS[-1].tolist()


def test_a_film_and_a_table_of_failures_are_on_the_board(tmp_path: Path) -> None:
    drawn = Picture(np.arange(2 * 4, dtype=np.uint8).reshape(2, 4) * 30)
    with Board(tmp_path, 0) as board:
        board.film(9, drawn)
        board.failures(9, "| kind | 5 |")
    read = events(tmp_path)
    assert read.Images("film")[0].step == 9
    assert np.array_equal(picture(read.Images("film")[0]), drawn.rgb())
    assert (read.Images("film")[0].height, read.Images("film")[0].width) == (2, 4)
    assert read.Tensors("failures/text_summary")[0].tensor_proto.string_val[0].decode() == "| kind | 5 |"


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


def test_files_of_events_are_read_in_the_order_in_which_they_were_begun(tmp_path: Path) -> None:
    begun: list[str] = []
    for start in range(3):
        with Board(tmp_path, start):
            begun += sorted({path.name for path in tmp_path.glob("events*")} - set(begun))
    seconds = [int(name.split(".")[3]) for name in begun]
    assert seconds == sorted(set(seconds))
