"""Devices of workers, by llama.cpp's RPC plugin: as a client of them, and as one that serves.

The devices are handed to each model that is to use them. They are not registered with llama.cpp,
so that models and lists of devices elsewhere in the process do not have them.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.core.errors import WorkerError
from localspec.core.processes.activity import doing
from localspec.llama import library
from localspec.llama.devices import accelerators, full_cards
from localspec.llama.library import ggml_function
from localspec.llama.rpc.handshake import Worker
from localspec.llama.rpc.plugin import trusted
from localspec.llama.rpc.watch import Watch

_P, _SIZE = ctypes.c_void_p, ctypes.c_size_t
_MEMORY = ctypes.CFUNCTYPE(None, _P, ctypes.POINTER(_SIZE), ctypes.POINTER(_SIZE))
_CPU = 0
"""GGML_BACKEND_DEVICE_TYPE_CPU."""


@dataclass(frozen=True, slots=True)
class RemoteDevices:
    """The devices of all workers, connected."""

    workers: tuple[Worker, ...]
    handles: tuple[int, ...]
    """ggml_backend_dev_t of each device, in the order of the workers."""
    watch: Watch
    held: list[int]
    """A ggml_backend_t of each worker: while there is one, its connection stays open."""

    @property
    def array(self) -> Any:
        """The devices for a model that uses them and this machine's GPUs, in llama.cpp's own order,
        ended by null. It must outlive the loading.
        """
        every = [*self.handles, *local_handles(full_cards())]
        return (_P * (len(every) + 1))(*every, None)

    def close(self) -> None:
        """Let the workers go, after all models on them. May be called twice."""
        free = ggml_function("ggml_backend_free", None, _P)
        with self.watch.waiting():
            while self.held:
                free(self.held.pop())

    def __str__(self) -> str:
        """Their addresses."""
        return ", ".join(str(worker.endpoint) for worker in self.workers)


_MESSAGE = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
_told: list[Any] = []
"""What llama.cpp calls where it gives up; it may do so until the process ends."""


def connect(plugin: Path, workers: Sequence[Worker], limit: float | None = None) -> RemoteDevices:
    """Connect to workers that have just answered; ``limit`` is that of `Watch`, in seconds.

    Raises:
        WorkerError: the plugin cannot be loaded, or a worker has no devices.
    """
    watch = Watch(tuple(worker.endpoint for worker in workers), limit)
    add = _procedure(plugin, b"ggml_backend_rpc_add_server", _P, ctypes.c_char_p)
    count = ggml_function("ggml_backend_reg_dev_count", _SIZE, _P)
    get = ggml_function("ggml_backend_reg_dev_get", _P, _P, _SIZE)
    hold = ggml_function("ggml_backend_dev_init", _P, _P, ctypes.c_char_p)
    handles, held = list[int](), list[int]()
    for worker in workers:
        doing(f"connecting to the worker {worker.endpoint}")
        with watch.waiting():
            registry = add(str(worker.endpoint.resolved()).encode())
        if not registry or count(registry) != len(worker.devices):
            raise WorkerError(f"the worker at {worker.endpoint} does not offer its devices")
        handles += [get(registry, i) for i in range(count(registry))]
        with watch.waiting():
            held.append(hold(handles[-1], None))
    watch.connected()
    _told.append(_MESSAGE(watch.aborting))
    ggml_function("ggml_set_abort_callback", _P, _P)(ctypes.cast(_told[-1], _P))
    return RemoteDevices(tuple(workers), tuple(handles), watch, held)


def serve(
    plugin: Path,
    address: str,
    threads: int,
    cache: Path | None,
    available: Callable[[], tuple[int, int]],
) -> None:
    """Serve this machine's devices at an address: its GPUs, or the processor where there is none.
    Blocks until the socket fails; llama.cpp prints to stdout and stderr.

    ``cache`` is a folder for weights that were sent, by which they are found again. ``available``
    gives free and total bytes of the host's memory.

    Raises:
        WorkerError: the plugin cannot be loaded.
    """
    start = _procedure(
        plugin,
        b"ggml_backend_rpc_start_server",
        None,
        *(ctypes.c_char_p, ctypes.c_char_p, _SIZE, _SIZE, ctypes.POINTER(_P)),
    )
    reports = _reporting(available)  # ctypes callbacks live as long as they are referenced
    handles = local_handles(full_cards()) or [_processor(reports)]
    array = (_P * len(handles))(*handles)
    folder = None if cache is None else os.fsencode(cache)
    start(address.encode(), folder, threads, len(handles), array)


@functools.cache
def _load(plugin: Path) -> Any:
    """The plugin's registry.

    Raises:
        WorkerError: llama.cpp does not take it, or it is not to be trusted.
    """
    library.start()
    library.forget_errors()
    load = ggml_function("ggml_backend_load", _P, ctypes.c_char_p)
    registry = load(os.fsencode(trusted(plugin)))
    if not registry:
        reason = (library.errors() or ["no reason given"])[0]
        raise WorkerError(
            f"llama.cpp does not load the RPC plugin ({reason}); delete {plugin.parent} and start "
            "again"
        )
    return registry


def _procedure(plugin: Path, name: bytes, result: Any, *arguments: Any) -> Any:
    find = ggml_function("ggml_backend_reg_get_proc_address", _P, _P, ctypes.c_char_p)
    address = find(_load(plugin), name)
    if not address:
        raise WorkerError(f"the RPC plugin in {plugin.parent} lacks {name.decode()}")
    return ctypes.CFUNCTYPE(result, *arguments)(address)


def _all_handles() -> list[int]:
    count = ggml_function("ggml_backend_dev_count", _SIZE)
    get = ggml_function("ggml_backend_dev_get", _P, _SIZE)
    return [get(i) for i in range(count())]


def local_handles(without: Collection[str] = ()) -> list[int]:
    """llama.cpp's handles of the devices in `localspec.llama.devices.accelerators`, ``without``
    those of these names.
    """
    name = ggml_function("ggml_backend_dev_name", ctypes.c_char_p, _P)
    wanted = {device.name for device in accelerators()} - {*without}
    return [h for h in _all_handles() if (name(h) or b"?").decode("utf-8", "replace") in wanted]


def _processor(reports: Any) -> int:
    """The processor as a device, which clients are told the memory of that ``reports`` gives."""
    kind = ggml_function("ggml_backend_dev_type", ctypes.c_int, _P)
    handle = next(h for h in _all_handles() if kind(h) == _CPU)
    ctypes.cast(handle, ctypes.POINTER(_DeviceInterface)).contents.get_memory = reports
    return handle


class _DeviceInterface(ctypes.Structure):
    """ggml-backend-impl.h: the beginning of struct ggml_backend_device_i."""

    _fields_ = (("get_name", _P), ("get_description", _P), ("get_memory", _MEMORY))


def _reporting(available: Callable[[], tuple[int, int]]) -> Any:
    def memory(_device: int, free: Any, total: Any) -> None:
        free[0], total[0] = available()

    return _MEMORY(memory)
