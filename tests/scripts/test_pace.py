"""What remains of a build: played at several speeds, beside loads that rise and fall."""

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import llama_pace
import pytest
from llama_pace import Expected, Pace, Used

JOBS = 2
SMALL = llama_pace._OTHERS
FILES = {
    f"src/{name}": seconds
    for number, slow in enumerate(llama_pace.WEIGHTS.items())
    for name, seconds in ((f"small-{number}.cpp.o", SMALL), slow)
}
"""Processor seconds of the files that the table knows, and of as many small ones."""
WORK = sum(FILES.values())


class Build:
    """A build by two jobs, and its pace. Each gets ``share(now)`` of a core."""

    def __init__(
        self, folder, share: Callable[[float], float], told: float, *, proc=True, odd=1.0
    ) -> None:
        """``told`` is how long the build was said to take, by the time of it alone; ``odd`` how
        much longer every other file takes than the table says; without ``proc`` the system does
        not tell what processes used. The probe took a fifth longer than it should have.
        """
        self.now, self.share, self.ended = 0.0, share, 0.0
        costs = [seconds * odd ** (n % 2) for n, seconds in enumerate(FILES.values())]
        self.waiting = list(zip(FILES, costs, strict=True))
        self.running: list[list] = []
        folder.mkdir()
        edges = [f"build {name}: CXX_COMPILER__llama source.cpp || order\n" for name in FILES]
        (folder / "build.ninja").write_text("".join(edges))
        alone = WORK / JOBS
        expected = Expected(WORK, 1.2, alone, alone * told)
        used = self._used if proc else lambda _: None
        self.pace = Pace(expected, folder, clock=lambda: self.now, used=used)

    def _used(self, _root: int) -> Used:
        return Used(self.ended, sum(done for _, _, done in self.running))

    def seconds(self) -> Iterator[float]:
        """The moments of the build, a second apart."""
        total, made = len(self.waiting), itertools.count(1)
        for quarter in itertools.count(1):
            while self.waiting and len(self.running) < JOBS:
                self.running.append([*self.waiting.pop(0), 0.0])
            if not self.running:
                return
            for one in self.running:
                one[2] += self.share(self.now) / 4
            self.now = quarter / 4
            for one in [one for one in self.running if one[2] >= one[1]]:
                self.running.remove(one)
                self.ended += one[2]
                self.pace.read(f"[{next(made)}/{total}] c++ -MD -o {one[0]} -c /a/source.cpp\n")
            if quarter % 4 == 0:
                yield self.now

    def errors(self) -> dict[float, float]:
        """By how much what was said to remain was wrong, by the moment; without the last tenth, in
        which files end one by one.
        """
        said = {now: self.pace.left() for now in self.seconds()}
        assert self.pace.left() == 0
        end = self.now
        return {now: left / (end - now) - 1 for now, left in said.items() if now < 0.9 * end}


@pytest.mark.parametrize("told", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("speed", [1.0, 0.2])
def test_after_a_minute_it_is_right_whatever_was_told_before(tmp_path, told, speed):
    errors = Build(tmp_path / "build", lambda _: speed, told).errors()
    late = [abs(error) for now, error in errors.items() if now > 60]
    assert len(late) > 30
    assert max(late) < 0.25


@pytest.mark.parametrize(("before", "after"), [(1.0, 0.25), (0.25, 1.0)])
def test_it_is_right_a_minute_after_the_load_has_changed(tmp_path, before, after):
    build = Build(tmp_path / "build", lambda now: before if now < 70 else after, 1.0)
    errors = build.errors()
    late = [abs(error) for now, error in errors.items() if now > 130]
    assert len(late) > 15
    assert max(late) < 0.25


def test_another_compiler_takes_other_times(tmp_path):
    errors = Build(tmp_path / "build", lambda _: 0.5, 1.0, odd=1.4).errors()
    assert max(abs(error) for now, error in errors.items() if now > 60) < 0.25


def test_where_the_system_tells_nothing_of_processes_finished_files_do(tmp_path):
    errors = Build(tmp_path / "build", lambda _: 0.3, 0.5, proc=False).errors()
    halves = [abs(error) for now, error in errors.items() if now > 150]
    assert sum(halves) / len(halves) < 0.25


def test_a_build_that_goes_on_has_less_to_do(tmp_path):
    folder = tmp_path / "build"
    build = Build(folder, lambda _: 1.0, 1.0)
    for name, _ in build.waiting[:20]:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    used = build.waiting[20][1]
    pace = Pace(build.pace._expected, folder, clock=lambda: 20.0, used=lambda _: Used(used, 0.0))
    pace.read(f"[1/{len(FILES) - 20}] c++ -o {build.waiting[20][0]} -c x\n")
    rest = sum(seconds for _, seconds in build.waiting[21:])
    assert pace.left() == pytest.approx(rest / JOBS, rel=0.02)


def test_what_is_linked_at_the_end_is_no_new_beginning(tmp_path):
    (tmp_path / "build.ninja").write_text("build a.cpp.o: CXX s\nbuild b.cpp.o: CXX s\n")
    used = [Used(0.0, 0.0)]
    pace = Pace(Expected(100.0, 1.0, 50.0, 50.0), tmp_path, lambda: 0.0, lambda _: used[0])
    pace.read("[1/4] c++ -o a.cpp.o -c a.cpp\n")
    used[0] = Used(50.0, 200.0)
    assert pace.left() == pytest.approx(5.0, rel=0.1), "the file takes longer, and is not done"
    pace.read("[2/4] c++ -o b.cpp.o -c b.cpp\n")
    assert pace.left() == 0
    pace.read("[3/4] c++ -shared -o libllama.so a.cpp.o b.cpp.o\n")
    assert pace.left() == 0


def test_before_ninja_begins_it_is_what_was_told(tmp_path):
    now = [0.0]
    pace = Pace(Expected(100.0, 1.0, 50.0, 60.0), tmp_path, clock=lambda: now[0])
    assert pace.left() == 60
    pace.read("-- Configuring done\n")
    now[0] = 10
    assert pace.left() == 50
    now[0] = 70
    assert pace.left() is None
    assert Pace(Expected(100.0, 0.0, 0.0, 0.0), tmp_path).left() is None


def test_files_for_a_device_share_what_those_for_the_processor_leave(tmp_path):
    names = ["a.cu.o", "b.cu.o", "small.cpp.o"]
    (tmp_path / "build.ninja").write_text("".join(f"build {n}: CXX s\n" for n in names))
    used = [Used(0.0, 0.0)]
    pace = Pace(Expected(100 + SMALL, 1.0, 50.0, 50.0), tmp_path, lambda: 0.0, lambda _: used[0])
    pace.read("[1/3] nvcc -o a.cu.o -c a.cu\n")
    used[0] = Used(50.0, 0.0)
    assert pace.left() == pytest.approx((50 + SMALL) / 2)


def test_kernels_that_have_many_instances_weigh_more_than_other_files_for_a_device(tmp_path):
    names = ["mmq-instance-q4_0.cu.o", "add.cu.o"]
    (tmp_path / "build.ninja").write_text("".join(f"build {n}: CXX s\n" for n in names))
    used = [Used(0.0, 0.0)]
    pace = Pace(Expected(128.0, 1.0, 64.0, 64.0), tmp_path, lambda: 0.0, lambda _: used[0])
    pace.read("[1/2] nvcc -o add.cu.o -c add.cu\n")
    used[0] = Used(8.0, 0.0)
    assert pace.left() == pytest.approx(120)  # one file is compiled by one core


def test_steps_that_make_no_objects_count_the_same(tmp_path):
    (tmp_path / "build.ninja").write_text("build a.cpp.o: CXX s\n")
    used = Used(40.0, 0.0)
    pace = Pace(Expected(100.0, 1.0, 50.0, 50.0), tmp_path, lambda: 0.0, lambda _: used)
    for number in range(1, 5):
        pace.read(f"[{number}/10] glslc -o {number}.spv\n")
    assert pace.left() == pytest.approx(60 / 2)


SPIN = "import time\nwhile time.process_time() < 0.3: pass\n"
BUILDING = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {SPIN!r}])
subprocess.run([sys.executable, "-c", {SPIN!r} + "time.sleep(60)"])
"""
"""One file is compiled, then another, which does not end."""


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc")
@pytest.mark.parametrize("builder", ["ninja", "other"])
def test_the_processor_time_of_a_step_is_that_of_all_its_processes(tmp_path, builder):
    path = tmp_path / builder
    path.symlink_to(sys.executable)
    program = f"import subprocess; subprocess.run([{str(path)!r}, '-c', {BUILDING!r}])"
    process = subprocess.Popen([sys.executable, "-c", program], process_group=0)
    try:
        deadline = time.monotonic() + 60
        wanted = Used(0.25, 0.25) if builder == "ninja" else Used(0.0, 0.55)
        while True:
            used = llama_pace.used_below(process.pid) or Used(0.0, 0.0)
            if used.ended >= wanted.ended and used.running >= wanted.running:
                break
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert bool(used.ended) is (builder == "ninja")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert llama_pace.used_below(process.pid) is None


def test_each_weight_is_that_of_an_object():
    assert all(re.fullmatch(r"[a-z][\w-]*\.(c|cpp|cxx)\.o", name) for name in llama_pace.WEIGHTS)
