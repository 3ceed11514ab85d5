"""Which node trains where."""

from __future__ import annotations

from netdfl.core.errors import MachineError


def spread(device: str, num_gpus: int, num_nodes: int) -> list[str]:
    """A device per node: `auto` takes the GPUs in turn where there are any, else the CPU.

    Raises:
        MachineError: the scenario asks for a GPU that this machine does not have.
    """
    if device == "cpu" or (device == "auto" and num_gpus == 0):
        return ["cpu"] * num_nodes
    wanted = int(device.removeprefix("cuda:")) if device.startswith("cuda:") else None
    if num_gpus == 0 or (wanted is not None and wanted >= num_gpus):
        raise MachineError(
            f"task.device is {device!r}, and this machine has {num_gpus} GPUs that PyTorch can use; "
            "write auto or cpu, or install a CUDA build of PyTorch"
        )
    return [f"cuda:{i % num_gpus if wanted is None else wanted}" for i in range(num_nodes)]
