"""All weights of a model in one vector, so that an update is a few operations and not a few for each of them.

In a small model, clipping and AdamW over a hundred small tensors take a tenth of a training step, nearly all of it
the calls. Fully sharded data parallel training keeps its "flat parameters" in the same way (Zhao et al. 2023).
"""

from typing import Any

import torch
from torch import Tensor, nn

MOMENTS = ("exp_avg", "exp_avg_sq")  # what AdamW keeps of each number


class FlatWeights:
    """Moves a model's weights into one vector, of which the model keeps views.

    The model must stay on its device from now on. Weights that get no gradient count as having gradient 0.

    Args:
        model: all weights of one type.

    Attributes:
        vector: (numbers,), with its gradient: what an optimizer updates.
    """

    def __init__(self, model: nn.Module) -> None:
        self._weights = list(model.parameters())
        self.vector = nn.Parameter(torch.cat([weight.detach().flatten() for weight in self._weights]))
        values = torch.split(self.vector.data, [weight.numel() for weight in self._weights])
        for weight, value in zip(self._weights, values, strict=True):
            weight.data = value.view_as(weight)

    def backward(self, loss: Tensor) -> None:
        """Set the gradient of the vector to that of the loss; gradients of the model's own weights stay unset."""
        gradients = torch.autograd.grad(loss, self._weights, materialize_grads=True)
        self.vector.grad = torch.cat([gradient.flatten() for gradient in gradients])

    def nothing(self) -> Tensor:
        """A loss whose gradient is 0 everywhere."""
        return torch.stack([weight.sum() for weight in self._weights]).sum() * 0.0

    def clip(self, norm: float) -> None:
        """Scale the gradient down to this norm, if it is larger (Pascanu et al. 2013)."""
        assert self.vector.grad is not None
        self.vector.grad.mul_((norm / (self.vector.grad.norm() + 1e-6)).clamp(max=1.0))


def flattened(state: dict[str, Any]) -> dict[str, Any]:
    """The state of an AdamW over many weights, such as older checkpoints hold, as that over their vector.

    Raises:
        ValueError: if it has moments of some weights only.
    """
    per_weight, count = state["state"], len(state["param_groups"][0]["params"])
    if count == 1:
        return state
    order = sorted(per_weight)
    if order and len(order) != count:
        raise ValueError(f"an optimizer must have moments of all {count} weights, but has those of {len(order)}")
    moments = (
        {name: torch.cat([per_weight[at][name].flatten() for at in order]) for name in MOMENTS} if order else {}
    )
    groups = [{**group, "params": [0]} for group in state["param_groups"]]
    return {
        "state": {0: {"step": per_weight[order[0]]["step"], **moments}} if order else {},
        "param_groups": groups,
    }
