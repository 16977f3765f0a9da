"""The build of llama.cpp, and whether it computes correctly on this processor."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Generator

from localspec.compiling import own_build
from localspec.compiling.own_build import Build
from localspec.core import kernel
from localspec.core.errors import LocalspecError
from localspec.core.kernel import build as build_kernel
from localspec.doctor.findings import Finding
from localspec.loading import own_kernels, soundness
from localspec.loading.soundness import Soundness


def check() -> Generator[Finding, None, bool]:
    """Yield one finding. Returns whether the library may be loaded into this process.

    Where nothing could be proved, it may: what is wrong then shows better in the next findings.
    """
    try:
        found = soundness.proved()
    except LocalspecError as error:
        yield Finding("build", "note", str(error))
        return True
    yield finding(found, own_build.build())
    yield Finding("kernels", "ok", own_kernels.state())
    return found.sound


def finding(found: Soundness, built: Build | None) -> Finding:
    """The step of the ladder of the current build, and why it is not a higher one."""
    details = {
        "sound": found.sound,
        "extra_buffers": found.extra_buffers,
        "rung": built.rung if built else None,
        "failed": built.failed if built else {},
        "row_kernel": kernel.loaded() is not None,
    }
    how = f"built {built.rung}" if built else "built by pip"
    if own_build.used():
        how = "built for this machine by `localspec build-llama`"
    reasons = [f"{rung} failed: {why}" for rung, why in built.failed.items()] if built else []
    if passed := own_build.passed_over():
        reasons.append(passed)
    if not found.sound:
        text = f"{how}, and not sound on this processor: {found.failed_plain}"
        return Finding("build", "broken", text, own_build.rebuild_command(), details)
    if not found.extra_buffers:
        reasons.append(f"with repacked weights it failed: {found.failed}")
        how += ", and models are loaded without repacked weights"
    if not details["row_kernel"]:
        samples = "numpy samples"
        if refused := kernel.refusal():
            samples += f", since {refused}"
        elif os.access(sys.prefix, os.W_OK):  # else a command that its reader may not give
            command = f"{shlex.quote(sys.executable)} -m {build_kernel.__name__}"
            samples += f", a little slower than after `{command}`"
        reasons.append(samples)
    text = f"{how}; its logits agree with numpy on this processor"
    return Finding("build", "ok", "; ".join([text, *reasons]), details=details)
