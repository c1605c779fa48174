"""The peer of x-transformers is called as ours are, and its loop writes what its own full pass says."""

import importlib.util
from typing import Any

import pytest
import torch

from lookback import peers_x
from lookback.peers_x import XTransformersPeer

SIZES: dict[str, Any] = {"d_model": 12, "num_heads": 3, "num_layers": 2, "d_ff": 20, "dropout": 0.0, "norm": "pre"}
BATCH = (
    torch.tensor([[1, 5, 2, 0, 0], [1, 6, 7, 8, 2]]),  # source
    torch.tensor([3, 5]),  # lengths
    torch.tensor([[1, 7, 8, 4], [1, 9, 2, 5]]),  # target
)


def peer(**changes: Any) -> XTransformersPeer:
    pytest.importorskip("x_transformers", reason="x-transformers is not installed (extra `bench`)")
    return XTransformersPeer(13, 17, **(SIZES | changes), max_length=64).eval()


def test_where_it_is_missing_there_is_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert peers_x.version() is None


def test_where_it_is_installed_its_version_is_that_of_the_distribution() -> None:
    peer()
    assert peers_x.version() == importlib.metadata.version("x-transformers")


def test_its_sizes_are_those_of_ours() -> None:
    model = peer()
    shapes = {tuple(parameter.shape) for parameter in model.parameters() if parameter.dim() == 2}
    assert shapes == {(13, 12), (17, 12), (12, 12), (20, 12), (12, 20)}
    assert sum("to_q" in name for name, _ in model.named_parameters()) == 2 + 2 * 2  # cross-attention too
    assert model.output.weight.shape == (17, 12)


def test_no_pad_and_no_later_token_changes_its_logits() -> None:
    model, (source, lengths, target) = peer(), BATCH
    logits = model(source, lengths, target)
    assert logits.shape == (2, 4, 17)
    alone = model(source[:1, :3], lengths[:1], target[:1])
    torch.testing.assert_close(logits[:1], alone, rtol=0, atol=1e-5)
    later = torch.cat([target[:, :3], (target[:, 3:] + 1)], dim=1)
    changed = model(source, lengths, later)
    torch.testing.assert_close(changed[:, :3], logits[:, :3], rtol=0, atol=1e-5)
    assert not torch.allclose(changed[:, 3], logits[:, 3], atol=1e-3)


def test_it_knows_places() -> None:
    model = peer()
    logits = model(torch.tensor([[1, 5, 6, 2], [1, 6, 5, 2]]), torch.tensor([4, 4]), torch.tensor([[1], [1]]))
    assert not torch.allclose(logits[0], logits[1], atol=1e-4)


def test_dropout_is_passed_on() -> None:
    model = peer(dropout=0.5).train()
    assert not torch.allclose(model(*BATCH), model(*BATCH))


def test_norms_stand_where_they_are_asked_to() -> None:
    pre, post = peer(), peer(norm="post")
    assert "model.decoder.net.attn_layers.final_norm.gamma" in dict(pre.named_parameters())
    assert "model.decoder.net.attn_layers.final_norm.gamma" not in dict(post.named_parameters())


def test_what_its_cached_loop_writes_is_the_likeliest_of_its_full_pass_at_every_place() -> None:
    model, (source, lengths, _) = peer(), BATCH
    written = model.write(source, lengths, 9)
    assert written.shape == (2, 9)
    with torch.no_grad():
        logits = model(source, lengths, torch.cat([torch.ones(2, 1, dtype=torch.long), written[:, :-1]], dim=1))
    assert torch.equal(logits.argmax(dim=-1), written)
