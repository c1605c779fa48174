"""All weights in one vector: the model's own tensors, the same updates, and older checkpoints."""

import copy

import pytest
import torch
from torch import Tensor, nn

from lookback.flat import FlatWeights, flattened


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2, bias=False))


def loss(made: nn.Module, seed: int) -> Tensor:
    x = torch.randn(7, 3, generator=torch.Generator().manual_seed(seed))
    return (made(x) ** 2).sum()  # type: ignore[no-any-return]


def learn(made: nn.Module, seed: int) -> None:
    loss(made, seed).backward()  # type: ignore[no-untyped-call]


def test_the_model_sees_what_is_done_to_the_vector() -> None:
    made = model()
    before = [weight.clone() for weight in made.parameters()]
    flat = FlatWeights(made)
    for weight, old in zip(made.parameters(), before, strict=True):
        assert torch.equal(weight, old)
    assert flat.vector.numel() == 3 * 5 + 5 + 2 * 5
    with torch.no_grad():
        flat.vector.mul_(2)
    for weight, old in zip(made.parameters(), before, strict=True):
        assert torch.equal(weight, 2 * old)


def test_updates_are_those_of_torch_over_many_weights() -> None:
    ours, theirs = model(), model()
    flat = FlatWeights(ours)
    mine = torch.optim.AdamW([flat.vector], lr=0.1, weight_decay=0.3)
    other = torch.optim.AdamW(theirs.parameters(), lr=0.1, weight_decay=0.3)
    for seed in range(4):
        other.zero_grad()
        flat.backward(loss(ours, seed))
        learn(theirs, seed)
        flat.clip(0.5 if seed % 2 else 1e9)
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.5 if seed % 2 else 1e9)
        mine.step()
        other.step()
    for weight, twin in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(weight, twin, rtol=1e-5, atol=1e-6)


def test_a_state_over_many_weights_is_read_as_that_of_their_vector() -> None:
    ours, theirs = model(), model()
    other = torch.optim.AdamW(theirs.parameters(), lr=0.1)
    learn(theirs, 1)
    other.step()
    ours.load_state_dict(theirs.state_dict())
    flat = FlatWeights(ours)
    mine = torch.optim.AdamW([flat.vector], lr=0.1)
    state = copy.deepcopy(other.state_dict())
    mine.load_state_dict(flattened(state))
    assert flattened(mine.state_dict()) == mine.state_dict(), "one that is flat stays as it is"
    for seed in (2, 3):
        other.zero_grad()
        flat.backward(loss(ours, seed))
        learn(theirs, seed)
        mine.step()
        other.step()
    for weight, twin in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(weight, twin, rtol=1e-5, atol=1e-6)


def test_a_state_before_the_first_update_is_read_too() -> None:
    theirs = torch.optim.AdamW(model().parameters(), lr=0.1)
    mine = torch.optim.AdamW([FlatWeights(model()).vector], lr=0.1)
    mine.load_state_dict(flattened(theirs.state_dict()))
    assert mine.state_dict()["state"] == {}


def test_tied_weights_are_in_the_vector_once_and_weights_without_a_gradient_stay() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
            self.second.weight = self.first.weight
            self.unused = nn.Linear(2, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(torch.tanh(self.first(x)))  # type: ignore[no-any-return]

    ours, theirs = Tied(), Tied()
    theirs.load_state_dict(ours.state_dict())
    flat = FlatWeights(ours)
    assert flat.vector.numel() == 3 * 3 + 2 * 5 + 5
    mine = torch.optim.AdamW([flat.vector], lr=0.1, weight_decay=0.0)
    other = torch.optim.AdamW(theirs.parameters(), lr=0.1, weight_decay=0.0)
    for seed in range(3):
        other.zero_grad()
        flat.backward(loss(ours, seed))
        learn(theirs, seed)
        mine.step()
        other.step()
    assert ours.second.weight is ours.first.weight
    torch.testing.assert_close(ours.first.weight, theirs.first.weight, rtol=1e-5, atol=1e-6)
    assert torch.equal(ours.unused.weight, theirs.unused.weight)


def test_moments_of_some_weights_only_are_refused() -> None:
    theirs = model()
    other = torch.optim.AdamW(theirs.parameters(), lr=0.1)
    learn(theirs, 1)
    other.step()
    state = copy.deepcopy(other.state_dict())
    del state["state"][1]
    with pytest.raises(ValueError, match="moments of all 3 weights, but has those of 2"):
        flattened(state)
