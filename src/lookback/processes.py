"""Several processes that train one model: torchrun starts them, and here they find and tell one another.

`sum`, `any`, `share` and `gather` are calls that all of them make, in the same order; one alone does nothing there.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed
from torch import Tensor

PATIENCE = timedelta(days=1)  # for a process that is busy; that one has died is known at once


class LostProcessError(RuntimeError):
    """Another process is gone, and with it the work that all have in common."""


@dataclass
class Processes:
    """This process among those that work together.

    Attributes:
        rank: of this one, counted from 0.
        count: how many there are.
        device_index: number of the GPU that is this one's, among those of its machine.
        left: whether this one has stopped working with the others, who wait for it until torchrun ends them.
    """

    rank: int = 0
    count: int = 1
    device_index: int = 0
    left: bool = False

    @property
    def first(self) -> bool:
        """Whether this one writes, prints and decides."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """Add up the values of all, in place."""
        if self.count > 1:
            with _lost():
                torch.distributed.all_reduce(values)
        return values

    def any(self, flag: bool) -> bool:
        """Whether one of them says so."""
        return bool(self.sum(torch.tensor(int(flag)))) if self.count > 1 else flag

    def share(self, value: Any = None) -> Any:  # noqa: ANN401 (whatever it is)
        """What the first one has, for all; objects of this package and of torch, never of strangers."""
        if self.count == 1:
            return value
        box = [value]
        with _lost():
            torch.distributed.broadcast_object_list(box, device=torch.device("cpu"))
        return box[0]

    def gather(self, value: Any) -> list[Any]:  # noqa: ANN401
        """What each one has, by rank."""
        if self.count == 1:
            return [value]
        boxes: list[Any] = [None] * self.count
        with _lost():
            torch.distributed.all_gather_object(boxes, value)
        return boxes

    def end(self, code: int) -> int:
        """The exit code of this process; one of several ends here.

        Gloo's threads may hold tensors still, and abort if they meet an interpreter that is being taken down
        (https://github.com/pytorch/pytorch/pull/179291).
        """
        if self.count > 1:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(code)
        return code

    @contextmanager
    def leading(self, what: Any) -> Iterator[None]:  # noqa: ANN401
        """Inside, the others work along, at what the first one has told them; an error inside ends that for good.

        Raises:
            LostProcessError: if it has ended already.
        """
        if self.left:
            raise LostProcessError("the other processes ended with an earlier run")
        self.share(what)
        try:
            yield
        except BaseException:
            self.left = self.count > 1
            raise


ALONE = Processes()


@contextmanager
def _lost() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise LostProcessError(f"another process is gone ({str(error).splitlines()[0]})") from error


def started() -> int:
    """How many processes torchrun has started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def joined() -> Iterator[Processes]:
    """The processes that torchrun has started, once all are there; this one alone without it.

    On CPUs they talk by gloo, on GPUs by NCCL; objects always go by gloo.
    """
    if started() == 1:
        yield ALONE
        return
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    torch.distributed.init_process_group(backend, timeout=PATIENCE)
    index = int(os.environ.get("LOCAL_RANK", "0"))
    processes = Processes(torch.distributed.get_rank(), torch.distributed.get_world_size(), index)
    try:
        yield processes
        if processes.first and not processes.left:
            processes.share(None)  # there is no more work
    finally:
        torch.distributed.destroy_process_group()
