"""The attention pictures that a run keeps as files: the maps of each logging step, the film, the last maps.

In the run folder, `attention/logged/<step>.npz` holds the maps of all probes at a step; the film is made of them.
"""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookback.checkpoint import write_whole
from lookback.figures import MapPicture, Panel, Picture
from lookback.probes import PlaceMaps, Probe, heads_panels
from lookback.run_folder import remove, stepped

FILM_WIDTH = 8  # frames side by side, at most
FILM_CELL = 14  # pixels


def arrays(name: str, probe: Probe, maps: PlaceMaps) -> dict[str, Any]:
    """Maps and their symbols under names: `NAME/read`, `NAME/written`, `NAME/right`, `NAME/cross/layer0`."""
    symbols = {"read": np.array(probe.read), "written": np.array(probe.written), "right": probe.right}
    return {f"{name}/{key}": array for key, array in (symbols | maps).items()}


def _all(probes: Sequence[Probe], maps: Sequence[PlaceMaps]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for number, (probe, found) in enumerate(zip(probes, maps, strict=True)):
        named |= arrays(f"probe{number}", probe, found)
    return named


def save_arrays(path: Path, named: Mapping[str, Any]) -> None:
    """Write arrays as .npz, whole or not at all."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **named)
    write_whole(path, buffer.getvalue())


def keep(folder: Path, step: int, probes: Sequence[Probe], maps: Sequence[PlaceMaps]) -> None:
    """Keep the maps of a logging step.

    Args:
        folder: `attention` in the run folder.
        step: updates done.
        probes: the strings.
        maps: of each.
    """
    save_arrays(folder / "logged" / f"{step:08d}.npz", _all(probes, maps))


def kept(folder: Path) -> dict[int, Path]:
    """The files of all logging steps, in order."""
    return stepped(folder / "logged", ".npz")


def forget_later(folder: Path, start: int, tell: Callable[[str], object] = print) -> None:
    """Drop what was kept after the step from which a run goes on; what cannot be removed is told."""
    for step, path in kept(folder).items():
        if step > start:
            remove(path, tell)


def film(folder: Path, probe: Probe, number: int, place: str, head: int) -> Picture | None:
    """One head on one string at every logging step, laid side by side.

    Args:
        folder: `attention` in the run folder.
        probe: the string.
        number: of the probe among those that were kept.
        place: of the head.
        head: its number there.

    Returns:
        None if no step was kept.
    """
    frames: list[NDArray[np.floating]] = []
    panels: list[Panel] = []
    steps = kept(folder)
    across = math.ceil(len(steps) / math.ceil(len(steps) / FILM_WIDTH)) if steps else 1
    for step, path in steps.items():
        with np.load(path) as named:
            if f"probe{number}/read" not in named or named[f"probe{number}/read"].tolist() != probe.read:
                continue  # of another string: the run was resumed with other probes
            edges = (len(frames) % across == 0, len(frames) < across)
            frames.append(named[f"probe{number}/{place}"][head])
            panels.append(replace(probe.panel(place, f"step {step}"), labelled=edges))
    return MapPicture(panels, across, FILM_CELL, f"{place} head {head}").draw(frames) if frames else None


def save_maps(folder: Path, probes: Sequence[Probe], maps: Sequence[PlaceMaps]) -> None:
    """Leave maps as pictures and arrays: one PNG a probe and place, its heads side by side, and all in maps.npz."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (probe, found) in enumerate(zip(probes, maps, strict=True)):
        for place, weights in found.items():
            panels = heads_panels(probe, place, range(len(weights)))
            picture = MapPicture(panels).draw(list(weights))
            picture.save(folder / f"probe{number}_{place.replace('/', '_')}.png")
    save_arrays(folder / "maps.npz", _all(probes, maps))
