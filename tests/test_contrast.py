"""Two looks side by side, made by hand, with distances worked out on paper."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from lookback.contrast import BY_PLACE, BY_SYMBOL, Contrast, HeadContrast, contrast, says, total_variation
from lookback.data import collate
from lookback.evaluate import example
from lookback.models.transformer import Transformer
from lookback.probes import Look, PlaceMaps, look, make_probe
from lookback.tasks.copy import Copy
from lookback.tasks.reverse import Reverse
from lookback.tasks.sort import Sort
from lookback.tasks.synthetic import Synthetic
from test_recurrent import recurrent
from test_transformer import transformer

COPY, REVERSE, SORT = (task(alphabet_size=13) for task in (Copy, Reverse, Sort))  # with the marks 17 symbols
CROSS = "cross/layer0"


def handmade(text: str, maps: PlaceMaps, wrote: str | None = None, task: Synthetic = COPY, step: int = 40) -> Look:
    """A look at a string, with maps of our own; what was written is right unless it is given."""
    source = task.spell(text)
    written = task.target(source) if wrote is None else task.spell(wrote)
    tokens = torch.tensor([[*written, 2]])
    probe = make_probe(task, source, written)
    return Look(step, example(task, collate(task, [source]), tokens, 0), probe, maps)


def rows(*heads: list[list[float]]) -> NDArray[np.float32]:
    """(heads, query, key)."""
    return np.array(heads, dtype=np.float32)


def flat(queries: int, keys: int, heads: int = 1) -> NDArray[np.float32]:
    return np.full((heads, queries, keys), 1 / keys, dtype=np.float32)


def pointing(*keys: int, width: int) -> list[list[float]]:
    """A head whose row t looks at the t-th of these keys alone."""
    return np.eye(width)[list(keys)].tolist()  # type: ignore[no-any-return]


def causal(size: int) -> NDArray[np.float32]:
    weights = np.tril(np.ones((size, size)))
    return rows((weights / weights.sum(axis=-1, keepdims=True)).tolist())


def facts_with(found: list[str], start: str) -> list[str]:
    return [fact for fact in found if fact.startswith(start)]


# ---------------------------------------------------------------------------------------------- distances


def test_total_variation_by_pencil() -> None:
    one = rows([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25]])
    other = rows([[0, 1, 0, 0], [0.5, 0.25, 0.25, 0], [0.25, 0.25, 0.25, 0.25]])
    assert total_variation(one, other).tolist() == [[1.0, 0.25, 0.0]]
    assert total_variation(other, one).tolist() == [[1.0, 0.25, 0.0]]


def test_total_variation_of_maps_of_different_sizes_is_that_of_the_rows_that_both_have() -> None:
    one = rows([[1, 0], [0.5, 0.5]], [[1, 0], [0, 1]])
    other = rows(
        [[1, 0, 0], [0.25, 0.25, 0.5], [0, 0, 1]],  # half of the second row is where the other has no key
        [[0.5, 0.5, 0], [0, 1, 0], [0, 0, 1]],
    )
    assert total_variation(one, other).tolist() == [[0.0, 0.5], [0.5, 0.0]]
    assert total_variation(other, one).tolist() == [[0.0, 0.5], [0.5, 0.0]]


def test_each_head_has_its_mean_and_its_largest_row_and_the_least_changed_stands_first() -> None:
    one = handmade("abc", {CROSS: rows(pointing(1, 2, 3, 4, width=5), pointing(0, 0, 0, 0, width=5))})
    moved = pointing(1, 2, 2, 4, width=5)
    moved[1] = [0, 0, 0.5, 0.5, 0]
    other = handmade("def", {CROSS: rows(moved, pointing(0, 0, 0, 0, width=5))})
    found = contrast(one, other)
    assert found.heads == [HeadContrast(CROSS, 1, 0.0, 0.0, 0), HeadContrast(CROSS, 0, 1.5 / 4, 1.0, 2)]
    assert found.heads[1].name == "cross/layer0/head0"
    assert (found.one, found.other) == (one, other)


def test_heads_of_all_places_are_ordered_together_and_equal_ones_as_in_the_model() -> None:
    shift = {0.0: [0, 0, 0, 0], 0.25: [1, 0, 0, 0], 0.5: [1, 1, 0, 0], 1.0: [1, 1, 1, 1]}

    def head(distance: float) -> list[list[float]]:
        return pointing(*shift[distance], width=5)

    places = {"encoder_self/layer0": (0.5, 0.0), "cross/layer0": (0.25, 1.0), "cross/layer1": (0.0, 0.5)}
    one = handmade("abc", {place: rows(*(head(0.0) for _ in far)) for place, far in places.items()})
    other = handmade("def", {place: rows(*map(head, far)) for place, far in places.items()})
    assert [(head.name, head.distance) for head in contrast(one, other).heads] == [
        ("encoder_self/layer0/head1", 0.0),
        ("cross/layer1/head0", 0.0),
        ("cross/layer0/head0", 0.25),
        ("encoder_self/layer0/head0", 0.5),
        ("cross/layer1/head1", 0.5),
        ("cross/layer0/head1", 1.0),
    ]


def test_sources_of_different_lengths_are_refused() -> None:
    one, other = handmade("abc", {CROSS: flat(4, 5)}), handmade("abcde", {CROSS: flat(6, 7)})
    rule = "sources must have the same length to be compared, but 'abc' has 3 symbols and 'abcde' has 5"
    with pytest.raises(ValueError, match=f"^{rule}$"):
        contrast(one, other)


@pytest.mark.parametrize("maps", [{}, {"cross/layer1": flat(4, 5, 2)}, {CROSS: flat(4, 5, 3)}])
def test_looks_of_different_models_are_refused(maps: PlaceMaps) -> None:
    one, other = handmade("abc", {CROSS: flat(4, 5, 2)}), handmade("def", maps)
    with pytest.raises(
        ValueError, match=r"^looks must be of one model to be compared, but their heads are \{'cross"
    ):
        contrast(one, other)


# -------------------------------------------------------------------------------------------------- facts


def whole(text: str, **changes: NDArray[np.float32]) -> Look:
    """A look at three symbols with a map of each kind: 5 read and 4 written, marks included."""
    maps = {"encoder_self": flat(5, 5, 2), "decoder_self": causal(4), "cross": flat(4, 5)} | changes
    return handmade(text, {f"{kind}/layer0": weights for kind, weights in maps.items()})


def test_facts_that_hold_are_listed_with_their_numbers() -> None:
    found = contrast(whole("abc"), whole("def"))
    assert found.same == [
        "updates done when the model looked: 40",
        "shape of encoder_self maps (heads x queries x keys): 2 x 5 x 5",
        "shape of decoder_self maps (heads x queries x keys): 1 x 4 x 4",
        "shape of cross maps (heads x queries x keys): 1 x 4 x 5",
        found.same[4],
        "no weight on what is still to be written, in decoder self-attention (largest above the diagonal: 0)",
    ]
    assert found.same[4].startswith("each row sums to 1 (at most ")
    assert found.not_same == []


@pytest.mark.parametrize("broken", [0, 1])
@pytest.mark.parametrize("place", ["encoder_self", "decoder_self", "cross"])
def test_a_row_that_does_not_sum_to_one_is_found_in_every_map_of_both(place: str, broken: int) -> None:
    weights = {"encoder_self": flat(5, 5, 2), "decoder_self": causal(4), "cross": flat(4, 5)}[place].copy()
    weights[-1, 3, 1] += 0.25
    looks = [whole("abc"), whole("def")]
    looks[broken] = whole("abc", **{place: weights})
    found = contrast(looks[0], looks[1])
    assert facts_with(found.same, "each row") == []
    assert facts_with(found.not_same, "each row") == ["each row sums to 1 (at most 2.5e-01 off)"]


@pytest.mark.parametrize("broken", [0, 1])
def test_a_look_into_the_future_is_found_in_both(broken: int) -> None:
    future = causal(4).copy()
    future[0, 2] = [0.25, 0.25, 0.25, 0.25]
    looks = [whole("abc"), whole("def")]
    looks[broken] = whole("abc", decoder_self=future)
    found = contrast(looks[0], looks[1])
    assert facts_with(found.same, "no weight on what is still") == []
    assert facts_with(found.not_same, "no weight on what is still")[0].endswith(
        "(largest above the diagonal: 0.25)"
    )


def test_nothing_is_said_of_the_future_where_no_map_could_show_it() -> None:
    found = contrast(handmade("abc", {CROSS: flat(4, 5)}), handmade("def", {CROSS: flat(4, 5)}))
    assert facts_with(found.same + found.not_same, "no weight") == []


def test_looks_at_different_steps_and_shapes_that_differ_are_not_the_same() -> None:
    one = handmade("abc", {"cross/layer0": flat(4, 5), "cross/layer1": flat(4, 5)})
    other = handmade("def", {"cross/layer0": flat(3, 5), "cross/layer1": flat(3, 5)}, wrote="de", step=70)
    found = contrast(one, other)
    assert found.not_same == [
        "updates done when the model looked: 40 and 70",
        "shape of cross maps (heads x queries x keys): 1 x 4 x 5 and 1 x 3 x 5",
    ]


def test_a_model_watched_again_makes_its_own_maps_and_not_those_of_other_weights() -> None:
    model = transformer()
    one, other = (look(model, COPY, COPY.spell(text), 40, extra_tokens=2) for text in ("abc", "ghi"))
    assert len(facts_with(contrast(one, other, model).same, "weights of the model")) == 1
    assert facts_with(contrast(one, other).same, "weights of the model") == []  # no model, no claim
    with torch.no_grad():
        next(layer for name, layer in model.named_parameters() if "cross_attention.query" in name).mul_(2)
    moved = look(model, COPY, COPY.spell("ghi"), 40, extra_tokens=2)
    for found in (contrast(one, other, model), contrast(one, moved, model), contrast(moved, one, model)):
        assert len(facts_with(found.not_same, "weights of the model")) == 1
    foreign = contrast(one, other, transformer(num_layers=1))
    assert facts_with(foreign.not_same, "weights") == ["weights of the model: it has other maps than these"]


# -------------------------------------------------------------------------------------------------- words


def both(one: str, other: str, task: Synthetic = COPY) -> Contrast:
    """Two strings of four symbols, with one flat map each: 5 rows, 6 keys."""
    maps = {CROSS: flat(5, 6)}
    return contrast(handmade(one, maps, task=task), handmade(other, maps, task=task))


def test_the_thresholds_are_those_of_the_text() -> None:
    lines = says(both("abcd", "efgh"))
    assert (BY_PLACE, BY_SYMBOL) == (0.1, 0.5)
    assert any("distance below 0.1;" in line for line in lines)
    assert any("distance above 0.5;" in line for line in lines)


def test_heads_are_sorted_into_those_that_look_by_place_and_by_symbol_and_the_rest() -> None:
    found = both("abcd", "efgh")
    distances = [0.0, 0.099, 0.1, 0.5, 0.501]
    heads = [HeadContrast(CROSS, n, distance, 0.6 + n / 100, n) for n, distance in enumerate(distances)]
    lines = says(replace(found, heads=heads))
    assert lines[-4:] == [
        "By place, or at all keys alike (distance below 0.1; the pattern did not change although the symbols did): "
        "2 heads, cross/layer0/head0 (0.000), cross/layer0/head1 (0.099).",
        "By symbol (distance above 0.5; the pattern follows the symbols): 1 head, cross/layer0/head4 (0.501).",
        "Between the two: 2 heads, cross/layer0/head2 (0.100), cross/layer0/head3 (0.500).",
        "The row that changed most: row 5 of cross/layer0/head4 (0.640).",
    ]
    assert says(replace(found, heads=heads[:1]))[-3] == (
        "By symbol (distance above 0.5; the pattern follows the symbols): none."
    )


def test_how_many_symbols_differ_is_said_first_and_warned_of_where_some_do_not() -> None:
    warning = "The other places have the same symbol in both, so a small distance says less there."
    assert says(both("abcd", "efgh"))[0] == "abcd and efgh have different symbols at 4 of 4 places."
    assert says(both("abcd", "abce"))[:2] == ["abcd and abce have different symbols at 1 of 4 places.", warning]
    assert warning not in says(both("abcd", "efgh"))


def test_one_string_given_twice_says_nothing_about_symbols() -> None:
    assert says(both("abcd", "abcd")) == [
        "abcd was given twice, so no distance here says anything about symbols.",
    ]


@pytest.mark.parametrize(
    ("task", "one", "other", "expected"),
    [
        (COPY, "abdc", "gfeh", "The right cells are the same for both,"),
        (REVERSE, "abdc", "gfeh", "The right cells are the same for both,"),
        # abdc is read in the order 1 2 4 3, and gfeh in the order 3 2 1 4: only the second row is the same
        (SORT, "abdc", "gfeh", "The right cell is another one in 3 of 4 rows,"),
        (SORT, "abdc", "efhg", "The right cells are the same for both,"),  # one order, whatever the symbols
    ],
)
def test_whether_the_right_cells_stay_is_read_from_the_answers(
    task: Synthetic, one: str, other: str, expected: str
) -> None:
    assert len(facts_with(says(both(one, other, task)), "The right cell")) == 1
    assert facts_with(says(both(one, other, task)), expected)


def test_rows_that_only_one_wrote_are_left_out_and_that_is_said() -> None:
    one = handmade("abdc", {CROSS: flat(5, 6)}, task=SORT)
    other = handmade("gfeh", {CROSS: flat(3, 6)}, wrote="ef", task=SORT)
    for found, numbers in ((contrast(one, other), "5 and 3"), (contrast(other, one), "3 and 5")):
        lines = says(found)
        left_out = facts_with(lines, f"{numbers} symbols were written (EOS counts); ")
        assert [line.partition("; ")[2] for line in left_out] == [
            "only the first 3 rows of the decoder's maps are compared."
        ]
        assert facts_with(lines, "The right cell is another one in 2 of 3 rows,")
    assert not any("symbols were written" in line for line in says(both("abcd", "efgh")))


def test_what_does_not_hold_is_said_last() -> None:
    one, other = (handmade(text, {CROSS: flat(5, 6)}, step=step) for text, step in (("abcd", 40), ("efgh", 70)))
    assert says(contrast(one, other))[-1] == (
        "Does not hold for both: updates done when the model looked: 40 and 70."
    )


def test_a_model_without_attention_is_told_so() -> None:
    model = recurrent("rnn")
    one, other = (look(model, COPY, COPY.spell(text), 40, extra_tokens=2) for text in ("abc", "ghi"))
    found = contrast(one, other, model)
    assert found.heads == []
    assert says(found)[-1] == "This model has no attention, so there are no maps to compare."


def test_a_real_look_at_real_maps_has_all_heads_and_holds_all_facts() -> None:
    model = transformer()
    assert isinstance(model, Transformer)
    one, other = (look(model, REVERSE, REVERSE.spell(text), 40, extra_tokens=2) for text in ("abdc", "gfeh"))
    found = contrast(one, other, model)
    assert sorted((head.place, head.head) for head in found.heads) == sorted(
        (place, head) for place in one.maps for head in range(3)
    )
    assert all(0 <= head.distance <= head.largest <= 1 for head in found.heads)
    assert facts_with(found.same, "each row")
    assert facts_with(found.same, "no weight on what is still to be written")
    assert facts_with(found.same, "weights of the model")
