"""The doors through which order can enter attention, which by itself sees a set. Here all are shut."""

import torch
from torch import Tensor, nn

from lookback.rules import head_width


class Positions(nn.Module):
    """A position encoding: subclasses open the door they need, and say no more than that.

    An index is (length,), the place of each symbol in its sequence, from 0; or (batch, length), where rows hold
    several sequences each (`packing.py`). No place is then as large as length.

    The Transformer makes one for the encoder, one for the decoder, and one for cross-attention if the
    encoding `crosses`. The layers of a stack share theirs.

    Args:
        d_model: width of the embeddings.
        num_heads: number of attention heads, each of width d_model / num_heads.

    Raises:
        ValueError: if d_model is not a multiple of num_heads.

    Attributes:
        crosses: whether `rotate` and `bias` have something to say in cross-attention, where queries are
            counted along the target and keys along the source.
        max_length: the longest sequence that can be encoded, marks included; None = any.
    """

    crosses: bool = False
    max_length: int | None = None

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.d_model = d_model
        self.num_heads = num_heads
        self.head_width = head_width(d_model, num_heads)

    def embed(self, x: Tensor, index: Tensor) -> Tensor:
        """Door 1, before the first layer: mix positions into embeddings.

        Args:
            x: (batch, length, d_model).
            index: (length,) or (batch, length).

        Returns:
            (batch, length, d_model).
        """
        return x

    def rotate(self, x: Tensor, index: Tensor) -> Tensor:
        """Door 2, in every attention: turn queries, and keys, by their places.

        Args:
            x: (batch, heads, length, head_width).
            index: (length,) or (batch, length).

        Returns:
            (batch, heads, length, head_width).
        """
        return x

    def bias(self, query_index: Tensor, key_index: Tensor, key_lengths: Tensor | None) -> Tensor | None:
        """Door 3, in every attention: what is added to the scores.

        Args:
            query_index: (query,) or (batch, query).
            key_index: (key,) or (batch, key).
            key_lengths: (batch,), number of real keys in each row; (1,) if all have as many; or (batch, query),
                those of the sequence that each query looks at; None where it is not known.

        Returns:
            broadcasts to (batch, heads, query, key); or what its own `gate` takes; None = nothing is added.
        """
        return None

    def gate(self) -> nn.Module | None:
        """Door 4, in every attention layer: a module of its own through which the bias goes.

        Returns:
            takes the layer's queries (batch, query, d_model) and what `bias` gave, and gives a bias for the scores;
            None = the bias is added as it is.
        """
        return None


def distances(query_index: Tensor, key_index: Tensor) -> Tensor:
    """Key place - query place: (batch or 1, query, key), for indices as in `Positions`."""
    distance = key_index[..., None, :] - query_index[..., :, None]
    return distance if distance.dim() == 3 else distance[None]


ONE_HOT_NUMBERS = 2**24  # one-hot rows of more would not pay for their memory


def look_up(table: Tensor, distance: Tensor, clip: int) -> Tensor:
    """Each head's number for each clipped distance, in the precision of the table, under autocast too.

    In training it is a product with one-hot rows, whose gradient is a product too; that of an index is a slow sum.

    Args:
        table: (heads, 2 clip + 1), for distances -clip to clip.
        distance: (batch or 1, query, key); farther ones share the last number on their side.
        clip: largest distance that is told apart.

    Returns:
        (batch or 1, heads, query, key).
    """
    row = distance.clamp(-clip, clip) + clip
    trains = torch.is_grad_enabled() and table.requires_grad
    if not trains or row.numel() * (2 * clip + 1) > ONE_HOT_NUMBERS:
        return table[:, row].movedim(0, 1)
    chosen = row.flatten()[:, None] == torch.arange(2 * clip + 1, device=row.device)  # (numbers, table)
    with torch.autocast(row.device.type, enabled=False):
        found = table @ chosen.T.to(table.dtype)
    return found.view(len(table), *row.shape).movedim(0, 1)
