"""CUDA tensors that the checker reads where they lie, by the IPC handle of their allocation: no byte of them goes through the pipe.

Where it does not work (memory of expandable segments, another GPU than the checker's, containers that hide it) they go through the pipe.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable
from typing import Any

from . import _bundle

#: Smaller tensors cost less through the pipe.
LEAST = 1 << 20
#: Nothing is shared at all: ``QASSAY_IPC=0``, or no driver.
OFF = os.environ.get("QASSAY_IPC") == "0"
#: Ids of the GPUs whose memory the checker could not read: it sees the first only, or they are hidden from it.
REFUSED: set[str] = set()


def refused(parts: Iterable[Any]) -> None:
    """Shares nothing more of the GPUs of these parts."""
    REFUSED.update(part.where["gpu"] for part in parts if isinstance(part, Shared))


class Shared:
    """The bytes of a tensor that stays on its GPU, which lives as long as this: another's bytes would have its handle."""

    def __init__(self, tensor: Any, where: dict[str, Any]) -> None:
        self.tensor, self.where, self.data = tensor, where, None
        self.nbytes = tensor.numel() * tensor.element_size()

    def fetch(self):
        """The same bytes in the memory of this process."""
        if self.data is None:
            self.data = _bundle.array(self.tensor)[0]
        return self.data


def here(part: Any) -> Any:
    """A part of a bundle in the memory of this process."""
    return part.fetch() if isinstance(part, Shared) else part


def share(x: Any) -> tuple[Shared, str, list[int]] | None:
    """A large CUDA tensor, its dtype and its shape; None where the checker cannot read it."""
    if OFF or not getattr(x, "is_cuda", False) or not hasattr(x, "data_ptr") or "strided" not in str(x.layout):
        return None
    if x.numel() * x.element_size() < LEAST:
        return None
    torch, x = sys.modules["torch"], x.detach()
    if x.is_conj() or x.is_neg():
        return None
    x = x.contiguous()
    with torch.cuda.device(x.device):
        torch.cuda.current_stream().synchronize()
        where = handle(x.data_ptr(), x.device.index)
    return None if where is None or where["gpu"] in REFUSED else (Shared(x, where), str(x.dtype).removeprefix("torch."), [int(n) for n in x.shape])


def handle(pointer: int, device: int) -> dict[str, Any] | None:
    """Where other processes find this memory; None where the driver gives no handle for it."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        global OFF
        OFF = True
        return None
    base, size, ordinal = ctypes.c_uint64(), ctypes.c_size_t(), ctypes.c_int()
    memory, gpu = (ctypes.c_ubyte * 64)(), (ctypes.c_ubyte * 16)()
    calls = (
        lambda: cuda.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(pointer)),
        lambda: cuda.cuIpcGetMemHandle(memory, base),
        lambda: cuda.cuDeviceGet(ctypes.byref(ordinal), device),
        lambda: cuda.cuDeviceGetUuid_v2(gpu, ordinal),
    )
    if any(call() != 0 for call in calls):
        return None
    return {"handle": bytes(memory).hex(), "offset": pointer - base.value, "gpu": bytes(gpu).hex()}
