"""Who started the processes of a run: torchrun and SLURM tell each of them how many there are.

Where a recipe leaves devices and nodes open, their word decides: on a CPU Lightning would otherwise train alone in
every process, and on several nodes it would have to be told how many.
"""

import os
from dataclasses import dataclass

from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment

from motionformer.errors import TrainingError
from motionformer.training.recipe import EnginePart

Devices = int | str | list[int]
TORCHRUN, SLURM = "torchrun", "SLURM"


@dataclass(frozen=True)
class Launch:
    """Processes that a launcher started, the same number on every node."""

    by: str
    processes: int
    nodes: int

    @property
    def per_node(self) -> int:
        return self.processes // self.nodes


def find_launch() -> Launch | None:
    """What a launcher says of this process and its siblings; None where a person started it alone."""
    if TorchElasticEnvironment.detect():  # first: torchrun may run inside a job of SLURM
        world, local = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
        return _even(TORCHRUN, world, world // local)
    if SLURMEnvironment.detect():
        return _even(SLURM, int(os.environ["SLURM_NTASKS"]), int(os.environ.get("SLURM_NNODES", "1")))
    return None


def devices_and_nodes(engine: EnginePart, launch: Launch | None) -> tuple[Devices, int]:
    """What to ask Lightning for: the recipe's word, the launcher's where it has none, an error where they differ."""
    devices = parse_devices(engine.devices)
    if launch is None:
        return devices, engine.nodes
    asked = launch.per_node if devices == "auto" else len(devices) if isinstance(devices, list) else devices
    if asked != launch.per_node or engine.nodes not in (1, launch.nodes):
        raise TrainingError(
            f"{launch.by} started {launch.per_node} processes on each of {launch.nodes} nodes, but "
            f"engine.devices={engine.devices} and engine.nodes={engine.nodes}. Leave both out of the recipe, or start "
            "as many processes."
        )
    return launch.per_node if devices == "auto" else devices, launch.nodes


def parse_devices(devices: str) -> Devices:
    """`auto`, a number, or a list of numbers."""
    if devices == "auto":
        return devices
    try:
        numbers = [int(part) for part in devices.split(",")]
    except ValueError as error:
        raise TrainingError(f"engine.devices={devices}: write auto, a number, or a list such as 0,1.") from error
    return numbers if "," in devices else numbers[0]


def _even(by: str, processes: int, nodes: int) -> Launch:
    if processes % nodes:
        raise TrainingError(f"{by} started {processes} processes on {nodes} nodes; start as many on each.")
    return Launch(by, processes, nodes)
