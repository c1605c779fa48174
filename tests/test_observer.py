"""What a run notes of its attention: all of it is there, nothing twice, and the training never feels it."""

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lookback import album, checkpoint, config, experiment, launcher, learner, run_folder
from lookback.alignment import Head, HeadScore
from lookback.board import Board
from lookback.data import collate
from lookback.figures import COLOURS, OUTLINE
from lookback.models.base import Seq2Seq
from lookback.observer import Finding, Observer
from lookback.probes import validation_probe
from lookback.tasks.base import Ids, Task
from lookback.tasks.synthetic import Synthetic
from lookback.train import Trainer

SETTINGS = [
    "experiment=smoke",
    "train.steps=5",
    "train.validate_every=5",
    "train.save_every=2",
    "evaluate.lengths=[4]",
    "evaluate.strings=3",
    "model.d_model=6",
    "model.num_heads=2",
    "model.num_layers=1",
    "model.d_ff=10",
    "model.dropout=0.5",
    "data.batch_size=7",
    "board.probe_lengths=[2,3]",
]
WATCHED = {"alignment_every": 2, "images_every": 1, "snapshots_every": 2}
DARK = dict.fromkeys(WATCHED, 0)
CROSS = [f"cross/layer0/head{head}" for head in range(2)]
SELF = [f"{kind}/layer0/head{head}" for kind in ("encoder_self", "decoder_self") for head in range(2)]

Runner = Callable[..., int]


@cache
def composed() -> dict[str, Any]:
    return launcher.compose("train", SETTINGS)


def built() -> tuple[Task, Seq2Seq]:
    return learner.build(config.build(composed()))


@pytest.fixture(scope="module")
def run() -> Runner:
    """Train into a folder, or go on there, with settings of the board."""
    raw = composed()

    def run(
        folder: Path, board: dict[str, Any], *, resume: bool = False, quiet: bool = True, steps: int = 5
    ) -> int:
        folder.mkdir(exist_ok=True)
        changed = {**raw, "board": raw["board"] | board, "train": raw["train"] | {"steps": steps}}
        return experiment.run(config.build(changed), folder, resume, quiet)

    return run


@pytest.fixture(scope="module")
def watched(run: Runner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of five steps that watched all that can be watched."""
    folder = tmp_path_factory.mktemp("watched") / "run"
    assert run(folder, WATCHED) == 0
    return folder


def events(folder: Path) -> Any:
    read = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0})
    read.Reload()
    return read


def logged(folder: Path) -> dict[tuple[int, str], float]:
    """What metrics.jsonl holds of the heads; each step and tag once."""
    found: dict[tuple[int, str], float] = {}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        values = json.loads(line)
        for tag, value in values.items():
            if tag.startswith("alignment/"):
                assert (values["step"], tag) not in found
                found[values["step"], tag] = value
    return found


def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def same_bits(one: Path, other: Path) -> bool:
    for which in ("best", "last"):
        first, second = (checkpoint.load(run_folder.checkpoint_path(folder, which)) for folder in (one, other))
        if any(not torch.equal(tensor, second["model"][name]) for name, tensor in first["model"].items()):
            return False
    return True


def stop_after(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """A power cut, when so many steps are done and logged."""
    advance = Trainer.advance

    def advance_or_stop(self: Trainer, batch_at: Any) -> None:
        if self.step == step:
            raise RuntimeError("power cut")
        advance(self, batch_at)

    monkeypatch.setattr(Trainer, "advance", advance_or_stop)


# ------------------------------------------------------------------------------------------ what is left behind


def test_heads_are_measured_at_their_cadence_and_at_the_end(watched: Path) -> None:
    tags = {f"alignment/{head}/{name}" for head in CROSS for name in ("weight", "largest", "entropy")}
    tags |= {f"alignment/{head}/entropy" for head in SELF}
    found = logged(watched)
    assert set(found) == {(step, tag) for step in (2, 4, 5) for tag in tags}
    read = events(watched)
    assert {tag for tag in read.Tags()["scalars"] if tag.startswith("alignment/")} == tags
    for tag in tags:
        points = read.Scalars(tag)
        assert [point.step for point in points] == [2, 4, 5]
        assert [point.value for point in points] == pytest.approx([found[point.step, tag] for point in points])
    assert all(0 <= value <= 1 for (_, tag), value in found.items() if not tag.endswith("entropy"))


def test_the_summary_holds_how_each_head_looks(watched: Path) -> None:
    found = summary(watched)
    assert set(found["alignment"]) == {*CROSS, *SELF}
    last = {tag: value for (step, tag), value in logged(watched).items() if step == 5}
    for head, values in found[
        "alignment"
    ].items():  # the best weights are the last ones: there is no other validation
        assert set(values) == ({"weight", "largest", "entropy"} if head in CROSS else {"entropy"})
        for name, value in values.items():
            assert value == pytest.approx(last[f"alignment/{head}/{name}"])
    assert found["learned_by"] == {}


def test_maps_are_kept_at_every_step_and_are_those_of_the_weights(watched: Path) -> None:
    kept = album.kept(watched / "attention")
    assert list(kept) == [1, 2, 3, 4, 5]
    for step in (2, 4):  # weights of these are kept as well
        task, model = experiment.load(watched, step)
        with np.load(kept[step], allow_pickle=False) as named:
            for number, length in enumerate((2, 3)):
                probe = validation_probe(task, length)
                assert named[f"probe{number}/read"].tolist() == probe.read
                for place, weights in probe.watch(model).items():
                    assert np.array_equal(named[f"probe{number}/{place}"], weights)


def test_weights_are_kept_at_their_cadence(watched: Path) -> None:
    assert run_folder.snapshots(watched) == [0, 2, 4, 5]


def film_maps(folder: Path) -> list[list[list[int]]]:
    """The frames of a film of one row, in order: the level of each cell's colour, row by row."""
    with Image.open(folder / "attention" / "film.png") as picture:
        drawn = np.asarray(picture.convert("RGB"))
    colours, of_pixels = np.unique(drawn.reshape(-1, 3), axis=0, return_inverse=True)
    levels = {tuple(colour): number for number, colour in enumerate(COLOURS.tolist())}
    table = np.array([levels.get(tuple(colour), -1) for colour in colours.tolist()])[of_pixels].reshape(
        drawn.shape[:2]
    )
    inside = (table >= 0) | (drawn == OUTLINE).all(axis=-1)
    rows, columns = np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))
    frames = np.split(columns, np.flatnonzero(np.diff(columns) > 1) + 1)
    middle, step = album.FILM_CELL // 2, album.FILM_CELL
    return [table[np.ix_(rows[middle::step], frame[middle::step])].tolist() for frame in frames]


def test_the_film_shows_the_clearest_head_on_the_last_probe_step_by_step(watched: Path) -> None:
    last = {tag: value for (step, tag), value in logged(watched).items() if step == 5}
    weights = [last[f"alignment/{head}/weight"] for head in CROSS]
    assert weights[0] != weights[1]
    head = weights.index(max(weights))
    wanted = []
    for path in album.kept(watched / "attention").values():
        with np.load(path) as named:
            assert named["probe1/cross/layer0"].shape == (2, 4, 5)
            levels = np.rint(named["probe1/cross/layer0"][head] * (len(COLOURS) - 1))
            wanted.append(levels.astype(int).tolist())
    assert film_maps(watched) == wanted
    assert wanted[0] != wanted[4]
    [image] = events(watched).Images("film")
    assert image.step == 5
    assert image.encoded_image_string == (watched / "attention" / "film.png").read_bytes()


def test_the_last_maps_of_all_probes_are_left(watched: Path) -> None:
    names = {path.name for path in (watched / "attention").iterdir()}
    pictures = {
        f"probe{number}_{kind}_layer0.png"
        for number in range(2)
        for kind in ("encoder_self", "decoder_self", "cross")
    }
    assert names == pictures | {"maps.npz", "film.png", "logged"}


# ----------------------------------------------------------------------------------- the training feels nothing


def test_watching_changes_no_bit_of_the_weights(run: Runner, watched: Path, tmp_path: Path) -> None:
    assert run(tmp_path / "dark", DARK) == 0
    assert same_bits(watched, tmp_path / "dark")
    assert logged(tmp_path / "dark") == {}
    assert run_folder.snapshots(tmp_path / "dark") == []
    assert {path.name for path in (tmp_path / "dark" / "attention").iterdir()}.isdisjoint({"logged", "film.png"})
    assert summary(tmp_path / "dark")["alignment"] == summary(watched)["alignment"]


def test_watching_draws_no_random_number_and_leaves_the_mode_as_it_was(tmp_path: Path) -> None:
    task, model = built()
    model.train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index]
    batch = collate(task, [np.array([4, 5, 6]), np.array([7])])
    with Board(tmp_path, 0) as board:
        observer = Observer(task, [2, 3], batch, tmp_path, 0)
        for step in (1, 2):
            observer.draw(step, model, board)
            observer.measure(step, model, board)
        found = observer.find(model, 99)
        observer.leave(2, model, board, found.head)
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)  # type: ignore[index]
    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert found.since is None


# ----------------------------------------------------------------------------------------------------- resuming


@pytest.fixture(scope="module")
def cut_off(run: Runner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was cut off after step 3; its last checkpoint is of step 2."""
    folder = tmp_path_factory.mktemp("cut") / "run"
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 3)
        with pytest.raises(RuntimeError, match="power cut"):
            run(folder, WATCHED)
    assert list(album.kept(folder / "attention")) == [1, 2, 3]
    return folder


def test_after_resuming_from_an_earlier_step_each_step_is_there_once(
    run: Runner, watched: Path, cut_off: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(cut_off, tmp_path / "run"))
    assert run(folder, WATCHED, resume=True) == 0
    assert same_bits(watched, folder)
    assert logged(folder) == logged(watched)
    assert run_folder.snapshots(folder) == [0, 2, 4, 5]
    first, second = (album.kept(one / "attention") for one in (watched, folder))
    assert list(second) == list(first)
    for step, path in second.items():
        with np.load(path) as ours, np.load(first[step]) as theirs:
            assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
    assert film_maps(folder) == film_maps(watched)
    read = events(folder)
    for tag in (f"attention/{CROSS[0]}", "attention_sheets/cross/layer0"):
        assert [image.step for image in read.Images(tag)] == [1, 2, 3, 4, 5]
    assert [image.step for image in read.Images("film")] == [5]


def test_maps_of_steps_that_are_done_again_are_forgotten_even_where_they_are_not_kept_again(
    run: Runner, cut_off: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(cut_off, tmp_path / "run"))
    assert run(folder, WATCHED | {"images_every": 4}, resume=True) == 0
    assert list(album.kept(folder / "attention")) == [1, 2, 4, 5]  # 3 was kept before the power cut
    assert len(film_maps(folder)) == 4


@pytest.mark.parametrize(("lengths", "frames"), [([2, 4], 3), ([3], 5), ([2, 5, 3], 5)])
def test_probes_changed_on_resume_do_not_break_the_film(
    run: Runner, cut_off: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], lengths: list[int], frames: int
) -> None:
    folder = Path(shutil.copytree(cut_off, tmp_path / "run"))
    assert run(folder, WATCHED | {"probe_lengths": lengths}, resume=True, quiet=False) == 0
    assert "not shown" not in capsys.readouterr().out
    assert list(album.kept(folder / "attention")) == [1, 2, 3, 4, 5]
    assert (
        len(film_maps(folder)) == frames
    )  # of the last probe, which was one before, the third step included, or not


# ------------------------------------------------------------------------------------------- when drawing fails


def test_a_file_in_the_place_of_the_folder_costs_the_pictures_and_nothing_else(
    run: Runner, watched: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "attention").write_text("in the way")
    assert run(folder, WATCHED, quiet=False) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("not shown")]
    assert [line.split(":")[0] for line in lines] == [f"not shown at step {step}" for step in (1, 2, 3, 4, 5, 5)]
    assert same_bits(watched, folder)
    assert summary(folder)["status"] == "finished"
    assert logged(folder) == logged(watched)
    assert (folder / "attention").read_text() == "in the way"


def test_heads_that_cannot_be_measured_cost_the_finding_alone(
    run: Runner, watched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr("lookback.observer.measure", fail)
    assert run(tmp_path / "run", DARK | {"alignment_every": 5}, quiet=False) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("not shown")]
    assert lines == ["not shown at step 5: no room"] * 2  # measuring, and finding the clearest
    found = summary(tmp_path / "run")
    assert found["status"] == "finished"
    assert found["exact_match"] == summary(watched)["exact_match"]
    assert (found.get("alignment", {}), found.get("learned_by", {})) == ({}, {})


def test_a_film_that_cannot_be_drawn_costs_the_film_alone(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("too many frames")

    monkeypatch.setattr(album, "film", fail)
    assert run(tmp_path / "run", DARK | {"images_every": 2}, quiet=False, steps=2) == 0
    assert "not shown at step 2: too many frames\n" in capsys.readouterr().out
    assert (tmp_path / "run" / "attention" / "maps.npz").exists()
    assert summary(tmp_path / "run")["status"] == "finished"


def test_a_model_without_attention_leaves_no_maps(tmp_path: Path) -> None:
    sizes = ["model=rnn", "model.d_model=6"]
    task, model = learner.build(config.build(launcher.compose("train", sizes)))
    with Board(tmp_path, 0) as board:
        observer = Observer(task, [2], collate(task, [np.array([4, 5])]), tmp_path, 0)
        observer.draw(1, model, board)
        observer.measure(1, model, board)
        found = observer.find(model, 99)
        observer.leave(1, model, board, found.head)
    assert (found.head, found.scores, found.says()) == (None, {}, "")
    assert found.summary() == {"alignment": {}, "learned_by": {}}
    assert not (tmp_path / "attention").exists()
    assert (tmp_path / "metrics.jsonl").read_text() == ""


# ----------------------------------------------------------------------------------------------------- findings


CLEAR = Head("cross/layer1", 0, HeadScore(0.87, 0.96, 0.3))
ALSO = Head("cross/layer0", 1, HeadScore(0.71, 0.9, 0.5))
WEAK = Head("cross/layer0", 0, HeadScore(0.2, 0.1, 1.5))
ITSELF = HeadScore(None, None, 0.25)
SCORES = {"encoder_self/layer0": [ITSELF], "cross/layer0": [WEAK.score, ALSO.score], "cross/layer1": [CLEAR.score]}


def test_the_head_that_learned_the_task_is_named_with_its_step() -> None:
    scores = {**SCORES, "cross/layer0": [WEAK.score, WEAK.score]}
    found = Finding(scores, CLEAR, 300)
    assert found.learned
    assert found.says() == (
        "cross/layer1/head0 has learned the task, since step 300: "
        "weight largest where the answer stands in 96% of rows, 0.87 on average"
    )
    assert Finding(scores, CLEAR, None).says().startswith("cross/layer1/head0 has learned the task: weight")


def test_other_heads_that_learned_it_too_are_named() -> None:
    assert Finding(SCORES, CLEAR, 300).says().endswith("0.87 on average; so have cross/layer0/head1")


def test_where_no_head_learned_the_task_the_closest_is_named() -> None:
    found = Finding({"cross/layer0": [WEAK.score]}, WEAK, None)
    assert not found.learned
    assert found.says() == (
        "no head has learned the task alone; closest is cross/layer0/head0: "
        "weight largest where the answer stands in 10% of rows, 0.20 on average"
    )
    assert found.summary()["learned_by"] == {}


def test_the_summary_of_a_finding_names_every_head() -> None:
    assert Finding(SCORES, CLEAR, 300).summary() == {
        "alignment": {
            "encoder_self/layer0/head0": {"entropy": 0.25},
            "cross/layer0/head0": {"weight": 0.2, "largest": 0.1, "entropy": 1.5},
            "cross/layer0/head1": {"weight": 0.71, "largest": 0.9, "entropy": 0.5},
            "cross/layer1/head0": {"weight": 0.87, "largest": 0.96, "entropy": 0.3},
        },
        "learned_by": {"head": "cross/layer1/head0", "since_step": 300},
    }


class Constant(Synthetic):
    """abc -> a, a task that knows no alignment."""

    def target(self, source: Ids) -> Ids:
        return source[:1]


def test_a_task_without_an_answer_names_the_sharpest_head(tmp_path: Path) -> None:
    task = Constant(alphabet_size=26)
    _, model = built()
    with Board(tmp_path, 0) as board:
        observer = Observer(task, [4], collate(task, [np.array([4, 9, 6, 7]), np.array([8, 5])]), tmp_path, 0)
        observer.draw(3, model, board)
        observer.measure(3, model, board)
        found = observer.find(model, 99)
        observer.leave(3, model, board, found.head)
    assert found.head is not None
    entropies = [score.entropy for score in found.scores["cross/layer0"]]
    assert found.head.number == entropies.index(min(entropies))
    assert found.says() == f"{found.head.name} looks most sharply: entropy {min(entropies):.2f} nats"
    assert found.since is None
    assert found.summary()["learned_by"] == {}
    assert {tag.rpartition("/")[2] for _, tag in logged(tmp_path)} == {"entropy"}
    assert (tmp_path / "attention" / "film.png").exists()


def write_metrics(folder: Path, largest: dict[int, float], head: str) -> None:
    lines = [json.dumps({"step": step, f"alignment/{head}/largest": value}) for step, value in largest.items()]
    more = ['{"step": 3, "train/loss": 1.5}', "[]", '{"step": 4, "tra']
    (folder / "metrics.jsonl").write_text("\n".join([*more, *lines]) + "\n")


@pytest.mark.parametrize(
    ("largest", "since"),
    [
        ({10: 0.5, 20: 0.95, 30: 0.97}, 20),
        ({10: 0.95, 20: 0.5, 30: 0.97}, 30),
        ({10: 0.95, 20: 0.5}, None),
        ({}, None),
    ],
)
def test_since_when_is_read_from_what_was_logged(
    tmp_path: Path, largest: dict[int, float], since: int | None
) -> None:
    task, model = built()
    observer = Observer(task, [2], collate(task, [np.array([4, 5, 6])]), tmp_path, 0)
    write_metrics(tmp_path, {}, "none")
    clearest = observer.find(model, 99).head
    assert clearest is not None
    write_metrics(tmp_path, largest | {50: 0.25}, clearest.name)
    assert observer.find(model, 30).since == since  # the last is of later weights than these
    assert observer.find(model, 50).since is None
