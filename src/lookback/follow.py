"""What each process does that torchrun started beside the first: it learns along, and neither writes nor prints."""

from lookback import config
from lookback.learner import Learner
from lookback.processes import Processes
from lookback.stop import Stop


def follow(processes: Processes) -> None:
    """Learn along with one run after another, until the first process has no more."""
    while (raw := processes.share()) is not None:
        _learn_along(Learner(config.build(raw), processes))


def _learn_along(learner: Learner) -> None:
    """The part that this process has in a run; `session.Run` is that of the first."""
    settings = learner.config
    cadences = (settings.board.scalars_every, settings.train.validate_every, settings.train.save_every)
    with Stop() as stop:
        learner.agree()
        stopped = learner.learn([(cadence, learner.trainer.drain) for cadence in cadences], stop)
        learner.trainer.drain()
        if not stopped:
            learner.evaluate(stop)
