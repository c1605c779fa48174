"""Interventions against copies of the model with other weights, pencil and paper, and a model that is known."""

import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lookback import by_length
from lookback.alignment import NOWHERE
from lookback.attention import AttentionLayer, Change, Maps, MultiHeadAttention
from lookback.by_length import evaluate_length
from lookback.evaluate import EvaluateSettings
from lookback.interventions import (
    MEANING,
    Force,
    Intervention,
    changed,
    each_head,
    exact_match_by_length,
    layers,
    parse_head,
    uniform,
    zero,
)
from lookback.masks import causal, padding
from lookback.models.base import Memory, Seq2Seq, State
from lookback.models.rnn_luong import RnnLuong
from lookback.tasks.base import Ids
from lookback.tasks.copy import Copy
from lookback.tasks.synthetic import held_out
from lookback.tokens import EOS
from test_recurrent import LENGTHS, recurrent, source_and_target
from test_transformer import transformer

PLACES = [
    "encoder_self/layer0",
    "encoder_self/layer1",
    "decoder_self/layer0",
    "cross/layer0",
    "decoder_self/layer1",
    "cross/layer1",
]
MODELS: dict[str, Callable[[], Seq2Seq]] = {
    "transformer": lambda: transformer().double(),
    "luong": lambda: recurrent("luong general"),
    "bahdanau": lambda: recurrent("bahdanau"),
}
TARGET = 11
RIGHT = (3 * torch.arange(TARGET) + 1) % LENGTHS[:, None]  # (batch 5, target 11), always a real key
RIGHT[:, 4] = RIGHT[2, 7:] = NOWHERE

every_model = pytest.mark.parametrize("name", MODELS)


def weights_of(heads: int = 3, queries: int = 5, keys: int = 7) -> Tensor:
    """Random maps of two strings: (batch=2, heads, query, key)."""
    return torch.rand(2, heads, queries, keys, dtype=torch.float64).softmax(dim=-1)


def one_hot(right: Tensor, keys: int) -> Tensor:
    return F.one_hot(right.clamp(min=0), keys).double()


def watch(model: Seq2Seq, changes: Mapping[str, Change]) -> tuple[Tensor, Maps]:
    """Logits and maps of a watched pass over padded strings."""
    source, target = source_and_target()
    maps: Maps = {}
    with torch.no_grad(), changed(model, changes):
        return model(source, LENGTHS, target, maps), maps


def fused(model: Seq2Seq, changes: Mapping[str, Change]) -> Tensor:
    """Logits of a pass that nobody watches."""
    source, target = source_and_target()
    with torch.no_grad(), changed(model, changes):
        return model(source, LENGTHS, target)  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------------------ finding heads


def test_layers_are_found_by_place_in_the_models_order() -> None:
    model = transformer()
    assert list(layers(model)) == PLACES
    assert all(layer.place == place for place, layer in layers(model).items())
    assert list(layers(recurrent("bahdanau"))) == list(layers(recurrent("luong dot"))) == ["cross/layer0"]
    assert layers(recurrent("rnn")) == {}


def test_each_head_is_listed_once() -> None:
    assert each_head(transformer()) == [(place, head) for place in PLACES for head in range(3)]
    assert each_head(recurrent("luong dot")) == [("cross/layer0", 0)]
    assert each_head(recurrent("rnn")) == []


def test_a_head_is_found_by_its_name() -> None:
    assert parse_head(transformer(), "cross/layer1/head2") == ("cross/layer1", 2)
    assert parse_head(recurrent("bahdanau"), "cross/layer0/head0") == ("cross/layer0", 0)


@pytest.mark.parametrize(
    "text", ["cross/layer1/head3", "cross/layer2/head0", "cross/layer1", "head0", "cross/layer0/head-1", ""]
)
def test_a_head_that_is_not_there_is_refused_with_those_that_are(text: str) -> None:
    known = "encoder_self/layer0/head0 to head2, decoder_self/layer0/head0 to head2, cross/layer0/head0 to head2"
    message = f"head must be one that the model has ({known}), but is {text!r}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        parse_head(transformer(num_layers=1), text)


def test_a_head_of_a_model_with_one_or_none_is_refused_in_these_words() -> None:
    with pytest.raises(ValueError, match=r"model has \(cross/layer0/head0\), but is 'cross/layer0/head1'$"):
        parse_head(recurrent("bahdanau"), "cross/layer0/head1")
    with pytest.raises(
        ValueError, match=r"model has \(it has no attention, so none\), but is 'cross/layer0/head0'$"
    ):
        parse_head(recurrent("rnn"), "cross/layer0/head0")


# ------------------------------------------------------------------------------------------------ changes


def test_uniform_by_pencil() -> None:
    mask = torch.tensor([[True] * 4 + [False] * 3, [True] + [False] * 6])[:, None, None]
    weights = weights_of()
    before = weights.clone()
    found = uniform([0, 2])(weights, mask)
    for head in (0, 2):
        for row in range(5):
            assert found[0, head, row].tolist() == [0.25] * 4 + [0.0] * 3
            assert found[1, head, row].tolist() == [1.0] + [0.0] * 6
    assert torch.equal(found[:, 1], before[:, 1])
    assert torch.equal(weights, before)  # what it was given is left alone
    everywhere = uniform([1])(weights, None)[:, 1]
    torch.testing.assert_close(everywhere, torch.ones(2, 5, 7).double() / 7, rtol=0, atol=1e-15)


def test_uniform_under_a_causal_mask_and_for_a_row_that_may_look_nowhere() -> None:
    mask = causal(7) & padding(torch.tensor([7, 3]), 7)
    mask[1, :, 5] = False
    found = uniform({1})(weights_of(queries=7), mask)[:, 1]
    for row in range(7):
        assert found[0, row].tolist() == pytest.approx([1 / (row + 1)] * (row + 1) + [0.0] * (6 - row))
        seen = min(row + 1, 3)
        assert found[1, row].tolist() == pytest.approx([0.0 if row == 5 else 1 / seen] * seen + [0.0] * (7 - seen))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_changes_keep_the_dtype_of_the_weights(dtype: torch.dtype) -> None:
    weights = weights_of().to(dtype)
    for change in (uniform([1]), zero([1]), Force(torch.tensor([[3], [NOWHERE]]), [1])):
        assert change(weights, padding(torch.tensor([4, 6]), 7)).dtype == dtype


def test_zero_takes_all_weight_of_these_heads_and_no_other() -> None:
    weights = weights_of()
    before = weights.clone()
    found = zero([2])(weights, None)
    assert not found[:, 2].any()
    assert torch.equal(found[:, :2], before[:, :2])
    assert torch.equal(weights, before)


def test_force_puts_all_weight_on_the_right_cell_of_rows_that_have_one() -> None:
    right = torch.tensor([[6, NOWHERE, 0], [2, 2, NOWHERE]])
    weights = weights_of(queries=3)
    before = weights.clone()
    found = Force(right, [0, 2])(weights, None)
    for head in (0, 2):
        for string, row, column in ((0, 0, 6), (0, 2, 0), (1, 0, 2), (1, 1, 2)):
            assert found[string, head, row].tolist() == [float(key == column) for key in range(7)]
        for string, row in ((0, 1), (1, 2)):
            assert torch.equal(found[string, head, row], before[string, head, row])
    assert torch.equal(found[:, 1], before[:, 1])
    assert torch.equal(weights, before)


def test_force_counts_its_rows_and_leaves_those_past_the_table_alone() -> None:
    right = torch.tensor([[6, NOWHERE, 0], [2, 2, NOWHERE]])
    weights = weights_of(queries=5)
    whole = Force(right, [1])(weights, None)
    assert torch.equal(whole[:, :, 3:], weights[:, :, 3:])
    for cut in ([1] * 5, [2, 2, 1], [4, 1]):
        force = Force(right, [1])
        parts = [force(part, None) for part in torch.split(weights, cut, dim=2)]
        torch.testing.assert_close(torch.cat(parts, dim=2), whole, rtol=0, atol=0)


def test_force_refuses_a_batch_of_another_size() -> None:
    rule = "right cells must be of the batch that the model reads, but they are of 3 strings and the batch has 2"
    with pytest.raises(ValueError, match=f"^{rule}$"):
        Force(torch.zeros(3, 5, dtype=torch.long), [0])(weights_of(), None)


# -------------------------------------------------------------------------------------------- in a model


@every_model
def test_nothing_is_left_of_a_change_and_logits_are_as_before_bit_for_bit(name: str) -> None:
    model = MODELS[name]()
    before = fused(model, {})
    for change in (uniform([0]), zero([0]), Force(RIGHT, [0])):
        assert not torch.allclose(fused(model, {"cross/layer0": change}), before)
        assert torch.equal(fused(model, {}), before)


@every_model
def test_a_watched_pass_and_one_that_nobody_watches_are_changed_alike(name: str) -> None:
    model = MODELS[name]()
    for change, again in (
        (uniform([0]), uniform([0])),
        (zero([0]), zero([0])),
        (Force(RIGHT, [0]), Force(RIGHT, [0])),
    ):
        logits, _ = watch(model, {"cross/layer0": change})
        torch.testing.assert_close(fused(model, {"cross/layer0": again}), logits, rtol=0, atol=1e-12)


@pytest.mark.parametrize("head", [0, 1, 2])
@pytest.mark.parametrize("place", PLACES)
def test_zero_is_a_model_whose_output_projection_does_not_read_the_head(place: str, head: int) -> None:
    model = transformer().double()
    deaf = copy.deepcopy(model)
    layer = layers(deaf)[place]
    assert isinstance(layer, MultiHeadAttention)
    layer.output_projection.weight.data[:, 4 * head : 4 * (head + 1)] = 0.0  # a head is 12 / 3 wide
    found = fused(model, {place: zero([head])})
    torch.testing.assert_close(found, fused(deaf, {}), rtol=0, atol=1e-12)
    assert not torch.allclose(found, fused(model, {}))


@pytest.mark.parametrize("name", ["luong", "bahdanau"])
def test_zero_is_a_recurrent_model_that_does_not_read_the_context(name: str) -> None:
    model = recurrent("luong general" if name == "luong" else "bahdanau")
    deaf = copy.deepcopy(model)
    combine = deaf.get_submodule("combine")
    assert isinstance(combine, nn.Linear)
    if name == "luong":
        combine.weight.data[:, :12] = 0.0  # [context; state]
    else:
        combine.weight.data[:, 12:24] = 0.0  # [state; context; symbol]
        deaf.decoder.get_parameter("weight_ih_l0").data[:, 12:] = 0.0  # [symbol; context]
    found = fused(model, {"cross/layer0": zero([0])})
    torch.testing.assert_close(found, fused(deaf, {}), rtol=0, atol=1e-12)


@pytest.mark.parametrize("place", PLACES)
def test_uniform_looks_at_real_keys_only_and_never_at_the_future(place: str) -> None:
    _, maps = watch(transformer().double(), {place: uniform([1])})
    found = maps[place][:, 1]
    for string, length in enumerate(LENGTHS.tolist()):
        for row in range(found.shape[1]):
            seen = row + 1 if place.startswith("decoder_self") else length
            expected = [1 / seen] * seen + [0.0] * (found.shape[2] - seen)
            assert found[string, row].tolist() == pytest.approx(expected, abs=1e-15)
    others = maps[place][:, [0, 2]]
    assert bool((others.amax(dim=-1) > others.sum(dim=-1) / 2).any())  # the others still choose


@every_model
def test_uniform_in_each_model_looks_at_real_keys_only(name: str) -> None:
    _, maps = watch(MODELS[name](), {"cross/layer0": uniform([0])})
    real = torch.arange(8) < LENGTHS[:, None]
    expected = (real / LENGTHS[:, None].double())[:, None].expand(5, TARGET, 8)
    torch.testing.assert_close(maps["cross/layer0"][:, 0], expected, rtol=0, atol=1e-15)


@every_model
def test_a_forced_layer_looks_at_the_right_cell_alone_on_padded_strings_of_different_lengths(name: str) -> None:
    model = MODELS[name]()
    place = list(layers(model))[-1]
    heads = range(layers(model)[place].num_heads)
    _, maps = watch(model, {place: Force(RIGHT, heads)})
    found, known = maps[place], RIGHT != NOWHERE
    for head in heads:
        assert torch.equal(found[:, head][known], one_hot(RIGHT, 8)[known])
    rest = found.transpose(1, 2)[~known]
    torch.testing.assert_close(rest.sum(dim=-1), torch.ones(rest.shape[:-1]).double(), rtol=0, atol=1e-12)
    assert bool((rest < 1).all())


def test_rows_without_a_right_cell_look_as_they_did_before() -> None:
    model = transformer().double()
    before, after = (watch(model, changes)[1] for changes in ({}, {"cross/layer0": Force(RIGHT, [0, 1, 2])}))
    unknown = RIGHT == NOWHERE
    maps = [found["cross/layer0"].transpose(1, 2)[unknown] for found in (before, after)]
    assert torch.equal(*maps)


def test_forced_luong_reads_the_very_state_of_the_right_cell() -> None:
    model = recurrent("luong general")
    assert isinstance(model, RnnLuong)
    source, target = source_and_target()
    right = RIGHT.clamp(min=0)
    with torch.no_grad():
        memory = model.encode(source, LENGTHS)
        states, _ = model.run(
            model.target_embedding(target), (memory.final["hidden"].transpose(0, 1).contiguous(),)
        )
        context = memory.states[torch.arange(5)[:, None], right]
        expected = model.output(torch.tanh(model.combine(torch.cat([context, states], dim=-1))))
    found = fused(model, {"cross/layer0": Force(right, [0])})
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@every_model
@pytest.mark.parametrize("kind", ["uniform", "zero", "force"])
@torch.no_grad()
def test_one_token_steps_give_the_logits_of_the_full_pass_under_a_change(name: str, kind: str) -> None:
    model = MODELS[name]()
    places = [place for place in layers(model) if kind != "force" or place.startswith("cross")]

    def changes() -> dict[str, Change]:
        makers: dict[str, Callable[[], Change]] = {
            "uniform": lambda: uniform([0]),
            "zero": lambda: zero([0]),
            "force": lambda: Force(RIGHT[:, :9], [0]),  # two rows are past the table
        }
        return {place: makers[kind]() for place in places}

    source, target = source_and_target()
    full = fused(model, changes())
    with changed(model, changes()):
        state = model.start(model.encode(source, LENGTHS), TARGET)
        steps = torch.stack([model.step(target[:, place], state) for place in range(TARGET)], dim=1)
    torch.testing.assert_close(steps, full, rtol=0, atol=1e-10)


def test_random_state_and_mode_are_untouched() -> None:
    model = transformer(dropout=0.5).train()
    before = torch.get_rng_state()
    heads = Intervention("force", (("cross/layer0", 0),))
    letters = Copy(alphabet_size=9)  # with the four marks: 13 symbols
    exact_match_by_length(model, letters, replace(SETTINGS, lengths=[4]), heads)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training


# --------------------------------------------------------------------------------------- setting and taking back


def test_a_change_is_taken_back_after_an_error() -> None:
    model = transformer()

    def stop() -> None:
        assert all(layer.change is not None for layer in layers(model).values())
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match=r"^stop$"), changed(model, {place: zero([0]) for place in PLACES}):
        stop()
    assert all(layer.change is None for layer in layers(model).values())


def test_a_layer_takes_one_change_at_a_time() -> None:
    model = transformer()
    outer = zero([0])
    rule = "place must not be changed already, but cross/layer1 is: a layer takes one change at a time"
    with changed(model, {"cross/layer1": outer}):
        with (
            pytest.raises(ValueError, match=f"^{rule}$"),
            changed(model, {"cross/layer0": zero([1]), "cross/layer1": zero([1])}),
        ):
            pytest.fail("was not refused")
        assert layers(model)["cross/layer1"].change is outer
        assert layers(model)["cross/layer0"].change is None  # nothing was begun
        with changed(model, {"cross/layer0": zero([1])}):  # another layer is free
            assert layers(model)["cross/layer1"].change is outer
        assert layers(model)["cross/layer1"].change is outer
    assert layers(model)["cross/layer1"].change is None


def test_a_place_that_is_not_there_is_refused() -> None:
    rule = r"place must be one that the model has \(cross/layer0\), but is 'cross/layer7'"
    with pytest.raises(ValueError, match=f"^{rule}$"), changed(recurrent("bahdanau"), {"cross/layer7": zero([0])}):
        pytest.fail("was not refused")


# ------------------------------------------------------------------------------------------ the intervention

SETTINGS = EvaluateSettings(
    lengths=[3, 6], strings=23, symbols=None, extra_tokens=4, exact_only=False, split="test"
)


class Pointer(AttentionLayer):
    """Two heads that look one place after the symbol just written; too far by one where a string starts oddly."""

    def __init__(self) -> None:
        super().__init__("cross/layer0", num_heads=2)

    def forward(self, place: int, source: Tensor, lengths: Tensor) -> Tensor:
        """(batch, key): where head 0 looks."""
        aim = torch.minimum(place + 1 + source[:, 1] % 2, lengths - 1)
        weights = F.one_hot(aim, source.shape[1]).float()[:, None, None].repeat(1, 2, 1, 1)
        if self.change is not None:
            weights = self.change(weights, padding(lengths, source.shape[1]))
        return weights[:, 0, 0]


class Looker(Seq2Seq):
    """Writes what head 0 of its pointer looks at, EOS only if it ends; head 1 is never used."""

    def __init__(self, ends: bool = True) -> None:
        super().__init__()
        self.ends = ends
        self.unused = nn.Parameter(torch.zeros(1))
        self.pointer = Pointer()

    def encode(self, source: Tensor, lengths: Tensor, maps: Maps | None = None) -> Memory:
        return Memory(source, lengths)

    def decode(self, target: Tensor, memory: Memory, maps: Maps | None = None) -> Tensor:
        return torch.stack([self._write(place, memory) for place in range(target.shape[1])], dim=1)

    def start(self, memory: Memory, max_length: int) -> State:
        return State(memory, 0, {})

    def step(self, token: Tensor, state: State) -> Tensor:
        state.length += 1
        return self._write(state.length - 1, state.memory)

    def sequential_steps(self, source: int, target: int) -> int:
        return 1

    def _write(self, place: int, memory: Memory) -> Tensor:
        weights: Tensor = self.pointer(place, memory.states, memory.lengths)
        symbols = F.one_hot(memory.states, 30).float()
        symbols[..., EOS] *= self.ends
        symbols[..., 29] += 0.01  # where nothing else is, this is written
        return (weights[:, None] @ symbols)[:, 0]


def even(length: int) -> float:
    """Share of strings that the looker copies as it is: those that start with an even id."""
    sources = held_out(Copy(alphabet_size=26), length, SETTINGS.count(length) or 0, SETTINGS.split)
    return sum(int(source[0]) % 2 == 0 for source in sources) / len(sources)


@pytest.fixture(params=[16_384, 40], ids=["one batch", "several batches"])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """23 strings of length 6 are then decoded at once, or in batches of 5 and a rest of 3."""
    monkeypatch.setattr(by_length, "CHUNK_TOKENS", request.param)


@pytest.mark.usefixtures("chunk")
def test_without_an_intervention_it_is_what_evaluation_says() -> None:
    task = Copy(alphabet_size=26)
    found = exact_match_by_length(Looker(), task, SETTINGS, None)
    assert found == {n: evaluate_length(Looker(), task, SETTINGS, n).exact_match for n in (3, 6)}
    assert found == {3: even(3), 6: even(6)}
    assert all(0 < share < 1 for share in found.values())


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize(
    ("kind", "head", "expected"),
    [
        ("uniform", 0, lambda length: 0.0),
        ("zero", 0, lambda length: 0.0),
        ("force", 0, lambda length: 1.0),  # looking was all that failed
        ("uniform", 1, even),
        ("zero", 1, even),
        ("force", 1, even),
    ],
)
def test_interventions_on_a_model_that_is_known(kind: str, head: int, expected: Callable[[int], float]) -> None:
    model = Looker()
    intervention = Intervention(kind, (("cross/layer0", head),))  # type: ignore[arg-type]
    found = exact_match_by_length(model, Copy(alphabet_size=26), SETTINGS, intervention)
    assert found == {3: expected(3), 6: expected(6)}
    assert model.pointer.change is None


def test_a_string_without_its_end_is_not_an_exact_match() -> None:
    looking = Intervention("force", (("cross/layer0", 0),))
    assert exact_match_by_length(Looker(ends=False), Copy(alphabet_size=26), SETTINGS, looking) == {3: 0.0, 6: 0.0}


def test_the_split_and_the_number_of_strings_are_those_of_the_settings() -> None:
    settings = replace(SETTINGS, split="validation", strings=11, lengths=[5])
    found = exact_match_by_length(Looker(), Copy(alphabet_size=26), settings, None)
    sources = held_out(Copy(alphabet_size=26), 5, 11, "validation")
    assert found == {5: sum(int(source[0]) % 2 == 0 for source in sources) / 11}


def test_a_name_for_tables() -> None:
    assert Intervention("uniform", (("cross/layer1", 0),)).name == "uniform cross/layer1/head0"
    both = Intervention("force", (("cross/layer0", 2), ("cross/layer1", 1)))
    assert both.name == "force cross/layer0/head2 + cross/layer1/head1"
    several = Intervention("zero", (("cross/layer0", 0), ("cross/layer1", 1), ("cross/layer0", 2)))
    assert several.name == "zero cross/layer0/head0+2 + cross/layer1/head1"


def test_heads_of_one_place_and_of_several_are_changed_together() -> None:
    model = transformer().double()
    heads = (("cross/layer0", 2), ("cross/layer1", 1), ("cross/layer0", 0))
    for kind, value in (("uniform", 1 / 8), ("zero", 0.0)):
        _, maps = watch(model, Intervention(kind, heads).changes(RIGHT))  # type: ignore[arg-type]
        for place, head in heads:
            assert bool((maps[place][0, head] == value).all())  # string 0 fills the batch: 8 keys
        for place, head in (("cross/layer0", 1), ("cross/layer1", 0), ("cross/layer1", 2)):
            assert not bool((maps[place][0, head] == value).any())
    _, maps = watch(model, Intervention("force", heads).changes(RIGHT))
    for place, head in heads:
        assert torch.equal(maps[place][:, head][RIGHT != NOWHERE], one_hot(RIGHT, 8)[RIGHT != NOWHERE])


def test_an_intervention_on_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^heads must be at least one, but there are none$"):
        Intervention("zero", ())


@pytest.mark.parametrize("place", ["encoder_self/layer0", "decoder_self/layer1"])
def test_only_cross_attention_can_be_forced(place: str) -> None:
    rule = "head must be of cross-attention to be forced, for no other map has right cells, but is "
    with pytest.raises(ValueError, match=f"^{rule}{place}/head1$"):
        Intervention("force", (("cross/layer0", 0), (place, 1)))


def test_a_head_that_the_model_lacks_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"model has \(cross/layer0/head0 to head1\), but is 'cross/layer0/head2'$"
    ):
        exact_match_by_length(
            Looker(), Copy(alphabet_size=26), SETTINGS, Intervention("zero", (("cross/layer0", 2),))
        )


class Silent(Copy):
    """Copy without a known answer."""

    def alignment(self, source: Ids) -> Ids:
        return None  # type: ignore[return-value]


def test_a_task_without_right_cells_cannot_force() -> None:
    heads = (("cross/layer0", 0),)
    with pytest.raises(ValueError, match=r"^task must know the right cells to be forced, but Silent knows none$"):
        exact_match_by_length(Looker(), Silent(alphabet_size=26), SETTINGS, Intervention("force", heads))
    found = exact_match_by_length(Looker(), Silent(alphabet_size=26), SETTINGS, Intervention("zero", heads))
    assert found == {3: 0.0, 6: 0.0}


def test_the_meaning_is_three_to_five_lines_that_fit_below_a_table() -> None:
    lines = MEANING.splitlines()
    assert 3 <= len(lines) <= 5
    assert all(0 < len(line) <= 116 for line in lines)
