"""Joules that a machine says it has used."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import final

import torch

POWERCAP = Path("/sys/class/powercap")


class Meter(ABC):
    """Counts joules from one reading to the next."""

    name: str

    @abstractmethod
    def joules(self) -> float:
        """Since whenever the machine began to count."""


@final
class PackageMeter(Meter):
    """Intel's and AMD's own counters of whole processors (RAPL), on Linux."""

    name = "RAPL, whole processors"

    def __init__(self, domains: list[Path]) -> None:
        self.domains = domains
        self._turns = [0] * len(domains)
        self._last = [self._read(one) for one in domains]

    def joules(self) -> float:
        total = 0
        for place, domain in enumerate(self.domains):
            now = self._read(domain)
            if now < self._last[place]:
                self._turns[place] += 1
            self._last[place] = now
            whole = int((domain / "max_energy_range_uj").read_text())
            total += now + self._turns[place] * whole
        return total * 1e-6

    def _read(self, domain: Path) -> int:
        return int((domain / "energy_uj").read_text())


@final
class CardMeter(Meter):
    """NVIDIA's counter of a whole card (NVML), through the package nvidia-ml-py."""

    name = "NVML, whole card"

    def __init__(self, index: int) -> None:
        import pynvml  # pyright: ignore[reportMissingImports]

        pynvml.nvmlInit()
        self._nvml = pynvml
        self._card = pynvml.nvmlDeviceGetHandleByIndex(index)
        self.joules()

    def joules(self) -> float:
        return self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._card) * 1e-3


def find_meter(device: torch.device, folder: Path = POWERCAP) -> tuple[Meter | None, str]:
    """What counts on ``device``, and in words what it is or why there is none."""
    if device.type == "cuda":
        try:
            meter = CardMeter(device.index or 0)
        except ImportError:
            return None, "energy: not measured (pip install nvidia-ml-py)"
        except Exception as error:  # the library's own errors have no common base without it
            return None, f"energy: not measured (NVML: {error})"
        return meter, f"energy: {meter.name}"
    domains = [one for one in sorted(folder.glob("intel-rapl:*")) if one.name.count(":") == 1]
    if not domains:
        return None, "energy: not measured (this machine has no RAPL counters)"
    try:
        meter = PackageMeter(domains)
        meter.joules()
    except (OSError, ValueError) as error:
        return None, f"energy: not measured (RAPL cannot be read: {error})"
    return meter, f"energy: {meter.name}"
