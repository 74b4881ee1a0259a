"""FSDP: every process keeps a share of the weights, gradients and moments, and gathers a block when it needs it.

PyTorch's `fully_shard` by Lightning's `ModelParallelStrategy`, which also runs on CPUs. Checkpoints hold whole weights.
"""

from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from motionformer.models.motionformer import Motionformer


def sharded_strategy(processes: int) -> ModelParallelStrategy:
    """All processes hold shares of one model; none is a tensor's part."""
    return ModelParallelStrategy(
        data_parallel_size=processes, tensor_parallel_size=1, save_distributed_checkpoint=False
    )


def shard(model: Motionformer, mesh: DeviceMesh) -> None:
    """Deal the weights out to the processes, once: a block at a time, and what lies around the blocks together."""
    if isinstance(model, FSDPModule):
        return
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
