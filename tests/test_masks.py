"""masks.py against masks drawn by hand: 1 = may look."""

import pytest
import torch
from torch import Tensor

from lookback import masks


def drawn(*rows: str) -> Tensor:
    """Turn drawings such as "110" into a boolean table."""
    return torch.tensor([[cell == "1" for cell in row] for row in rows])


def test_padding_shows_the_real_keys_of_each_row_and_hides_the_rest() -> None:
    mask = masks.padding(torch.tensor([5, 2, 1, 0]), 5)
    assert mask.dtype == torch.bool
    assert mask.shape == (4, 1, 1, 5)
    assert torch.equal(mask[:, 0, 0], drawn("11111", "11000", "10000", "00000"))


def test_padding_is_as_wide_as_the_batch_even_when_no_row_is() -> None:
    mask = masks.padding(torch.tensor([3, 2]), 6)
    assert torch.equal(mask[:, 0, 0], drawn("111000", "110000"))


def test_causal_shows_each_query_itself_and_the_past_and_hides_the_future() -> None:
    mask = masks.causal(4)
    assert mask.dtype == torch.bool
    assert mask.shape == (1, 1, 4, 4)
    assert torch.equal(mask[0, 0], drawn("1000", "1100", "1110", "1111"))


def test_causal_and_padding_together_show_a_key_only_if_both_do() -> None:
    both = masks.causal(4) & masks.padding(torch.tensor([4, 2]), 4)
    assert both.shape == (2, 1, 4, 4)
    assert torch.equal(both[0, 0], drawn("1000", "1100", "1110", "1111"))
    assert torch.equal(both[1, 0], drawn("1000", "1100", "1100", "1100"))


@pytest.mark.parametrize("lengths", [[3, 7], [1, 1], [7, 7]])
def test_padding_hides_keys_only_so_every_query_of_a_row_with_a_real_key_sees_something(lengths: list[int]) -> None:
    both = masks.causal(7) & masks.padding(torch.tensor(lengths), 7)
    assert bool(both.any(dim=-1).all())


def test_masks_are_made_on_the_device_they_are_asked_for_on() -> None:
    device = torch.device("meta")
    assert masks.causal(4, device).device == device
    assert masks.padding(torch.ones(2, dtype=torch.long, device=device), 3).device == device
