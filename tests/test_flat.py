"""All weights in one vector: the model's own tensors, the same updates, and older checkpoints."""

import copy

import torch
from torch import nn

from lookback.flat import FlatWeights, flattened


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2, bias=False))


def learn(made: nn.Module, seed: int) -> None:
    x = torch.randn(7, 3, generator=torch.Generator().manual_seed(seed))
    (made(x) ** 2).sum().backward()


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
        flat.forget_gradient()
        other.zero_grad()
        learn(ours, seed)
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
        flat.forget_gradient()
        other.zero_grad()
        learn(ours, seed)
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
