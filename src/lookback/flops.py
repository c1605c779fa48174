"""How much arithmetic a training step needs, counted on paper, and what share of the machine's rate it reaches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from lookback import contestants
from lookback.packing import pack
from lookback.races import WIDE, WIDE_ROUNDS, WIDE_STEPS, advance, timed_counts
from lookback.timing import Row, Work, alternate, real_symbols
from lookback.train import Trainer

SQUARES = (256, 512, 1024, 2048)
PRODUCT_FLOPS = 2 * 1024**3  # of each size at least so many a round: a product of 256 alone is over too soon
BACKWARD = 2  # gradients of both factors: two products of the same size for each of the forward pass


@dataclass(frozen=True)
class Widths:
    """The sizes of a Transformer that its arithmetic depends on, as in `Transformer`."""

    d_model: int
    d_ff: int
    num_layers: int
    target_symbols: int


def multiply_adds(widths: Widths, sources: Sequence[int], targets: Sequence[int]) -> int:
    """Multiply-adds of all matrix products of one forward pass that are of use.

    Only real symbols count, and in attention only pairs of a query and a key that it may look at: of decoder
    self-attention the lower half of the square, diagonal included. What fused kernels and padded batches work out
    beyond that is not counted. Nor is anything but matrix products: softmax, norms, positions, embeddings.

    Args:
        widths: of the model.
        sources: real symbols of each source, marks included.
        targets: real symbols that the decoder reads, of each row.
    """
    projection = widths.d_model**2  # of one symbol
    feed_forward = 2 * widths.d_model * widths.d_ff
    pair = 2 * widths.d_model  # query key^T, and weights value: each head_width for each head
    source, target = sum(sources), sum(targets)
    seen = sum(length * length for length in sources)
    past = sum(length * (length + 1) // 2 for length in targets)
    crossed = sum(rows * columns for rows, columns in zip(targets, sources, strict=True))
    encoder = source * (4 * projection + feed_forward) + seen * pair
    decoder = target * (6 * projection + feed_forward) + source * 2 * projection + (past + crossed) * pair
    return widths.num_layers * (encoder + decoder) + target * widths.d_model * widths.target_symbols


def step_flops(widths: Widths, sources: Sequence[int], targets: Sequence[int]) -> int:
    """Useful floating-point operations of a training step: two a multiply-add, and backward twice forward.

    Args:
        widths: as in `multiply_adds`.
        sources: likewise.
        targets: likewise.
    """
    return 2 * (1 + BACKWARD) * multiply_adds(widths, sources, targets)


def product(rows: int, inner: int, columns: int) -> tuple[Callable[[], None], int]:
    """Work of float32 matrix products (rows, inner) x (inner, columns), and its floating-point operations."""
    left, right = torch.randn(rows, inner), torch.randn(inner, columns)
    once = 2 * rows * inner * columns
    times = max(1, PRODUCT_FLOPS // once)

    result = torch.empty(rows, columns)

    def multiply() -> None:
        for _ in range(times):
            torch.matmul(left, right, out=result)

    return multiply, times * once


def flops(work: Work) -> list[Row]:
    """`shares` at the configured size, and at a bigger one, which spends less on calls and small operations."""
    return shares(work, "useful arithmetic") + shares(
        work.changed(*WIDE).at_most(WIDE_ROUNDS, WIDE_STEPS), "wide useful arithmetic"
    )


def shares(work: Work, name: str) -> list[Row]:
    """Useful arithmetic a second of our training step against matrix products in the same rounds.

    Once against the best of square products (`SQUARES`) in each round, which is what the machine can do; and once
    against products of the model's own shape, (places of a packed batch, d_model) x (d_model, d_ff), which are too
    small for that.
    """
    sizes, symbols = work.config.raw["model"], len(work.config.task().target_vocabulary)
    widths = Widths(sizes["d_model"], sizes["d_ff"], sizes["num_layers"], symbols)
    trainer, batches = Trainer(contestants.ours(work.config), work.config.train), work.batches()
    first = batches[0]
    symbols_of_step = pack(first.source, first.source_lengths, first.target).source.ids.numel()
    own = (symbols_of_step, widths.d_model, widths.d_ff)
    products = [product(*own), *(product(size, size, size) for size in SQUARES)]
    times = alternate(
        partial(advance, trainer, batches, work.steps), *(multiply for multiply, _ in products), rounds=work.rounds
    )
    useful = timed_counts(work, batches, lambda batch: step_flops(widths, *real_symbols(batch)))
    best, same = [], []
    for counts, (step, *others) in zip(useful, times, strict=True):
        rates = [count / spent / 1e9 for (_, count), spent in zip(products, others, strict=True)]
        ours = sum(counts) / step / 1e9
        same.append((ours, rates[0]))
        best.append((ours, max(rates[1:])))
    unit, shape = "GFLOP/s", "({}, {}) x ({}, {})".format(*own[:2], *own[1:])
    return [
        Row.of(name, unit, "best square product", best),
        Row.of(name, unit, shape, same),
    ]
