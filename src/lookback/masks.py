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


def needed(lengths: Tensor, width: int) -> Tensor | None:
    """`padding`; None where it would hide nothing. On an accelerator this waits for the lengths."""
    return None if bool((lengths == width).all()) else padding(lengths, width)


def same(query_string: Tensor, key_string: Tensor) -> Tensor:
    """Hide what belongs to other strings, where a row holds several.

    Args:
        query_string: (batch, query), the number of the string that each query belongs to; below 0 = to none.
        key_string: (batch, key), likewise.

    Returns:
        (batch, heads=1, query, key), True where both are of one string; a query of none may look everywhere, since
        nobody asks what it sees, and a row that may look nowhere would be a special case.
    """
    query = query_string[:, None, :, None]
    return (query == key_string[:, None, None, :]) | (query < 0)


def causal(length: int, device: torch.device | None = None) -> Tensor:
    """Hide the future: query t may look at keys 0..t.

    Args:
        length: number of queries, and of keys.
        device: where the mask is made.

    Returns:
        (batch=1, heads=1, query=length, key=length), True where key <= query.
    """
    return everywhere(length, device).tril()


def everywhere(length: int, device: torch.device | None = None) -> Tensor:
    """Hide nothing, in the place of `causal`: every query may look at every key, the future included.

    Args:
        length: as in `causal`.
        device: likewise.

    Returns:
        (batch=1, heads=1, query=length, key=length), True everywhere.
    """
    return torch.ones(1, 1, length, length, dtype=torch.bool, device=device)
