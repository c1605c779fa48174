"""What results depend on besides the configuration: the code, the machine, its memory."""

import hashlib
import platform
import resource
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

import torch

LIBRARIES = ("numpy", "hydra-core", "omegaconf", "tensorboard", "matplotlib")  # torch has an entry of its own
PACKAGE = Path(__file__).resolve().parent


def machine() -> dict[str, str | int]:
    """What the numbers depend on besides the code."""
    return {
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "libraries": ", ".join(f"{name} {version(name)}" for name in LIBRARIES),
    }


def bits_depend_on(device: str, processes: int) -> dict[str, str | int]:
    """What the last bits of a training depend on besides code and configuration."""
    return {
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "device": device,
        "processes": processes,
    }


def differences(before: object, now: Mapping[str, object]) -> str:
    """What has changed since then, in a few words; nothing if nobody knows."""
    was = before if isinstance(before, Mapping) else now
    return ", ".join(f"{name} {was.get(name)}, now {now[name]}" for name in now if was.get(name) != now[name])


def processor() -> str:
    """The processor's name, as the system tells it."""
    listing = Path("/proc/cpuinfo")  # Linux only; elsewhere `platform` knows
    lines = listing.read_text(encoding="utf-8").splitlines() if listing.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


@cache
def code_version() -> str:
    """A digest of the package's source files: the same for the same code, with or without git."""
    digest = hashlib.blake2b(digest_size=6)
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def forget_peak_memory() -> None:
    """Let `peak_memory_mib` count from now on, where the system can (Linux)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_memory_mib() -> float:
    """The most memory that this process has held so far, in MiB. Linux counts in KiB, macOS in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
