"""The target on real workers, over loopback: the same tokens with and without drafts, and whatever
happens to a worker is one sentence.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf_tools
import head_files
import psutil
import pytest
from slow_network import Proxy

from localspec.cli import call
from localspec.core.endpoint import Endpoint
from localspec.core.errors import DraftIncompatibleError, WorkerError
from localspec.llama.rpc import handshake, plugin

ROOT = Path(__file__).parent.parent.parent
PROMPT = "Count from 1 to 20."
PATIENCE_S = 120.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="commands are contained on Linux only"),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the plugin, for all commands."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALSPEC_HOME", str(home))
        try:
            plugin.obtain(offline=True)
        except WorkerError as error:
            pytest.skip(str(error))
    return home


@dataclass(frozen=True)
class Machine:
    """A worker."""

    process: subprocess.Popen[str]
    address: str
    log: Path

    @property
    def devices(self) -> psutil.Process:
        """The process that has the devices."""
        (child,) = psutil.Process(self.process.pid).children()
        return child

    def says(self, text: str) -> None:
        """Wait until it does."""
        until = time.monotonic() + PATIENCE_S
        while text not in self.log.read_text():
            assert time.monotonic() < until, self.log.read_text()
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.05)


@contextlib.contextmanager
def worker(home: Path, folder: Path, *arguments: str) -> Iterator[Machine]:
    log = folder / f"worker-{time.monotonic_ns()}.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "localspec", "worker", "--threads", "1"),
                *("--bind", "127.0.0.1:0", *arguments),
            ],
            cwd=ROOT,
            env=environment(home),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            text=True,
        )
    machine = Machine(process, "", log)
    try:
        machine.says("Ctrl-C ends it")
        (address,) = re.findall(r"worker at (\S+) ", log.read_text())
        yield Machine(process, address, log)
    finally:
        process.terminate()
        process.wait(100)


@pytest.fixture(scope="module")
def running(home: Path) -> Iterator[Machine]:
    """For tests that leave it running, one after the other."""
    with worker(home, home) as made:
        yield made


@pytest.fixture
def machine(home: Path, tmp_path: Path) -> Iterator[Machine]:
    with worker(home, tmp_path) as made:
        yield made


def environment(home: Path) -> dict[str, str]:
    return os.environ | {"LOCALSPEC_HOME": str(home)}


def command(home: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "localspec", *arguments, "--threads", "1"],
        cwd=ROOT,
        env=environment(home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(home: Path, *arguments: str) -> tuple[int, str, str]:
    with command(home, *arguments) as process:
        out, err = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out, err


def reply(home: Path, rpc: str, *arguments: str) -> dict[str, object]:
    status, out, err = run(home, "run", PROMPT, "--rpc", rpc, "--json", "-t", "0", *arguments)
    assert status == 0, err
    found: dict[str, object] = json.loads(out)
    return found


def test_a_target_on_a_worker_writes_what_it_writes_plainly_there(
    home: Path, running: Machine
) -> None:
    plain = reply(home, running.address, "--drafter", "off")
    drafted = reply(home, running.address, "--draft-max", "5")
    assert drafted["tokens"] == plain["tokens"]
    stats, model = drafted["stats"], drafted["model"]
    assert isinstance(stats, dict)
    assert isinstance(model, dict)
    assert stats["accepted"] > 10
    assert running.address in model["backend"]
    status, out, err = run(
        home, "verify", "--rpc", running.address, "--limit", "1", "-n", "24", "-t", "0"
    )
    assert status == 0, out + err
    assert f"on {running.address}" in err


def test_layers_are_divided_over_several_workers(
    home: Path, running: Machine, tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        machines = [running, *(stack.enter_context(worker(home, tmp_path)) for _ in range(2))]
        proxies = [
            stack.enter_context(Proxy(("127.0.0.1", int(m.address.rpartition(":")[2]))))
            for m in machines
        ]
        found = reply(home, ",".join(proxy.name for proxy in proxies), "--draft-max", "4")
        assert str(found["text"]).startswith("1, 2, 3")
        assert all(proxy.traffic.to_server > 100_000 for proxy in proxies), "one had no layers"


def test_heads_draft_for_a_target_on_a_worker_if_they_need_none_of_its_matrices(
    home: Path, running: Machine, tmp_path: Path
) -> None:
    target = gguf_tools.write_llama(tmp_path / "dense.gguf", layers=4, seed=3, context=1024)
    own = head_files.write_eagle(tmp_path / "own.gguf", own=True)
    borrowing = head_files.write_eagle(tmp_path / "borrowing.gguf")
    given = ("-m", str(target), "-n", "8", "--draft-max", "3", "-d")
    stats = reply(home, running.address, *given, str(own))["stats"]
    assert isinstance(stats, dict)
    assert "eagle3" in stats["by_drafter"]
    status, _, err = run(*(home, "run", PROMPT, "--rpc", running.address, *given, str(borrowing)))
    assert status == DraftIncompatibleError.exit_code
    assert "borrowing.gguf uses the output matrix of its target, which workers have" in err


SLOWLY = ("run", PROMPT, "-t", "0", "--drafter", "off")
"""A reply of many passes."""


def far(machine: Machine) -> Proxy:
    """A worker with a round trip so long that a reply takes some seconds."""
    return Proxy(("127.0.0.1", int(machine.address.rpartition(":")[2])), delay_s=0.03)


def begun(process: subprocess.Popen[str]) -> str:
    """The beginning of a reply, once it is there."""
    assert process.stdout is not None
    return process.stdout.read(8)


def lost(process: subprocess.Popen[str], text: str) -> tuple[str, str]:
    """The output of a command whose worker was lost."""
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1, err
    text += out
    assert text.startswith("1, 2, 3"), text
    (sentence,) = [line for line in err.splitlines() if "a worker of --rpc" in line]
    assert "Traceback" not in err
    return text, sentence


def test_a_worker_that_is_killed_ends_the_reply_and_serves_the_next_one(
    home: Path, machine: Machine
) -> None:
    with far(machine) as proxy, command(home, *SLOWLY, "--rpc", proxy.name) as process:
        text = begun(process)
        machine.devices.send_signal(signal.SIGKILL)
        _, sentence = lost(process, text)
    assert "has ended or cannot be reached any more" in sentence
    assert "start `localspec worker` there again" in sentence
    machine.says("it is started again")
    assert str(reply(home, machine.address)["text"]).startswith("1, 2, 3")


def test_of_two_workers_the_one_that_has_gone_is_named(
    home: Path, running: Machine, tmp_path: Path
) -> None:
    with worker(home, tmp_path) as other, far(running) as one, far(other) as two:
        stays, gone = one.name, two.name
        with command(home, *SLOWLY, "--rpc", f"{stays},{gone}") as process:
            text = begun(process)
            two.cut()
            _, sentence = lost(process, text)
    assert gone in sentence
    assert stays not in sentence


def test_a_worker_that_hangs_is_not_waited_for_without_end(home: Path, running: Machine) -> None:
    arguments = (*SLOWLY, "--rpc-timeout", "3")
    with far(running) as proxy, command(home, *arguments, "--rpc", proxy.name) as process:
        text = begun(process)
        devices = running.devices
        devices.suspend()
        try:
            _, sentence = lost(process, text)
        finally:
            devices.resume()
    assert "has not answered for too long" in sentence


def test_a_connection_that_is_cut_or_silent_is_told(home: Path, running: Machine) -> None:
    with far(running) as proxy:
        arguments = (*SLOWLY, "--rpc-timeout", "3", "--rpc", proxy.name)
        with command(home, *arguments) as process:
            text = begun(process)
            proxy.cut()
            _, sentence = lost(process, text)
            assert "has ended" in sentence
        with command(home, *arguments) as process:
            text = begun(process)
            proxy.stall()
            _, sentence = lost(process, text)
            assert "has not answered" in sentence


def test_a_worker_serves_one_client_and_the_next_one_is_told(machine: Machine) -> None:
    """Commands tell what `handshake.ask` raises, as for a worker that has ended."""
    endpoint = Endpoint.parse(machine.address)
    with socket.create_connection((endpoint.host, endpoint.port)):
        machine.says("a client has connected")
        with pytest.raises(WorkerError, match="serves another client") as told:
            handshake.ask(endpoint, 1.0)
    assert f"no answer from {machine.address} within 1 s" in str(told.value)


def test_the_plain_end_of_a_worker_is_quiet_and_frees_its_port(home: Path, tmp_path: Path) -> None:
    with worker(home, tmp_path) as machine:
        devices = machine.devices
        machine.process.send_signal(signal.SIGINT)
        assert machine.process.wait(100) == 130
        assert not devices.is_running()
        assert machine.log.read_text().splitlines()[-1] == "localspec: the worker has ended"
        status, _, err = run(home, "run", PROMPT, "--rpc", machine.address)
        assert status == 1
        assert f"nothing listens at {machine.address}; start `localspec worker` there" in err
        with worker(home, tmp_path, "--bind", machine.address):
            pass


def test_a_port_in_use_is_refused(home: Path, running: Machine) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "localspec", "worker", "--bind", running.address],
        cwd=ROOT,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "is in use" in done.stderr
    assert not done.stdout


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("0.0.0.0", "--i-trust-this-network"),
        ("192.0.2.1:5000", "--i-trust-this-network"),
        ("nonsense:x", "port"),
    ],
)
def test_an_open_address_is_refused(
    address: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["worker", "--bind", address]) == 2
    out, err = capsys.readouterr()
    assert reason in err
    assert not out
