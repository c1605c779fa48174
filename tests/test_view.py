"""What the queries of one attention may look at: bias and mask as one number."""

import pytest
import torch

from lookback.view import HIDDEN, hide

MASK = torch.tensor([[[[True, False, True], [False, True, True]]]])


def test_what_is_hidden_gets_a_number_that_leaves_a_weight_of_exactly_zero() -> None:
    bias = torch.tensor([[[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]]])
    added = hide(bias, MASK)
    assert added.tolist() == [[[[1.0, pytest.approx(HIDDEN), 3.0], [pytest.approx(HIDDEN), 5.0, 6.0]]]]
    assert torch.softmax(added, dim=-1)[~MASK].tolist() == [0.0, 0.0]
    assert torch.equal(hide(None, MASK) == 0, MASK)


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [
        (torch.float16, torch.float32),  # which has no room for HIDDEN
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
    ids=str,
)
def test_numbers_are_at_least_float32(dtype: torch.dtype, wanted: torch.dtype) -> None:
    assert hide(torch.zeros(1, 1, 2, 3, dtype=dtype), MASK).dtype == wanted
