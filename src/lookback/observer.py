"""What a run notes of its attention: maps and scores while it trains, and which head learned the task."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lookback import album
from lookback.alignment import Head, HeadScore, clearest, learned_since, measure, right_cells
from lookback.board import Board
from lookback.data import Batch
from lookback.models.base import Seq2Seq
from lookback.probes import validation_probe
from lookback.tasks.base import Task


@dataclass(frozen=True)
class Finding:
    """How the heads of a trained model look.

    Attributes:
        scores: place -> a score for each of its heads.
        head: the cross-attention head that is clearest; None if there is none.
        since: the logging step from which on it had learned the task; None if it has not, or nobody measured.
    """

    scores: dict[str, list[HeadScore]]
    head: Head | None
    since: int | None

    def summary(self) -> dict[str, Any]:
        """The entries of summary.json."""
        return {
            "alignment": {head.name: head.score.values() for head in _heads(self.scores)},
            "learned_by": {"head": self.head.name, "since_step": self.since} if self.head and self.learned else {},
        }

    @property
    def learned(self) -> bool:
        """Whether one head alone has learned the task."""
        return self.head is not None and self.head.learned

    def says(self) -> str:
        """Which head learned the task, in a sentence; empty where there is nothing to say."""
        if self.head is None:
            return ""
        score = self.head.score
        if score.largest is None or score.weight is None:
            return f"{self.head.name} looks most sharply: entropy {score.entropy:z.2f} nats"
        where = (
            f"weight largest where the answer stands in {score.largest:.0%} of rows, {score.weight:.2f} on average"
        )
        if not self.learned:
            return f"no head has learned the task alone; closest is {self.head.name}: {where}"
        since = "" if self.since is None else f", since step {self.since}"
        others = [head.name for head in _heads(self.scores) if head != self.head and head.learned]
        also = f"; so have {', '.join(others)}" if others else ""
        return f"{self.head.name} has learned the task{since}: {where}{also}"


def _heads(scores: Mapping[str, list[HeadScore]]) -> list[Head]:
    return [Head(place, number, score) for place, row in scores.items() for number, score in enumerate(row)]


def _charts(heads: Sequence[Head]) -> dict[str, list[str]]:
    """What shows all heads of a layer together, cross-attention first: title -> tags."""
    found: dict[str, list[str]] = {}
    for head in sorted(heads, key=lambda head: not head.place.startswith("cross/")):
        for name in head.score.values():
            found.setdefault(f"{head.place}: {name}", []).append(f"alignment/{head.name}/{name}")
    return found


class Observer:
    """Watches a model while it trains. Nothing here draws a random number or changes the model.

    Args:
        task: of the run.
        probe_lengths: one validation string of each is drawn.
        batch: validation strings on which every head is measured.
        folder: of the run.
        start: steps that an earlier process has done; what was kept of later ones is dropped.
        tell: gets a line for each file that cannot be used or removed.
    """

    def __init__(
        self,
        task: Task,
        probe_lengths: list[int],
        batch: Batch,
        folder: Path,
        start: int,
        tell: Callable[[str], object] = print,
    ) -> None:
        self.probes = [validation_probe(task, length) for length in probe_lengths]
        self._batch = batch
        self._right = right_cells(task, batch)
        self._folder = folder
        self._tell = tell
        album.forget_later(folder / "attention", start, tell)

    def draw(self, step: int, model: Seq2Seq, board: Board) -> None:
        """Show and keep the maps of the probes."""
        maps = [probe.watch(model) for probe in self.probes]
        if maps[0]:
            board.attention(step, self.probes, maps)
            album.keep(self._folder / "attention", step, self.probes, maps)

    def measure(self, step: int, model: Seq2Seq, board: Board) -> None:
        """Log how every head looks."""
        heads = _heads(measure(model, self._batch, self._right))
        values = {f"alignment/{head.name}/{name}": v for head in heads for name, v in head.score.values().items()}
        board.scalars(step, values)
        board.charts(_charts(heads))

    def find(self, model: Seq2Seq, step: int) -> Finding:
        """Measure every head of the trained model, and look up since when its clearest one looks so.

        Args:
            model: with the weights of a step.
            step: that one; what was logged later is of other weights.
        """
        scores = measure(model, self._batch, self._right)
        head = clearest(scores)
        history = self._history(f"alignment/{head.name}/largest") if head else []
        since = learned_since((logged, largest) for logged, largest in history if logged <= step)
        return Finding(scores, head, since)

    def leave(self, step: int, model: Seq2Seq, board: Board, head: Head | None) -> None:
        """Leave the maps of the trained model, and the film of a head on the last probe."""
        maps = [probe.watch(model) for probe in self.probes]
        if not maps[0]:
            return
        folder = self._folder / "attention"
        album.save_maps(folder, self.probes, maps)
        film = album.film(folder, self.probes[-1], head.place, head.number, self._tell) if head else None
        if film is not None:
            film.save(folder / "film.png")
            board.film(step, film)

    def _history(self, tag: str) -> Iterator[tuple[int, float]]:
        """What the run has logged under a tag, by step."""
        path = self._folder / "metrics.jsonl"
        if not path.exists():
            return
        wanted = json.dumps(tag)  # a long log has few lines of a tag
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if wanted not in line:
                continue
            with suppress(ValueError):
                values = json.loads(line)
                if tag in values:
                    yield values["step"], values[tag]
