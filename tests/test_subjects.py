"""Trained runs, read back: from folders written by hand, and on a model whose maps are known."""

import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lookback import checkpoint, config, experiment
from lookback.attention import AttentionLayer, Maps
from lookback.checkpoint import CheckpointError
from lookback.evaluate import EvaluateSettings
from lookback.models.base import Memory, Seq2Seq, State
from lookback.probes import Look, PlaceMaps, look
from lookback.run_folder import checkpoint_path
from lookback.subjects import (
    Subject,
    common_string,
    finding,
    follow,
    heads,
    look_scores,
    subject,
    subjects,
    thinned,
)
from lookback.tasks.base import Ids
from lookback.tasks.copy import Copy
from lookback.tasks.copy_or_reverse import CopyOrReverse
from lookback.tasks.reverse import Reverse
from lookback.tasks.synthetic import Synthetic
from lookback.tokens import BOS, EOS

REVERSE = Reverse(alphabet_size=26)
RECURRENT = {"d_model": 6, "num_layers": 1, "cell": "gru", "bidirectional": False, "dropout": 0.5, "tied": False}
MODELS: dict[str, dict[str, Any]] = {
    "transformer": {
        "_target_": "lookback.models.transformer.Transformer",
        "d_model": 6,
        "num_heads": 2,
        "num_layers": 1,
        "d_ff": 10,
        "dropout": 0.5,
        "norm": "pre",
        "tied": False,
        "positions": {"_target_": "lookback.positions.learned.Learned", "max_length": 13},
    },
    "rnn": {"_target_": "lookback.models.rnn.Rnn", "source_order": "forward"} | RECURRENT,
    "rnn_luong": {"_target_": "lookback.models.rnn_luong.RnnLuong", "score": "dot"} | RECURRENT,
}
EVALUATE: dict[str, Any] = {
    "lengths": [3, 5],
    "strings": 11,
    "symbols": None,
    "extra_tokens": 2,
    "exact_only": False,
    "split": "test",
}


def write_weights(
    folder: Path, which: str | int, model: str = "transformer", *, step: int = 7, seed: int = 3
) -> Path:
    """Write one checkpoint of a run, with weights drawn from seed and step; nothing is trained."""
    raw: dict[str, Any] = {
        "seed": seed,
        "task": {"_target_": "lookback.tasks.reverse.Reverse", "alphabet_size": 26},
        "model": MODELS[model],
        "data": {"max_length": 8},
        "evaluate": EVALUATE,
    }
    _, make_model = config.build_parts(raw)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1000 * seed + step)
        content = {"config": raw, "model": make_model().state_dict()}
    more = {"best": {"step": step}} if which == "best" else {"trainer": {"step": step}, "best": None}
    checkpoint.save(checkpoint_path(folder, which), content | (more if isinstance(which, str) else {}))
    return folder


def change_config(folder: Path, which: str, **changes: Any) -> None:
    path = checkpoint_path(folder, which)
    content = checkpoint.load(path)
    content["config"] |= changes
    checkpoint.save(path, content)


class Scripted(Seq2Seq):
    """Writes what it is told to, and shows maps made by hand.

    Args:
        task: names the symbols.
        scripts: source -> what is written for it, and the maps of both.
    """

    def __init__(self, task: Synthetic, scripts: Mapping[str, tuple[str, PlaceMaps]]) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))
        self.task, self.scripts = task, scripts
        first = next(iter(scripts.values()))[1]
        self.layers = nn.ModuleList(AttentionLayer(place, len(weights)) for place, weights in first.items())

    def encode(self, source: Tensor, lengths: Tensor, maps: Maps | None = None) -> Memory:
        return Memory(source, lengths)

    def decode(self, target: Tensor, memory: Memory, maps: Maps | None = None) -> Tensor:
        if maps is not None:
            _, shown = self.scripts[self._text(memory)]
            maps |= {place: torch.tensor(weights)[None] for place, weights in shown.items()}
        return torch.stack([self._write(place, memory) for place in range(target.shape[1])], dim=1)

    def start(self, memory: Memory, max_length: int) -> State:
        return State(memory, 0, {})

    def step(self, token: Tensor, state: State) -> Tensor:
        state.length += 1
        return self._write(state.length - 1, state.memory)

    def sequential_steps(self, source: int, target: int) -> int:
        return 1

    def _text(self, memory: Memory) -> str:
        return "".join(self.task.source_vocabulary.decode(memory.states[0, 1:-1].tolist()))

    def _write(self, place: int, memory: Memory) -> Tensor:
        wrote = self.task.target_vocabulary.encode(self.scripts[self._text(memory)][0])
        token = wrote[place] if place < len(wrote) else EOS
        return torch.eye(len(self.task.target_vocabulary))[token][None]


def pointing(*keys: int, width: int) -> NDArray[np.float32]:
    """(query, key): row t looks at the t-th of these keys alone."""
    return np.eye(width, dtype=np.float32)[list(keys)]


def flat(queries: int, keys: int) -> NDArray[np.float32]:
    return np.full((queries, keys), 1 / keys, dtype=np.float32)


RIGHT = pointing(3, 2, 1, 4, width=5)  # for the reverse of three symbols: rows c, b, a and EOS
HALF = 0.5 * RIGHT + 0.5 * pointing(0, 0, 0, 0, width=5)
MAPS: PlaceMaps = {
    "encoder_self/layer0": np.stack([np.eye(5, dtype=np.float32)] * 3),
    "cross/layer0": np.stack([flat(4, 5), RIGHT, HALF]),
}


def scripted(
    folder: Path,
    scripts: Mapping[str, tuple[str, PlaceMaps]] | None = None,
    task: Synthetic = REVERSE,
    step: int = 7,
) -> Subject:
    """A run whose model knows these strings alone; without any, `abc` with MAPS."""
    model = Scripted(task, scripts or {"abc": ("cba", MAPS)})
    return Subject(folder, f"scripted seed {step}", task, model, step, EvaluateSettings(**EVALUATE), 3, {})


def looks_with(*maps: tuple[int, PlaceMaps]) -> list[Look]:
    """Looks at `abc` at several steps."""
    source = REVERSE.spell("abc")
    return [look(Scripted(REVERSE, {"abc": ("cba", shown)}), REVERSE, source, step, 2) for step, shown in maps]


# ------------------------------------------------------------------------------------------- reading a run back


def test_a_run_is_read_back_with_its_best_weights(tmp_path: Path) -> None:
    write_weights(tmp_path, "last", step=40)
    write_weights(tmp_path, "best", step=7)
    found = subject(tmp_path)
    assert (found.folder, found.name, found.step, found.longest) == (tmp_path, "transformer seed 3", 7, 8)
    assert found.evaluate == EvaluateSettings(**EVALUATE)
    assert isinstance(found.task, Reverse)
    assert not found.model.training
    kept = checkpoint.load(checkpoint_path(tmp_path, "best"))["model"]
    for name, tensor in found.model.state_dict().items():
        assert torch.equal(tensor, kept[name]), name


def test_a_run_that_has_no_best_yet_is_read_with_its_last_weights(tmp_path: Path) -> None:
    write_weights(tmp_path, "last", step=4)
    found = subject(tmp_path)
    assert found.step == 4
    assert [one.step for one in follow(found, found.task.spell("abc"))] == [4]


def test_a_finished_run_is_read_back_at_every_step_that_it_kept(tiny_run: Path) -> None:
    found = subject(tiny_run)
    assert found.name == "transformer seed 0"
    assert found.evaluate.lengths == [1, 4, 8, 10]
    assert [one.step for one in follow(found, found.task.spell("abc"))] == sorted({0, found.step, 24})


def test_an_older_run_had_no_split_and_kept_no_weights_of_steps(tmp_path: Path) -> None:
    write_weights(tmp_path, "best")
    change_config(tmp_path, "best", evaluate={key: EVALUATE[key] for key in ("lengths", "strings", "extra_tokens")})
    found = subject(tmp_path)
    assert found.evaluate == EvaluateSettings(**EVALUATE)
    assert [one.step for one in follow(found, found.task.spell("abc"))] == [7]


def test_reading_and_following_a_run_draw_no_random_number(tmp_path: Path) -> None:
    for which in ("best", 0, 30):
        write_weights(tmp_path, which, step=5)
    state = torch.get_rng_state()
    found = subject(tmp_path)
    follow(found, found.task.spell("abc"))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_step_whose_weights_cannot_be_read_is_left_out_and_told(tiny_run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(tiny_run, folder)
    path = checkpoint_path(folder, 0)
    path.write_bytes(path.read_bytes()[:1000])
    one = subject(folder)
    told: list[str] = []
    looks = follow(one, one.task.spell("abc"), told.append)
    assert 0 not in [found.step for found in looks]
    assert one.step in [found.step for found in looks]
    assert len(told) == 1
    assert told[0].startswith(f"step 0 is left out: {path}: not a readable checkpoint")


def test_the_best_weights_are_read_once_though_a_training_goes_on_writing_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_weights(tmp_path, "best", step=7)
    first = checkpoint.load(checkpoint_path(tmp_path, "best"))["model"]
    load = checkpoint.load

    def load_and_train(path: Path) -> dict[str, Any]:
        content = load(path)
        write_weights(tmp_path, "best", step=8)
        return content

    monkeypatch.setattr(checkpoint, "load", load_and_train)
    found = subject(tmp_path)
    assert found.step == 7
    assert all(torch.equal(tensor, first[name]) for name, tensor in found.model.state_dict().items())


def test_a_step_that_is_thinned_out_while_one_looks_is_left_out_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for which in (0, 4, "best"):
        write_weights(tmp_path, which, step=7)
    one, load = subject(tmp_path), checkpoint.load

    def load_late(path: Path) -> dict[str, Any]:
        checkpoint_path(tmp_path, 4).unlink(missing_ok=True)
        return load(path)

    monkeypatch.setattr(checkpoint, "load", load_late)
    told: list[str] = []
    assert [found.step for found in follow(one, one.task.spell("abc"), told.append)] == [0, 7]
    assert told == [f"step 4 is left out: {checkpoint_path(tmp_path, 4)}: no such checkpoint"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model": {**MODELS["transformer"], "num_heads": 3}}, "another model"),  # the same weights fit
        ({"task": {"_target_": "lookback.tasks.copy.Copy", "alphabet_size": 26}}, "another task"),
        (
            {"task": {"_target_": "lookback.tasks.reverse.Reverse", "alphabet_size": 5}, "seed": 4},
            "another seed, another task",
        ),
        ({"config": None}, "another seed, another task, another model, another data"),
    ],
)
def test_a_step_of_another_run_is_left_out_and_told(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    for which in (0, 4, "best"):
        write_weights(tmp_path, which, step=7)
    path = checkpoint_path(tmp_path, 4)
    content = checkpoint.load(path)
    checkpoint.save(path, content | (changes if "config" in changes else {"config": content["config"] | changes}))
    one = subject(tmp_path)
    told: list[str] = []
    assert [found.step for found in follow(one, one.task.spell("abc"), told.append)] == [0, 7]
    assert told == [f"step 4 is left out: {path}: is of another run ({why})"]


def test_where_no_run_is_a_line_says_so(tmp_path: Path) -> None:
    rule = "no run is there (neither checkpoints/best.pt nor last.pt)"
    (tmp_path / "file").write_text("no folder")
    for folder in (tmp_path / "nothing", tmp_path, tmp_path / "file"):
        with pytest.raises(CheckpointError) as error:
            subject(folder)
        assert str(error.value) == f"{folder}: {rule}"


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"evaluate": {**EVALUATE, "colour": 1}}, "evaluate.colour = 1: no such key"),
        ({"evaluate": {**EVALUATE, "lengths": "abc"}}, "evaluate.lengths = abc: must be a list"),
        ({"evaluate": {**EVALUATE, "strings": "ten"}}, "evaluate.strings = ten: must be a whole number"),
        ({"evaluate": None}, "evaluate: must be "),
        ({"data": {}}, "KeyError: 'max_length'"),
        ({"data": {"max_length": "eight"}}, "max_length = eight: must be a whole number"),
        ({"data": 8}, "TypeError"),
        ({"seed": [3]}, "seed = [3]: must be a whole number"),
        ({"model": "transformer"}, "model = transformer: must be a group of settings"),
        ({"model": {**MODELS["transformer"], "num_heads": 4}}, "ValueError: d_model must be a multiple"),
        (
            {"model": {**MODELS["transformer"], "d_ff": 10**12, "num_heads": 0}},
            "model.num_heads = 0: must be greater than 0; model.d_ff = 1000000000000: must be",
        ),
    ],
)
def test_a_foreign_configuration_is_named(tmp_path: Path, changes: dict[str, Any], what: str) -> None:
    write_weights(tmp_path, "best")
    change_config(tmp_path, "best", **changes)
    with pytest.raises(CheckpointError) as error:
        subject(tmp_path)
    assert str(error.value).startswith(f"{checkpoint_path(tmp_path, 'best')}: is not of a run ({what}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"config": None}, "is not of a run (TypeError"),
        ({"config": [1, 2]}, "is not of a run (TypeError"),
        ({"model": None}, "weights must be tensors by name, but are NoneType"),
        ({"model": torch.zeros(3)}, "weights must be tensors by name, but are Tensor"),
        ({"best": None}, "is not of a run (TypeError"),
        ({"best": {"step": "seven"}}, "is not of a run (step = seven: must be a whole number"),
        ({"best": {"step": -1}}, "is not of a run (step = -1: must be"),
    ],
)
def test_a_checkpoint_whose_parts_are_of_another_kind_is_named_in_one_line(
    tmp_path: Path, changes: dict[str, Any], line: str
) -> None:
    write_weights(tmp_path, "best")
    path = checkpoint_path(tmp_path, "best")
    checkpoint.save(path, checkpoint.load(path) | changes)
    with pytest.raises(CheckpointError) as error:
        subject(tmp_path)
    assert str(error.value).startswith(f"{path}: {line}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("missing", ["config", "model", "best"])
def test_a_checkpoint_that_lacks_a_part_is_named(tmp_path: Path, missing: str) -> None:
    write_weights(tmp_path, "best")
    path = checkpoint_path(tmp_path, "best")
    content = checkpoint.load(path)
    del content[missing]
    checkpoint.save(path, content)
    with pytest.raises(CheckpointError) as error:
        subject(tmp_path)
    assert str(error.value) == f"{path}: is not of a run (KeyError: '{missing}')"


# ------------------------------------------------------------------------------------------------- several runs


def test_runs_have_names_of_their_own(tmp_path: Path) -> None:
    folders = [
        write_weights(tmp_path / "a", "best"),
        write_weights(tmp_path / "b", "best", seed=5),
        write_weights(tmp_path / "c", "best"),
        write_weights(tmp_path / "d", "best", "rnn_luong"),
    ]
    found = subjects(folders)
    assert [one.name for one in found] == [
        "transformer seed 3 (a)",
        "transformer seed 5",
        "transformer seed 3 (c)",
        "rnn_luong seed 3",
    ]
    assert [one.folder for one in found] == folders


def test_runs_in_folders_of_one_name_are_told_apart_by_their_paths(tmp_path: Path) -> None:
    folders = [write_weights(tmp_path / part / "0", "best") for part in ("copy", "sort")]
    assert [one.name for one in subjects(folders)] == [f"transformer seed 3 ({folder})" for folder in folders]


def test_the_folder_in_which_one_stands_has_a_name_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        write_weights(tmp_path / name, "best")
    monkeypatch.chdir(tmp_path / "one")
    names = [one.name for one in subjects([Path(), Path("../two")])]
    assert names == ["transformer seed 3 (one)", "transformer seed 3 (two)"]


# ---------------------------------------------------------------------------------------------------- following


def test_a_run_is_followed_through_all_kept_weights_in_order(tmp_path: Path) -> None:
    for step in (0, 7, 100, 30):
        write_weights(tmp_path, step, step=step)
    write_weights(tmp_path, "best", step=7)
    found = subject(tmp_path)
    source = found.task.spell("hello")
    looks = follow(found, source)
    assert [one.step for one in looks] == [0, 7, 30, 100]  # 7 is both the best and among the kept
    for one in looks:
        _, model = experiment.load(tmp_path, one.step)
        again = look(model, found.task, source, one.step, found.evaluate.extra_tokens)
        assert one.example == again.example
        for place, weights in one.maps.items():
            assert np.array_equal(weights, again.maps[place])
    assert not np.array_equal(looks[0].maps["cross/layer0"], looks[3].maps["cross/layer0"])
    assert found.shown(looks) is looks[1]


def test_the_best_weights_are_shown_though_they_lie_between_those_kept(tmp_path: Path) -> None:
    for step in (30, 0):
        write_weights(tmp_path, step, step=step)
    write_weights(tmp_path, "best", step=20)
    found = subject(tmp_path)
    looks = follow(found, found.task.spell("ab"))
    assert [one.step for one in looks] == [0, 20, 30]
    assert found.shown(looks).step == 20


@pytest.mark.parametrize(
    ("step", "cells", "steps"),
    [
        (40, 5 * 135, [0, 10, 20, 30, 40]),  # maps of 3 heads: 5 by 5 and 4 by 5 cells
        (40, 5 * 135 - 1, [0, 20, 40]),
        (10, 3 * 135, [0, 10, 20, 40]),  # the shown one stays
        (40, 2 * 135, [10, 40]),
        (0, 1, [0, 40]),
    ],
)
def test_looks_are_thinned_out_evenly_and_keep_the_shown_one(
    tmp_path: Path, step: int, cells: int, steps: list[int]
) -> None:
    looks = looks_with(*((at, MAPS) for at in range(0, 50, 10)))
    assert [found.step for found in thinned(scripted(tmp_path, step=step), looks, cells)] == steps


def test_looks_without_maps_need_no_thinning(tmp_path: Path) -> None:
    looks = looks_with((0, {}), (7, {}))
    assert thinned(scripted(tmp_path), looks, 2) == looks


def test_outputs_are_cut_off_where_evaluation_cuts_them_off(tmp_path: Path) -> None:
    one = scripted(tmp_path, {"abc": ("z" * 20, {})})
    [found] = follow(one, REVERSE.spell("abc"))
    assert len(found.example.wrote) == 3 + 1 + EVALUATE["extra_tokens"]
    assert not found.example.ended


# ----------------------------------------------------------------------------------------------- how heads look


def test_heads_are_scored_on_the_string_by_pencil() -> None:
    [found] = looks_with((7, MAPS))
    scores = look_scores(found)
    assert {place: len(row) for place, row in scores.items()} == {"encoder_self/layer0": 3, "cross/layer0": 3}
    weights = [score.weight for score in scores["cross/layer0"]]
    assert weights == pytest.approx([1 / 5, 1.0, 1 / 2])
    assert [score.largest for score in scores["cross/layer0"]] == [0.0, 1.0, 0.0]  # a tie is not the largest
    entropies = [score.entropy for score in scores["cross/layer0"]]
    assert entropies == pytest.approx([math.log(5), 0.0, math.log(2)], abs=1e-6)
    assert [(score.weight, score.largest) for score in scores["encoder_self/layer0"]] == [(None, None)] * 3


def test_each_head_of_cross_attention_is_listed_with_the_step_since_which_it_has_learned(tmp_path: Path) -> None:
    def maps(*cross: NDArray[np.float32]) -> PlaceMaps:
        return {**MAPS, "cross/layer0": np.stack(cross)}

    wrong = pointing(0, 0, 0, 0, width=5)
    looks = looks_with(
        (0, maps(wrong, wrong, RIGHT)),
        (10, maps(wrong, RIGHT, RIGHT)),
        (20, maps(wrong, RIGHT, wrong)),
        (30, maps(wrong, RIGHT, RIGHT)),
    )
    found = heads(scripted(tmp_path, step=30), looks)
    assert [(head.name, since) for head, since in found] == [
        ("cross/layer0/head0", None),
        ("cross/layer0/head1", 10),
        ("cross/layer0/head2", 30),
    ]
    assert [head.score.weight for head, _ in found] == [0.0, 1.0, 1.0]
    early = heads(scripted(tmp_path, step=10), looks)  # what came after the weights that are shown does not count
    assert [since for _, since in early] == [None, 10, 0]


def test_the_finding_is_of_the_weights_shown_and_says_since_when(tmp_path: Path) -> None:
    looks = looks_with((0, {**MAPS, "cross/layer0": np.stack([flat(4, 5)] * 3)}), (10, MAPS), (20, MAPS))
    found = finding(scripted(tmp_path, step=20), looks)
    assert found.head is not None
    assert (found.head.name, found.since) == ("cross/layer0/head1", 10)
    assert set(found.scores) == set(MAPS)
    early = finding(scripted(tmp_path, step=0), looks)
    assert early.head is not None
    assert not early.learned


def test_a_model_without_attention_has_no_finding(tmp_path: Path) -> None:
    looks = looks_with((7, {}))
    assert heads(scripted(tmp_path, step=7), looks) == []
    assert finding(scripted(tmp_path, step=7), looks).head is None


def test_rows_are_scored_by_what_was_written_not_by_what_was_wanted(tmp_path: Path) -> None:
    """One symbol and EOS: only the first right cell counts, and the row of EOS stands where b should be."""
    maps = {"cross/layer0": pointing(3, 4, width=5)[None]}
    one = scripted(tmp_path, {"abc": ("c", maps)})
    [(head, _)] = heads(one, follow(one, REVERSE.spell("abc")))
    assert (head.score.weight, head.score.largest) == (0.5, 0.5)


def test_a_task_without_an_answer_has_entropies_alone(tmp_path: Path) -> None:
    class Constant(Synthetic):
        """abc -> a"""

        def target(self, source: Ids) -> Ids:
            return source[:1]

    task = Constant(alphabet_size=4)
    maps = {"cross/layer0": np.stack([flat(2, 5), pointing(1, 4, width=5)])}
    one = scripted(tmp_path, {"abc": ("a", maps)}, task)
    looks = follow(one, task.spell("abc"))
    rows = heads(one, looks)
    assert [(head.score.weight, head.score.largest, since) for head, since in rows] == [(None, None, None)] * 2
    found = finding(one, looks)
    assert found.says() == "cross/layer0/head1 looks most sharply: entropy 0.00 nats"
    assert looks[0].probe.batch.target[0].tolist() == [BOS, 4, EOS]


def test_a_common_string_is_one_that_every_task_has_an_answer_to() -> None:
    both, copy = CopyOrReverse(alphabet_size=26), Copy(alphabet_size=26)
    one, other = (SimpleNamespace(name=name, task=task, longest=20) for name, task in (("a", both), ("b", copy)))
    assert common_string(cast(list[Subject], [one]))[0] in "<>"
    small = SimpleNamespace(name="c", task=Copy(alphabet_size=3), longest=20)
    assert set(common_string(cast(list[Subject], [other, small]))) <= set("abc")
    with pytest.raises(ValueError, match=r"there is none for a \(CopyOrReverse\), b \(Copy\)"):
        common_string(cast(list[Subject], [one, other]))
