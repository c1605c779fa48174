"""Who takes part in the races: ours, and what people use today at the same sizes."""

import json
from functools import partial
from typing import Any, cast

import torch
from torch import nn

from lookback import config, learner, peers_x
from lookback.config import Config
from lookback.launcher import compose
from lookback.models.base import Seq2Seq
from lookback.models.rnn import Rnn
from lookback.models.transformer import Transformer
from lookback.peers import TorchTransformer, copy_weights
from lookback.peers_rnn import BareRnn, copy_rnn_weights
from lookback.peers_x import XTransformersPeer
from lookback.positions.sinusoidal import Sinusoidal
from lookback.tokens import EOS

TORCH, X = "nn.Transformer", "x-transformers"
LONGEST_PREFIX = 2048  # marks included
PEERS_HAVE = {"log_length": False, "residual": True, "scale": True, "causal": True}


def ours(loaded: Config) -> Transformer:
    """Our model, the weights drawn from the configuration's seed.

    Raises:
        ValueError: if the configuration has another.
    """
    _, model = learner.build(loaded)
    if not isinstance(model, Transformer):
        raise ValueError(f"model must be a Transformer here, but is {type(model).__name__}")
    return model


def of_torch(loaded: Config) -> TorchTransformer:
    """nn.Transformer with the same sizes and sinusoidal positions; its own first weights, from the same seed.

    Raises:
        ValueError: if ours are to have other positions.
    """
    sizes = _sizes(loaded)
    if "base" not in sizes["positions"] or not sizes["positions"]["_target_"].endswith(Sinusoidal.__name__):
        name = sizes["positions"]["_target_"].rpartition(".")[2]
        raise ValueError(f"positions must be sinusoidal beside {TORCH}, which can add no others, but are {name}")
    sizes["positions"] = partial(Sinusoidal, base=sizes["positions"]["base"])
    return TorchTransformer(*_symbols(loaded), **sizes)


def of_x(loaded: Config) -> XTransformersPeer:
    """The encoder-decoder of x-transformers with the same sizes; its own first weights, from the same seed.

    Raises:
        ValueError: if it cannot have these sizes.
    """
    if loaded.raw["model"].get("d_model", 0) % 2:
        raise ValueError(f"model.d_model must be even beside {X}, but is {loaded.raw['model']['d_model']}")
    sizes = {name: value for name, value in _sizes(loaded).items() if name != "positions"}
    return XTransformersPeer(*_symbols(loaded), **sizes, max_length=LONGEST_PREFIX)


def has_x() -> bool:
    """Whether x-transformers takes part."""
    return peers_x.version() is not None


def _sizes(loaded: Config) -> dict[str, Any]:
    """What a peer is built from, where it can compute the same function."""
    node = loaded.raw["model"]
    for name, theirs in PEERS_HAVE.items():
        if node.get(name, theirs) != theirs:
            said, ours = json.dumps(theirs), json.dumps(node[name])
            raise ValueError(f"model.{name} must be {said} beside peers, which have no choice, but is {ours}")
    if node.get("norm") == "none":
        raise ValueError("model.norm must be pre or post beside peers, which have no third, but is none")
    ours_alone = ("_target_", "tied", *PEERS_HAVE)
    return {name: value for name, value in node.items() if name not in ours_alone}


def _symbols(loaded: Config) -> tuple[int, int]:
    torch.manual_seed(loaded.seed)
    task = loaded.task()
    return len(task.source_vocabulary), len(task.target_vocabulary)


def transformers(loaded: Config) -> dict[str, Seq2Seq]:
    """Ours first, nn.Transformer with the weights of ours, and x-transformers where it is installed."""
    first, second = ours(loaded), of_torch(loaded)
    copy_weights(first, second)
    found = {"ours": first, TORCH: as_model(second)}
    return {**found, X: as_model(of_x(loaded))} if has_x() else found


def as_model(peer: nn.Module) -> Seq2Seq:
    """A peer where one of ours is expected: a `Trainer` asks no more of a model than to be called."""
    return cast(Seq2Seq, peer)


def recurrent(loaded: Config) -> dict[str, Seq2Seq]:
    """`rnn` with the GRU, in place of the model of `loaded`, and its bare peer, from the same weights."""
    node = compose("train", ["model=rnn", "model.cell=gru"])["model"]
    _, model = learner.build(config.build({**loaded.raw, "model": node}))
    assert isinstance(model, Rnn)
    peer = BareRnn(*_symbols(loaded), **{name: node[name] for name in ("d_model", "num_layers", "cell")})
    copy_rnn_weights(model, peer)
    return {"ours": model, f"bare nn.{type(model.encoder).__name__}": as_model(peer)}


@torch.no_grad()
def never_end(output: nn.Linear) -> None:
    """Let EOS never be the likeliest: its logit becomes the mean of all others, and no mean is above the largest.

    So untrained models write as long as they are let, all alike.
    """
    others = [token for token in range(output.out_features) if token != EOS]
    output.weight[EOS] = output.weight[others].mean(dim=0)
    if output.bias is not None:
        output.bias[EOS] = output.bias[others].mean()
