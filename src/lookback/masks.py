"""Boolean masks. One sense everywhere: True = the query may look at that key.

Masks are 4-d, (batch, heads, query, key), with size 1 where an axis does not matter, and combine with `&`.
Padding hides keys only; it never hides query rows.
"""

import torch
from torch import Tensor


def padding(lengths: Tensor, width: int) -> Tensor:
    """Hide the keys past each row's own length.

    Args:
        lengths: (batch,), number of real keys in each row.
        width: number of keys that the batch is padded to.

    Returns:
        (batch, heads=1, query=1, key=width), True where the key is real.
    """
    index = torch.arange(width, device=lengths.device)
    return (index < lengths[:, None])[:, None, None, :]


def causal(length: int, device: torch.device | None = None) -> Tensor:
    """Hide the future: query t may look at keys 0..t.

    Args:
        length: number of queries, and of keys.
        device: where the mask is made.

    Returns:
        (batch=1, heads=1, query=length, key=length), True where key <= query.
    """
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]
