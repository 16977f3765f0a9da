"""Limits of control groups, read from made-up folders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from localspec.core.processes import cgroups, host
from localspec.core.processes.cgroups import Room
from localspec.loading import kernels
from localspec.models.memory import machine
from localspec.prefix_cache import memory as saved_states

UNLIMITED = "9223372036854771712"
"""What version 1 has for no limit."""


@dataclass
class Groups:
    """A made-up /proc/self, and folders of groups beside it."""

    folder: Path
    own: str = ""
    mounts: str = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"

    def mounted(self, kind: str, controllers: str, path: str, root: str = "/") -> Path:
        """A hierarchy, with this process in the group ``path``; the folder of its root."""
        place = self.folder / (controllers or "unified")
        number = 0 if kind == "cgroup2" else self.own.count("\n") + 1
        self.own += f"{number}:{controllers}:{path}\n"
        options = f"rw,{controllers}" if controllers else "rw"
        self.mounts += f"30 22 0:26 {root} {place} rw,relatime shared:4 - {kind} none {options}\n"
        place.mkdir()
        for name, text in (("cgroup", self.own), ("mountinfo", self.mounts)):
            (self.folder / name).write_text(text)
        return place


def write(folder: Path, **files: object) -> None:
    """Files of a group, with "__" for the dot in their names."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Groups:
    monkeypatch.setattr(cgroups, "_PROC", tmp_path)
    return Groups(tmp_path)


def test_a_system_without_groups_has_no_limit(groups: Groups) -> None:
    assert cgroups.memory() is None
    assert cgroups.processors() is None
    groups.mounted("cgroup2", "", "/")  # with no files in it, as in the root of a machine
    assert cgroups.memory() is None
    assert cgroups.processors() is None


def test_a_container_sees_its_group_as_the_root(groups: Groups) -> None:
    root = groups.mounted("cgroup2", "", "/")
    stat = "anon 1\ninactive_file 50000\nactive_file 20000\nslab_reclaimable 7"
    write(root, memory__max=1_000_000, memory__current=600_000, memory__stat=stat)
    write(root, cpu__max="250000 100000")
    assert cgroups.memory() == Room(limit=1_000_000, free=470_007)
    assert cgroups.processors() == 2.5


def test_pages_of_files_are_room_whether_they_were_read_once_or_often(groups: Groups) -> None:
    root = groups.mounted("cgroup2", "", "/")
    write(root, memory__max=8_000, memory__current=5_200)
    for often in (0, 2_000, 4_900):
        write(root, memory__stat=f"inactive_file {4_900 - often}\nactive_file {often}")
        assert cgroups.memory() == Room(8_000, 7_700)


def test_no_more_is_free_than_the_limit(groups: Groups) -> None:
    root = groups.mounted("cgroup2", "", "/")
    write(root, memory__max=1_000, memory__current=10, memory__stat="active_file 500")
    assert cgroups.memory() == Room(1_000, 1_000)
    write(root, memory__max=1_000, memory__current=1_200, memory__stat="active_file 50")
    assert cgroups.memory() == Room(1_000, 0)


def test_the_limit_of_a_group_above_holds_with_what_all_in_it_use(groups: Groups) -> None:
    root = groups.mounted("cgroup2", "", "/user.slice/user-1.slice/run.scope")
    write(root / "user.slice", memory__max="max", memory__current=1, cpu__max="max 100000")
    middle = root / "user.slice/user-1.slice"
    write(middle, memory__max=10_000, memory__current=9_000, memory__stat="active_file 100")
    write(middle, cpu__max="50000 100000")
    scope = middle / "run.scope"
    write(scope, memory__max=20_000, memory__current=500, memory__stat="", cpu__max="max 100000")
    assert cgroups.memory() == Room(10_000, 1_100)
    assert cgroups.processors() == 0.5
    write(scope, memory__max=600, cpu__max="20000 100000")
    assert cgroups.memory() == Room(600, 100)
    assert cgroups.processors() == 0.2


def test_a_group_that_is_slowed_from_some_size_on_has_that_for_its_limit(groups: Groups) -> None:
    root = groups.mounted("cgroup2", "", "/a")
    write(root / "a", memory__max=10_000, memory__high=4_000, memory__current=1_000)
    assert cgroups.memory() == Room(4_000, 3_000)


@pytest.mark.parametrize("root", ["/", "/docker/1"], ids=["of the host", "of the container"])
def test_version_1_has_a_hierarchy_for_each(groups: Groups, root: str) -> None:
    memory = groups.mounted("cgroup", "memory", "/docker/1", root)
    cpu = groups.mounted("cgroup", "cpu,cpuacct", "/docker/1", root)
    groups.mounted("cgroup", "name=systemd", "/docker/1", root)
    inside = "docker/1" if root == "/" else ""
    stat = "active_file 1\ntotal_active_file 300\ntotal_inactive_file 200"
    write(memory / inside, memory__limit_in_bytes=5_000, memory__stat=stat)
    write(memory / inside, memory__usage_in_bytes=4_000)
    write(cpu / inside, cpu__cfs_quota_us=150_000, cpu__cfs_period_us=100_000)
    assert cgroups.memory() == Room(5_000, 1_500)
    assert cgroups.processors() == 1.5


def test_version_1_tells_of_a_limit_above_what_a_container_sees(groups: Groups) -> None:
    memory = groups.mounted("cgroup", "memory", "/docker/1", "/docker/1")
    write(memory, memory__limit_in_bytes=UNLIMITED, memory__usage_in_bytes=4_000)
    write(memory, memory__stat="total_active_file 300\nhierarchical_memory_limit 5000")
    assert cgroups.memory() == Room(5_000, 1_300)
    write(memory, memory__limit_in_bytes=4_500)
    assert cgroups.memory() == Room(4_500, 800)
    write(memory, memory__stat=f"hierarchical_memory_limit {UNLIMITED}")
    assert cgroups.memory() == Room(4_500, 500)


def test_version_1_has_a_number_for_no_limit(groups: Groups) -> None:
    memory = groups.mounted("cgroup", "memory", "/a")
    cpu = groups.mounted("cgroup", "cpu", "/a")
    for folder in (memory, memory / "a"):
        write(folder, memory__limit_in_bytes=UNLIMITED, memory__usage_in_bytes=4_000)
    write(cpu / "a", cpu__cfs_quota_us=-1, cpu__cfs_period_us=100_000)
    assert cgroups.memory() is None
    assert cgroups.processors() is None


def test_a_number_of_old_kernels_that_is_too_large_is_no_limit(groups: Groups) -> None:
    memory = groups.mounted("cgroup", "memory", "/a")
    most = 2**64 - 1
    write(memory, memory__limit_in_bytes=most, memory__usage_in_bytes=4_000)
    write(memory, memory__stat=f"total_active_file 300\nhierarchical_memory_limit {most}")
    assert cgroups.memory() is None
    write(memory, memory__limit_in_bytes=5_000)
    assert cgroups.memory() == Room(5_000, 1_300)


def test_where_both_versions_are_each_controller_is_found(groups: Groups) -> None:
    memory = groups.mounted("cgroup", "memory", "/user/1")
    unified = groups.mounted("cgroup2", "", "/user.slice/1")
    write(memory / "user", memory__limit_in_bytes=5_000, memory__usage_in_bytes=4_000)
    write(unified / "user.slice/1", cpu__max="300000 100000")
    assert cgroups.memory() == Room(5_000, 1_000)
    assert cgroups.processors() == 3.0


@pytest.mark.parametrize("path", ["/../other", "/elsewhere"])
def test_a_group_that_is_out_of_sight_leaves_the_mounted_one(groups: Groups, path: str) -> None:
    root = groups.mounted("cgroup2", "", path, "/docker/1")
    write(root, memory__max=5_000, memory__current=4_000)
    write(root.parent / "other", memory__max=1, memory__current=1)
    assert cgroups.memory() == Room(5_000, 1_000)


def test_names_are_read_as_the_system_writes_them(groups: Groups) -> None:
    root = groups.mounted("cgroup2", "", r"/a\x2db c.scope", r"/a\134x2db\040c.scope")
    write(root, memory__max=5_000, memory__current=4_000)
    assert cgroups.memory() == Room(5_000, 1_000)


def test_a_limit_holds_where_nobody_says_what_is_used(groups: Groups) -> None:
    write(groups.mounted("cgroup2", "", "/"), memory__max=5_000)
    assert cgroups.memory() == Room(5_000, 5_000)


@pytest.mark.parametrize("junk", ["", "many", "-3", "1 2 3", "\0", "٣", "9" * 5000])
def test_what_is_no_number_is_no_limit(groups: Groups, junk: str) -> None:
    root = groups.mounted("cgroup2", "", "/a")
    write(root / "a", memory__max=junk, cpu__max=junk)
    write(root, memory__max=5_000, memory__current=junk, memory__stat=f"active_file {junk}")
    write(root, cpu__max="100000 0")
    assert cgroups.memory() == Room(5_000, 5_000)
    assert cgroups.processors() is None
    (root / "a/memory.max").write_bytes(b"\xff\xfe")
    assert cgroups.memory() == Room(5_000, 5_000)


def test_lines_that_are_none_are_passed_over(groups: Groups) -> None:
    groups.own = "\njunk\n7:cpu\n8\n"
    groups.mounts = "\n - cgroup\n - cgroup2 \n - cgroup2 none rw\n1 2 3 - cgroup none rw,memory\n"
    root = groups.mounted("cgroup2", "", "/")
    write(root, memory__max=5_000, memory__current=4_000)
    assert cgroups.memory() == Room(5_000, 1_000)


# -- who asks -------------------------------------------------------------------------------------


def test_planner_trials_and_saved_states_stay_within_a_containers_memory(groups: Groups) -> None:
    root = groups.mounted("cgroup2", "", "/")
    write(root, memory__max=160 << 20, memory__current=100 << 20, memory__stat="")
    assert host.memory() == host.HostMemory(available=60 << 20, total=160 << 20)
    assert machine.host_only().host_free == 60 << 20
    assert machine.host_only().host_total == 160 << 20
    assert kernels._room() == 60 << 20
    assert saved_states.default_limit() == 15 << 20
    assert saved_states.has_room(49 << 20)  # a sixteenth of the limit, not of the machine
    assert not saved_states.has_room(50 << 20)
