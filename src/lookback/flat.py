"""All weights of a model in one vector, so that an update is a few operations and not a few for each of them.

In a small model, clipping and AdamW over a hundred small tensors take a tenth of a training step, nearly all of it
the calls. Fully sharded data parallel training keeps its "flat parameters" in the same way (Zhao et al. 2023).
"""

from typing import Any

import torch
from torch import nn

MOMENTS = ("exp_avg", "exp_avg_sq")  # what AdamW keeps of each number


class FlatWeights:
    """Moves a model's weights, and their gradients, into one vector each; the model keeps views of them.

    From now on the model must stay on its device, and its gradients must be forgotten here: `zero_grad` would take
    them out of the vector. Weights that get no gradient count as having gradient 0.

    Args:
        model: all weights of one type.

    Attributes:
        vector: (numbers,), with its gradient: what an optimizer updates.
    """

    def __init__(self, model: nn.Module) -> None:
        weights = list(model.parameters())
        self.vector = nn.Parameter(torch.cat([weight.detach().flatten() for weight in weights]))
        self.vector.grad = torch.zeros_like(self.vector)
        self._first = weights[0]
        sizes = [weight.numel() for weight in weights]
        values, gradients = torch.split(self.vector.data, sizes), torch.split(self.vector.grad, sizes)
        for weight, value, gradient in zip(weights, values, gradients, strict=True):
            weight.data = value.view_as(weight)
            weight.grad = gradient.view_as(weight)

    def clip(self, norm: float) -> None:
        """Scale the gradient down to this norm, if it is larger (Pascanu et al. 2013).

        Raises:
            RuntimeError: if the model's gradients are no longer views of the vector's.
        """
        assert self.vector.grad is not None
        gradient = self._first.grad
        if gradient is None or gradient.data_ptr() != self.vector.grad.data_ptr():
            raise RuntimeError(
                "gradients must be views of the vector's: use forget_gradient, not zero_grad or .to()"
            )
        self.vector.grad.mul_((norm / (self.vector.grad.norm() + 1e-6)).clamp(max=1.0))

    def forget_gradient(self) -> None:
        """Set the gradient to 0."""
        assert self.vector.grad is not None
        self.vector.grad.zero_()


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
