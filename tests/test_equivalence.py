"""The check that a reader runs finds what is broken, and says all is well of what is not."""

import io
import json
import math
import runpy
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor

from lookback import attention, implementations, lesson, masks, peers, verdicts
from lookback.equivalence import Probe, Row, agreement, leaks, transformer_agreement
from lookback.models.layers import PreNorm

SCRIPT = Path(__file__).parents[1] / "scripts" / "equivalence.py"
KINDS = {"none", "causal", "padding", "random", "a row may look nowhere"}
EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "bfloat16": 2.0**-7}


def wrong(rows: list[Row]) -> set[tuple[str, str]]:
    return {(row.ours, row.against) for row in rows if not row.ok}


def test_every_pair_is_compared_under_every_mask_in_every_precision_that_both_know() -> None:
    rows = agreement()
    assert wrong(rows) == set()
    for ours, against, kinds, precisions, weights, gradients in [
        ("attend", "lesson.py", KINDS, {"float64", "float32"}, True, False),
        ("attend", "torch", KINDS, set(EPSILON), False, True),
        ("attend_fused", "attend", KINDS, set(EPSILON), False, True),
        ("attend_short", "attend", KINDS - {"a row may look nowhere"}, set(EPSILON), False, True),
        ("MultiHeadAttention", "lesson.py", KINDS, {"float64", "float32"}, True, False),
        ("MultiHeadAttention", "nn.MultiheadAttention", KINDS, set(EPSILON), True, True),
        ("MultiHeadAttention, fused", "nn.MultiheadAttention", KINDS, set(EPSILON), False, True),
    ]:
        found = [row for row in rows if (row.ours, row.against) == (ours, against)]
        assert sorted((row.mask, row.precision) for row in found) == sorted(
            (k, p) for k in kinds for p in precisions
        )
        for row in found:
            assert (row.gradients is not None) == gradients
            # torch's layer has no weights for a row that may look nowhere
            theirs = not (against.startswith("nn") and row.mask == "a row may look nowhere")
            assert (row.weights is not None) == (weights and theirs)
            assert row.tolerance == 16 * EPSILON[row.precision]


def test_the_sizes_are_pairwise_distinct_and_the_root_of_the_width_is_rounded() -> None:
    sizes = implementations
    found = [sizes.BATCH, sizes.HEADS, sizes.QUERY, sizes.KEY, sizes.HEAD_WIDTH, sizes.D_MODEL]
    assert len(set(found)) == len(found)
    assert math.sqrt(sizes.HEAD_WIDTH) % 1 != 0


def test_the_numbers_are_the_same_each_time_and_nobody_elses_are_touched() -> None:
    state = torch.random.get_rng_state()
    first = [agreement(), transformer_agreement(), leaks()]
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(11)
    assert [agreement(), transformer_agreement(), leaks()] == first


Attend = Callable[..., Any]


def without_scale(query: Tensor, key: Tensor, *rest: Tensor) -> Any:
    return ATTEND(query * math.sqrt(query.shape[-1]), key, *rest)


def almost(query: Tensor, *rest: Tensor) -> Any:
    """One part in a million wrong: seen in float64 and float32, and not in bfloat16, which cannot tell."""
    context, weights = ATTEND(query, *rest)
    return context * (1 + 1e-5), weights


ATTEND = attention.attend
WITH_ATTEND = {
    ("attend", "lesson.py"),
    ("attend", "torch"),
    ("attend_fused", "attend"),
    ("attend_short", "attend"),
    ("MultiHeadAttention", "lesson.py"),
    ("MultiHeadAttention", "nn.MultiheadAttention"),
}


@pytest.mark.parametrize(
    ("broken", "precisions"),
    [(without_scale, set(EPSILON)), (almost, {"float64", "float32"})],
    ids=["scale", "almost"],
)
def test_a_broken_formula_is_found_in_all_pairs_that_it_takes_part_in(
    monkeypatch: pytest.MonkeyPatch, broken: Attend, precisions: set[str]
) -> None:
    monkeypatch.setattr(attention, "attend", broken)
    rows = agreement()
    assert wrong(rows) == WITH_ATTEND
    assert {row.precision for row in rows if not row.ok} == precisions
    assert {row.mask for row in rows if not row.ok} == KINDS


def test_a_gradient_that_is_cut_is_found_though_outputs_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "attend", lambda query, *rest: ATTEND(query / 2 + query.detach() / 2, *rest))
    found = [row for row in agreement() if not row.ok]
    assert {(row.ours, row.against) for row in found} == {
        pair
        for pair in WITH_ATTEND
        if pair[1] != "lesson.py"  # which knows no gradients
    }
    assert all(row.output <= row.tolerance < (row.gradients or 0) for row in found)


def test_wrong_weights_are_found_though_outputs_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    def turned(*given: Tensor) -> tuple[Tensor, Tensor]:
        context, weights = ATTEND(*given)
        return context, weights.flip(-1)

    monkeypatch.setattr(attention, "attend", turned)
    assert wrong(agreement()) == {pair for pair in WITH_ATTEND if pair[1] in ("lesson.py", "nn.MultiheadAttention")}


def test_a_broken_lesson_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lesson, "softmax", lambda x: np.exp(x) / (1 + np.exp(x).sum(axis=-1, keepdims=True)))
    assert wrong(agreement()) == {("attend", "lesson.py"), ("MultiHeadAttention", "lesson.py")}


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("what", ["output", "weights", "gradients"])
def test_what_is_no_number_never_agrees(what: str, bad: float) -> None:
    def ok(found: float, tolerance: float = 1.0) -> bool:
        changes: dict[str, Any] = {what: found, "tolerance": tolerance}
        return replace(Row("a", "b", "none", "float64", 0.0, 0.0, 0.0, 1.0), **changes).ok

    assert ok(1.0)
    assert not ok(1.0 + 1e-12)
    assert not ok(bad)
    assert not ok(bad, math.inf)


def test_a_result_that_is_not_a_number_in_one_place_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def torn(*given: Tensor) -> tuple[Tensor, Tensor]:
        context, weights = ATTEND(*given)
        return context.index_fill(2, torch.tensor([4]), math.nan), weights

    monkeypatch.setattr(attention, "attend", torn)
    assert wrong(agreement()) == WITH_ATTEND
    assert not any(probe.ok for probe in leaks() if (probe.what, probe.where) == ("scores x 10,000", "attend"))


def test_the_transformer_is_compared_with_both_norms_and_both_ways_of_attending() -> None:
    rows = transformer_agreement()
    assert wrong(rows) == set()
    found = sorted((row.ours, row.mask, row.precision) for row in rows)
    assert found == sorted(
        (ours, f"pads, causal; {norm}-norm", precision)
        for ours in ("Transformer", "Transformer, fused")
        for norm in ("pre", "post")
        for precision in ("float64", "float32")
    )
    assert all(row.gradients is not None for row in rows)


def test_a_broken_residual_is_found_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PreNorm, "forward", lambda self, x, sublayer: self.norm(x) + sublayer(self.norm(x)))
    found = {row.mask for row in transformer_agreement() if not row.ok}
    assert found == {"pads, causal; pre-norm"}


def test_gradients_of_the_transformer_are_compared_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def exchanged(name: str) -> list[str]:
        return peers.our_names(name)[::-1]  # query and value for one another, of the same shape

    monkeypatch.setattr("lookback.equivalence.our_names", exchanged)
    rows = transformer_agreement()
    assert not any(row.ok for row in rows)
    assert all(row.output <= row.tolerance for row in rows)


def test_nothing_leaks_anywhere() -> None:
    probes = leaks()
    assert [probe for probe in probes if not probe.ok] == []
    found = {what: {probe.where for probe in probes if probe.what == what} for what in {p.what for p in probes}}
    functions = {"attend", "attend_fused", "attend_short"}
    layers = {"encoder_self, formula", "encoder_self, fused", "cross, formula", "cross, fused"}
    three = {"lesson.py", "attend", "attend_fused"}
    assert found == {
        "later places changed": functions | {"decoder_self, formula", "decoder_self, fused"},
        "pads changed": functions | layers,
        "scores x 10,000": three,
        "a row may look nowhere": three,
    }


@pytest.mark.parametrize(
    ("changes", "ok"),
    [
        ({}, True),
        ({"leak": 1e-300}, False),
        ({"gradient": 1e-300}, False),
        ({"control": 0.0}, False),
        ({"finite": False}, False),
        ({"leak": None, "gradient": None, "control": None}, True),
        ({"leak": math.nan}, False),
    ],
)
def test_a_probe_passes_only_to_the_last_bit_and_if_it_could_have_seen(changes: dict[str, Any], ok: bool) -> None:
    assert replace(Probe("what", "where", 0.0, 0.0, 1.0, True), **changes).ok is ok


def failed() -> set[tuple[str, str]]:
    return {(probe.what, probe.where) for probe in leaks() if not probe.ok}


LATER, PADS, NOWHERE = "later places changed", "pads changed", "a row may look nowhere"


def test_a_formula_that_leaks_a_little_of_every_value_is_found_in_all_its_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def leaky(query: Tensor, key: Tensor, value: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
        context, weights = ATTEND(query, key, value, *rest)
        return context + 1e-3 * value.mean(-2, keepdim=True), weights

    monkeypatch.setattr(attention, "attend", leaky)
    assert failed() == {
        (LATER, "attend"),
        (LATER, "decoder_self, formula"),
        (PADS, "attend"),
        (PADS, "encoder_self, formula"),
        (PADS, "cross, formula"),
        (NOWHERE, "attend"),
    }


def test_a_gradient_that_leaks_is_found_though_no_output_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def leaky(query: Tensor, key: Tensor, value: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
        context, weights = ATTEND(query, key, value, *rest)
        nothing = value.mean(-2, keepdim=True) - value.detach().mean(-2, keepdim=True)
        return context + nothing, weights

    monkeypatch.setattr(attention, "attend", leaky)
    found = [probe for probe in leaks() if not probe.ok]
    assert {(probe.what, probe.where) for probe in found} >= {(LATER, "attend"), (PADS, "cross, formula")}
    assert all(probe.leak == 0.0 and probe.gradient for probe in found)


def test_a_fused_kernel_without_its_mask_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    fused = attention.attend_fused
    monkeypatch.setattr(
        attention, "attend_fused", lambda query, key, value, mask=None, bias=None: fused(query, key, value)
    )
    assert failed() == {
        (LATER, "attend_fused"),
        (LATER, "decoder_self, fused"),
        (PADS, "attend_fused"),
        (PADS, "encoder_self, fused"),
        (PADS, "cross, fused"),
        (NOWHERE, "attend_fused"),
    }


def test_a_mask_that_shows_one_place_too_many_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wide(length: int, device: torch.device | None = None) -> Tensor:
        return torch.ones(length, length, dtype=torch.bool).tril(1)[None, None]

    monkeypatch.setattr(masks, "causal", wide)
    places = {"attend", "attend_fused", "attend_short", "decoder_self, formula", "decoder_self, fused"}
    assert failed() == {(LATER, place) for place in places}


def test_a_pad_too_many_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    padding = masks.padding
    monkeypatch.setattr(masks, "needed", lambda lengths, width: padding(lengths + 1, width))
    places = {"encoder_self, formula", "encoder_self, fused", "cross, formula", "cross, fused"}
    assert failed() == {(PADS, place) for place in places}


def test_what_blows_up_under_one_kind_of_mask_only_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def torn(*given: Tensor) -> tuple[Tensor, Tensor]:
        context, weights = ATTEND(*given)
        return context / (given[3].any(-1, keepdim=True) if len(given) > 3 and given[3] is not None else 1), weights

    monkeypatch.setattr(attention, "attend", torn)
    assert failed() == {("scores x 10,000", "attend"), (NOWHERE, "attend")}


def test_the_largest_of_what_is_not_a_number_is_not_a_number() -> None:
    parts = [torch.tensor([1.0, -3.0]), torch.tensor([math.nan])]
    assert math.isnan(implementations.largest(parts))
    assert implementations.largest(parts[:1]) == 3.0
    assert implementations.largest(parts[:1], [torch.tensor([1.5, 1.0])]) == 4.0


def test_a_softmax_that_overflows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lesson, "softmax", lambda x: np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True))
    with np.errstate(all="ignore"):
        assert ("scores x 10,000", "lesson.py") in failed()


def test_a_layer_that_sees_nothing_at_all_does_not_pass_for_one_without_leaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        attention, "attend", lambda query, key, value, *rest: (0 * (query + value.sum()), 0 * query)
    )
    assert (LATER, "attend") in failed()


def shown(width: int = 80) -> tuple[dict[str, Any], list[str]]:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    found = verdicts.check_ours(console)
    assert isinstance(console.file, io.StringIO)
    return found, console.file.getvalue().splitlines()


def test_the_tables_fit_80_columns_without_cutting_a_word() -> None:
    found, lines = shown()
    assert found["ok"] is True
    assert not any("…" in line for line in lines)
    assert max(map(len, lines)) <= 80
    rows = len(found["agreement"]) + len(found["transformer"])
    assert (
        lines[-1]
        == f"all agree: {rows} comparisons within roundings; nothing leaks in {len(found['leaks'])} probes"
    )
    readme = (SCRIPT.parents[1] / "README.md").read_text(encoding="utf-8").splitlines()
    assert lines[-1] in readme
    assert lines[2].rstrip() in readme  # the heading


def test_a_line_of_the_table_is_the_worst_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        Row("a", "b", "none", "float64", 1e-9, None, 3e-3, 1.0),
        Row("c", "d", "none", "float64", 2e-9, 5e-4, math.nan, 1.0),
        Row("c", "d", "causal", "float64", 4e-9, 0.0, None, 1.0),
    ]
    monkeypatch.setattr(verdicts, "agreement", lambda: rows)
    _, lines = shown()
    assert [line.split() for line in lines[4:6]] == [
        ["none", "float64", "2.0e-09", "5.0e-04", "nan", "1.0e+00"],
        ["causal", "float64", "4.0e-09", "0", "-", "1.0e+00"],
    ]


def test_what_fails_is_named_at_the_end_and_by_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(attention, "attend", without_scale)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--json", str(tmp_path / "found.json")])
    assert runpy.run_path(str(SCRIPT))["main"]() == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "WRONG attend against torch, causal, float64: output " in text
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    count = sum(not one["ok"] for name in ("agreement", "transformer", "leaks") for one in found[name])
    total = sum(len(found[name]) for name in ("agreement", "transformer", "leaks"))
    assert found["ok"] is False
    assert text.endswith(f"{count} of {total} checks failed")


def test_the_script_refuses_a_folder_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--json", str(tmp_path / "none" / "found.json")])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(SCRIPT))["main"]()
    assert stopped.value.code == 2
    assert capsys.readouterr().err.endswith(f"argument --json: no such folder: {tmp_path / 'none'}\n")


def test_the_script_refuses_a_folder_in_place_of_a_file_before_it_checks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--json", str(tmp_path)])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(SCRIPT))["main"]()
    out, err = capsys.readouterr()
    assert (stopped.value.code, out) == (2, "")
    assert err.endswith(f"argument --json: must be a file, but {tmp_path} is a folder\n")


def test_json_has_a_word_for_what_is_not_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row("a", "b", "none", "float64", math.nan, None, 0.0, 1.0)
    monkeypatch.setattr(verdicts, "agreement", lambda: [row])
    found, _ = shown()
    plain = json.loads(json.dumps(found, allow_nan=False))["agreement"][0]
    assert (plain["output"], plain["weights"], plain["gradients"], plain["ok"]) == ("nan", None, 0.0, False)
