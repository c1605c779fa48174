"""Several models as one."""

import pytest
import torch

from lookback.decode import greedy
from lookback.models.ensemble import Ensemble, mean_of
from lookback.tokens import BOS
from test_beam import LENGTHS, MODELS, SOURCE, made

TARGET = torch.tensor([[BOS, 4, 5, 6], [BOS, 6, 4, 4], [BOS, 5, 6, 4]])


def test_the_mean_is_of_probabilities_by_hand() -> None:
    logits = [torch.tensor([[0.1, 0.9]]).log(), torch.tensor([[0.5, 0.5]]).log() + 7.0]
    assert mean_of(logits).exp().tolist()[0] == pytest.approx([0.3, 0.7])


@pytest.mark.parametrize("name", MODELS)
def test_one_member_predicts_as_it_does_alone(name: str) -> None:
    model = made(name)
    wanted = torch.log_softmax(model(SOURCE, LENGTHS, TARGET), dim=-1)
    assert torch.allclose(Ensemble([model])(SOURCE, LENGTHS, TARGET), wanted, atol=1e-6)


def test_members_of_different_kinds_are_averaged() -> None:
    members = [made(name, seed) for seed, name in enumerate(MODELS)]
    shares = torch.stack([member(SOURCE, LENGTHS, TARGET).softmax(dim=-1) for member in members]).mean(dim=0)
    assert torch.allclose(Ensemble(members)(SOURCE, LENGTHS, TARGET).exp(), shares, atol=1e-6)


def test_steps_predict_what_the_whole_pass_does_and_rows_can_be_kept() -> None:
    model = Ensemble([made(name, seed) for seed, name in enumerate(MODELS)]).eval()
    with torch.no_grad():
        wanted = model(SOURCE, LENGTHS, TARGET)
        state = model.start(model.encode(SOURCE, LENGTHS), 4)
        for place in range(2):
            assert torch.allclose(model.step(TARGET[:, place], state), wanted[:, place], atol=1e-5)
        state = state.keep(torch.tensor([True, False, True]))
        for place in range(2, 4):
            assert torch.allclose(model.step(TARGET[[0, 2], place], state), wanted[[0, 2], place], atol=1e-5)
    assert state.length == 4


def test_the_shortest_limit_holds_and_the_longest_chain_counts() -> None:
    one, two, three = made("rnn_luong"), made("rnn"), made("rnn", 1)
    one.max_length, three.max_length = 3, 8
    model = Ensemble([three, one, two])
    assert model.max_length == 3
    assert greedy(model, SOURCE, LENGTHS, 9).tokens.shape[1] <= 3
    steps = [member.sequential_steps(9, 7) for member in (one, two, three)]
    assert model.sequential_steps(9, 7) == max(steps)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^members must be at least one, but there are none$"):
        Ensemble([])
    with pytest.raises(ValueError, match=r"^maps must be asked of one model, but there are several"):
        Ensemble([made()])(SOURCE, LENGTHS, TARGET, {})
