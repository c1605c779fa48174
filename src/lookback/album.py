"""The attention pictures that a run keeps as files: the maps of each logging step, the film, the last maps.

In the run folder, `attention/logged/<step>.npz` holds the maps of all probes at a step; the film is made of them.
"""

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookback.figures import MapPicture, Picture
from lookback.files import write_whole
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


def film(
    folder: Path, probe: Probe, place: str, head: int, tell: Callable[[str], object] = print
) -> Picture | None:
    """One head on one string at every logging step, laid side by side.

    Args:
        folder: `attention` in the run folder.
        probe: the string; steps at which it was not among the probes are left out.
        place: of the head.
        head: its number there.
        tell: gets a line for each file that cannot be read, whose step is left out.

    Returns:
        None if no step was kept.
    """
    found: dict[int, NDArray[np.floating]] = {}
    for step, path in kept(folder).items():
        try:
            weights = _logged(path, probe, place)
            found |= {} if weights is None else {step: weights[head]}
        except Exception as error:  # zipfile, zlib and numpy each have their own
            tell(f"step {step} is not in the film: {path} cannot be read ({type(error).__name__}: {error})")
    if not found:
        return None
    across = math.ceil(len(found) / math.ceil(len(found) / FILM_WIDTH))
    panels = [
        replace(probe.panel(place, f"step {step}"), labelled=(at % across == 0, at < across))
        for at, step in enumerate(found)
    ]
    return MapPicture(panels, across, FILM_CELL, f"{place} head {head}").draw(list(found.values()))


def _logged(path: Path, probe: Probe, place: str) -> NDArray[np.floating] | None:
    """The maps of a place on a string at a logging step, (heads, query, key); None if it was no probe then."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as named:  # a damaged file is closed as well
        for name in named:
            if name.endswith("/read") and named[name].tolist() == probe.read:
                weights: NDArray[np.floating] = named[f"{name.removesuffix('/read')}/{place}"]
                wanted = (len(probe.written), len(probe.read))
                if weights.shape[1:] != wanted:
                    raise ValueError(f"maps must be of shape {wanted}, but are {weights.shape[1:]}")
                return weights
    return None


def remove_pictures(folder: Path, prefix: str) -> None:
    """Remove the pictures of an earlier look, so that none stands beside those of a new one.

    Args:
        folder: of the pictures.
        prefix: a regular expression of what stands before the place in their names.
    """
    for path in folder.glob("*.png"):
        if re.fullmatch(rf"({prefix})(encoder_self|decoder_self|cross)_layer[0-9]+\.png", path.name):
            path.unlink(missing_ok=True)


def save_maps(folder: Path, probes: Sequence[Probe], maps: Sequence[PlaceMaps]) -> None:
    """Leave maps as pictures and arrays: one PNG a probe and place, its heads side by side, and all in maps.npz.

    Pictures that are there of other probes or places go.
    """
    folder.mkdir(parents=True, exist_ok=True)
    remove_pictures(folder, "probe[0-9]+_")
    for number, (probe, found) in enumerate(zip(probes, maps, strict=True)):
        for place, weights in found.items():
            panels = heads_panels(probe, place, range(len(weights)))
            picture = MapPicture(panels).draw(list(weights))
            picture.save(folder / f"probe{number}_{place.replace('/', '_')}.png")
    save_arrays(folder / "maps.npz", _all(probes, maps))
