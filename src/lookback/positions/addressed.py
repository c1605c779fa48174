"""Addressed positions: learned biases over the clipped distance from a key to an address that moves as one writes.

An address is a place among the keys. It depends on their number n, marks included, and on the query's place t:

    address = end * (n - 1) + rate * t

so (end, rate) = (0, 1) walks along from the start, and (1, -1) back from the end. Copying lives in the first,
reversing in the second; where they meet the mark at the far end, writing must stop, so that stopping is addressed
too. A walk in strides (rate 2 or more, either way) stands on multiples of its stride: `end * (n - 1)` is rounded to
the next one in the direction of the walk. With (0, 1) alone it is the relative bias of Shaw et al. 2018 in the
scalar form of Raffel et al. 2020.

Each head may weigh its addresses by a gate 2 * sigmoid(W x + b), where x is the query's state and the gate is 1
before training, so that what has been read decides which address counts.
"""

import torch
from torch import Tensor, nn

from lookback.positions.base import Positions, distances, look_up
from lookback.rules import Address, Clip, Gain


class Gate(nn.Module):
    """Weighs the biases of several addresses by the state of each query, and adds them up.

    Args:
        d_model: width of the states.
        num_heads: heads, each with gates of its own.
        addresses: how many biases there are.
    """

    def __init__(self, d_model: int, num_heads: int, addresses: int) -> None:
        super().__init__()
        self.shape = (addresses, num_heads)
        self.weight = nn.Parameter(torch.zeros(num_heads * addresses, d_model))
        self.offset = nn.Parameter(torch.zeros(num_heads * addresses))

    def forward(self, x: Tensor, biases: Tensor) -> Tensor:
        """Combine.

        Args:
            x: (batch, query, d_model).
            biases: (batch or 1, addresses x heads, query, key).

        Returns:
            (batch, heads, query, key).
        """
        gates = 2.0 * torch.sigmoid(nn.functional.linear(x, self.weight, self.offset))
        gates = gates.transpose(1, 2)[..., None]  # (batch, addresses x heads, query, key=1)
        weighed = gates * biases
        return weighed.view(len(weighed), *self.shape, *weighed.shape[2:]).sum(dim=1)


class Addressed(Positions):
    """Adds, for each head, learned numbers for the clipped distance key place - address.

    Tables start at zero. They are kept divided by `gain`, so that under Adam they learn so many times faster than
    other weights: the peak must beat all other keys together. A small `clip` reaches far: a distance that training
    seldom meets is one that long sequences fill with noise.

    Where the number of keys is not known, as in a decoder's self-attention, only addresses with end = 0 speak.

    Args:
        d_model: width of the states that gates read.
        num_heads: number of heads, each with numbers of its own.
        addresses: pairs (end, rate).
        clip: largest distance that is told apart; farther ones share the last number on their side.
        gain: of the tables.
        gated: whether heads weigh the addresses by what they have read.
    """

    crosses = True

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        addresses: list[Address],
        clip: Clip,
        gain: Gain,
        gated: bool,
    ) -> None:
        super().__init__(d_model, num_heads)
        wrong = [address for address in addresses if len(address) != 2]
        if wrong or not addresses:
            raise ValueError(f"addresses must be pairs [end, rate], at least one, but are {addresses}")
        self.addresses = addresses
        self.clip, self.gain, self.gated = clip, gain, gated
        self.table = nn.Parameter(torch.zeros(len(addresses), num_heads, 2 * clip + 1))

    def gate(self) -> Gate | None:
        """See `Positions.gate`."""
        return Gate(self.d_model, self.num_heads, len(self.addresses)) if self.gated else None

    def bias(self, query_index: Tensor, key_index: Tensor, key_lengths: Tensor | None) -> Tensor:
        """(batch or 1, heads, query, key): the sum over addresses; for the gate all of them, addresses x heads."""
        found = [self._one(at, query_index, key_index, key_lengths) for at in range(len(self.addresses))]
        if not self.gated:
            return sum(found[1:], start=found[0])
        rows = max(len(one) for one in found)
        return torch.cat([one.expand(rows, -1, -1, -1) for one in found], dim=1)

    def _one(self, at: int, query_index: Tensor, key_index: Tensor, key_lengths: Tensor | None) -> Tensor:
        """The bias of one address: (batch or 1, heads, query, key)."""
        end, rate = self.addresses[at]
        address = rate * query_index  # (query,) or (batch, query)
        if end:
            if key_lengths is None:
                return self.table.new_zeros(1, self.num_heads, query_index.shape[-1], key_index.shape[-1])
            far_end = end * (key_lengths.view(len(key_lengths), -1) - 1)
            address = address + (far_end + torch.remainder(-far_end, rate) if rate else far_end)
        return look_up(self.gain * self.table[at], distances(address, key_index), self.clip)
