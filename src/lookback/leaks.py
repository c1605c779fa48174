"""Change what must not be seen, and look whether anything sees it; then stretch the scores, and hide everything."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lookback import attention, masks
from lookback import implementations as ways
from lookback.attention import Maps
from lookback.implementations import largest
from lookback.models.base import Memory
from lookback.view import hide

STRETCH = 10_000.0
SEEN = 3  # places that the first queries, or the first row, may look at; those after it are hidden


@dataclass(frozen=True)
class Probe:
    """What was tried to find a leak.

    Attributes:
        what: was done.
        where: it was tried.
        leak: the largest change of an output that must not change, or value of one that must be 0; None = there is
            none.
        gradient: the largest gradient of what must not be seen; None = nothing was hidden.
        control: how far an equal change of what may be seen moves the same outputs; None = nothing was changed.
        finite: whether all outputs and gradients are numbers.
    """

    what: str
    where: str
    leak: float | None
    gradient: float | None
    control: float | None
    finite: bool

    @property
    def ok(self) -> bool:
        """Whether nothing leaks, to the last bit, and the probe would have seen it."""
        seen = self.control is None or self.control > 0
        return self.leak in (None, 0.0) and self.gradient in (None, 0.0) and seen and self.finite


def leaks() -> list[Probe]:
    """Try all probes, in float32, on random numbers."""
    with ways.same_numbers():
        return [*_futures(), *_pads(), *_stretched(), *_nowhere()]


Run = Callable[[Tensor], Tensor]
"""Takes what is added to an input; gives the outputs that must not see the hidden part of it."""


def _probe(what: str, where: str, run: Run, shape: tuple[int, ...], hidden: Tensor) -> Probe:
    """Change what is hidden, and then what is not; `hidden` broadcasts to `shape`, that of the input."""
    change = STRETCH * torch.randn(shape)
    zeros = torch.zeros(shape, requires_grad=True)
    before = run(zeros)
    [gradient] = torch.autograd.grad(before, zeros, torch.randn_like(before), materialize_grads=True)
    leak, control = (largest([before], [run(change * part)]) for part in (hidden, ~hidden))
    numbers = (leak, largest([gradient * hidden]), control)
    return Probe(what, where, *numbers, all(map(math.isfinite, (*numbers, largest([gradient])))))


def _short(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    return attention.attend_short(query, key, value, hide(None, mask))


def _formula(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    return attention.attend(query, key, value, mask)[0]


def _fused(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    return attention.attend_fused(query, key, value, mask)


Attend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
ATTENTIONS: dict[str, Attend] = {"attend": _formula, "attend_fused": _fused, "attend_short": _short}


def _keys(what: str, mask: Tensor, rows: slice, queries: slice) -> Iterator[Probe]:
    """Change keys and values alike from place SEEN on, and watch the outputs of those rows and queries."""
    hidden = torch.zeros(ways.BATCH, 1, ways.KEY, 1, dtype=torch.bool)
    hidden[rows, :, SEEN:] = True
    for where, attend in ATTENTIONS.items():
        given = ways.inputs(None, torch.float32)
        yield _probe(what, where, _attending(attend, given, mask, rows, queries), tuple(given.key.shape), hidden)


def _attending(attend: Attend, given: ways.Inputs, mask: Tensor, rows: slice, queries: slice) -> Run:
    return lambda added: attend(given.query, given.key + added, given.value + added, mask)[rows, :, queries]


def _futures() -> Iterator[Probe]:
    """No output may depend on later places."""
    what = "later places changed"
    yield from _keys(what, masks.causal(ways.KEY)[:, :, : ways.QUERY], slice(None), slice(SEEN))
    hidden = (torch.arange(ways.TARGET) >= SEEN)[:, None]
    model, (source, lengths, target) = ways.transformers("pre")[0], ways.strings()
    for watched in (True, False):

        def run(added: Tensor, watched: bool = watched) -> Tensor:
            with _added_to(model.target_embedding, added):
                return model(source, lengths, target, _maps(watched))[:, :SEEN]  # type: ignore[no-any-return]

        yield _probe(what, _where("decoder_self", watched), run, (*target.shape, ways.D_MODEL), hidden)


def _pads() -> Iterator[Probe]:
    """No output may depend on what stands beyond the end of its row: here the first, with SEEN real symbols."""
    what, first = "pads changed", slice(1)
    yield from _keys(what, masks.padding(torch.tensor([SEEN, ways.KEY]), ways.KEY), first, slice(None))
    model, (source, lengths, target) = ways.transformers("pre")[0], ways.strings()
    hidden = ~masks.padding(lengths, source.shape[1])[:, 0, 0, :, None]  # (batch, source, d_model=1)
    shape = (*source.shape, ways.D_MODEL)
    states = model.encode(source, lengths).states.detach()
    for watched in (True, False):

        def encoder(added: Tensor, watched: bool = watched) -> Tensor:
            with _added_to(model.source_embedding, added):
                return model.encode(source, lengths, _maps(watched)).states[first, :SEEN]

        def cross(added: Tensor, watched: bool = watched) -> Tensor:
            return model.decode(target, Memory(states + added, lengths), _maps(watched))[first]

        yield _probe(what, _where("encoder_self", watched), encoder, shape, hidden)
        yield _probe(what, _where("cross", watched), cross, shape, hidden)


def _where(place: str, watched: bool) -> str:
    return f"{place}, {'formula' if watched else 'fused'}"


def _maps(watched: bool) -> Maps | None:
    return {} if watched else None


@contextmanager
def _added_to(embedding: nn.Module, added: Tensor) -> Iterator[None]:
    """Add something to all that an embedding gives."""
    hook = embedding.register_forward_hook(lambda module, given, output: output + added)
    try:
        yield
    finally:
        hook.remove()


WAYS = {"lesson.py": ways.lesson_attention, "attend": ways.formula, "attend_fused": ways.fused}


def _stretched() -> Iterator[Probe]:
    """Scores so large that exp overflows unless the largest is subtracted first; under each kind of mask."""
    kinds = ways.mask_kinds(ways.QUERY, ways.KEY).values()
    for where, way in WAYS.items():
        finite = all(_finite(way(ways.inputs(mask, torch.float32, STRETCH))) for mask in kinds)
        yield Probe(f"scores x {STRETCH:,.0f}", where, None, None, None, finite)


def _nowhere() -> Iterator[Probe]:
    """Output and weights of a query that may look nowhere are 0, and so is its gradient."""
    mask = ways.mask_kinds(ways.QUERY, ways.KEY)[ways.NOWHERE]
    for where, way in WAYS.items():
        found = way(ways.inputs(mask, torch.float32))
        zeros = [part[:, :, ways.BLIND] for part in (found.output, found.weights) if part is not None]
        gradient = None if found.gradients is None else largest([found.gradients[0][:, :, ways.BLIND]])
        yield Probe(ways.NOWHERE, where, largest(zeros), gradient, None, _finite(found))


def _finite(found: ways.Result) -> bool:
    parts = [part for part in (found.output, found.weights, *(found.gradients or ())) if part is not None]
    return math.isfinite(largest(parts))
