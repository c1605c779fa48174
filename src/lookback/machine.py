"""What measured numbers depend on besides the code."""

import platform
import resource
import sys
from pathlib import Path

import torch


def machine() -> dict[str, str | int]:
    """What the numbers depend on besides the code."""
    return {
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
    }


def processor() -> str:
    """The processor's name, as the system tells it."""
    listing = Path("/proc/cpuinfo")  # Linux only; elsewhere `platform` knows
    lines = listing.read_text(encoding="utf-8").splitlines() if listing.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def peak_memory_mib() -> float:
    """The most memory that this process has held so far, in MiB. Linux counts in KiB, macOS in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
