"""The device check: its report, and that no check and no crash goes unreported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import device_check
import pytest
from device import memory, pairs
from device.exactness import kv_on_host
from device.rows import Row, clean, finding, markdown, ok, skipped

from localspec.llama.library import c_api


@pytest.mark.parametrize(
    "text",
    [
        "cannot read /home/ada/models/x.gguf: gone",
        "cannot read /Users/ada/Library/x.gguf: gone",
        "cannot read C:\\Users\\ada\\x.gguf: gone",
    ],
)
def test_no_path_and_so_no_user_gets_into_a_report(text: str) -> None:
    assert clean(text) == "cannot read (path): gone"


def test_figures_and_fractions_stay() -> None:
    text = "target 3/7, draft 4/4 layers, 35 tok/s"
    assert clean(text) == text


def test_a_report_counts_its_findings_and_keeps_groups_together() -> None:
    rows = [ok("A", "one", "1 | 2"), skipped("B", "two", "no GPU"), finding("A", "three", "bad")]
    report = markdown("Device check", [("device", "none")], rows)
    assert "1 ok, 1 findings, 1 not checkable here." in report
    assert "| one | ok | 1 \\| 2 |" in report
    assert report.index("| three | **finding** | bad |") < report.index("## B")


def child(monkeypatch: pytest.MonkeyPatch, folder: Path, source: str) -> list[Row]:
    program = folder / "stand_in.py"
    program.write_text(source)
    monkeypatch.setattr(device_check, "__file__", str(program))
    return list(device_check._rows_of("memory", folder, quick=True))


ROW = (
    "import json, os; print(json.dumps(dict(group='g', what='w', status='ok', figures='')), "
    "flush=True)"
)


def test_a_driver_that_ends_the_process_is_a_finding_after_the_rows_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = child(monkeypatch, tmp_path, f"{ROW}; os.abort()")
    assert [row.status for row in rows] == ["ok", "finding"]
    assert "SIGABRT" in rows[1].figures


def test_a_device_that_hangs_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_check, "_SILENCE_S", 1.0)
    rows = child(monkeypatch, tmp_path, f"{ROW}; import time; time.sleep(60)")
    assert [row.status for row in rows] == ["ok", "finding"]
    assert "no output for" in rows[1].figures


def test_a_check_that_raises_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = child(monkeypatch, tmp_path, "raise ValueError('no such thing')")
    assert [row.status for row in rows] == ["finding"]
    assert "no such thing" in rows[0].figures


def test_every_kind_of_drafter_has_a_case(tmp_path: Path) -> None:
    cases = {**pairs.trained(tmp_path), **pairs.random(tmp_path)}
    kinds = {case.drafter for case in cases.values()}
    assert kinds == {
        *["model", "tree", "suffix", "ngram", "lookahead", "eagle3", "mtp", "medusa", "dflash"]
    }
    assert all(case.target.is_file() for case in cases.values())


def test_the_kv_cache_is_kept_on_the_host_for_as_long_as_asked() -> None:
    with kv_on_host():
        assert not c_api.llama_context_default_params().offload_kqv
    assert c_api.llama_context_default_params().offload_kqv


def test_what_llama_cpp_allocates_is_added_up_by_place() -> None:
    lines = [
        "load_tensors:      Vulkan0 model buffer size =     3.00 MiB",
        "load_tensors:   CPU_Mapped model buffer size =     1.00 MiB",
        "load_tensors:   CPU_REPACK model buffer size =     1.00 MiB",
        "load_tensors: CPU_LOCALSPEC model buffer size =     1.00 MiB",
        "llama_kv_cache:    Vulkan0 KV buffer size =     2.00 MiB",
        "sched_reserve: Vulkan_Host compute buffer size =     0.50 MiB",
        "sched_reserve: Vulkan0 compute buffer size =     4.00 MiB",
    ]
    assert memory._allocated(lines, on_gpu=True) == 9 << 20
    assert memory._allocated(lines, on_gpu=False) == 3 << 19


def test_help_needs_no_device(capsys: pytest.CaptureFixture[str]) -> None:
    sys.argv, before = ["device_check", "--help"], sys.argv
    try:
        with pytest.raises(SystemExit) as caught:
            device_check.main()
    finally:
        sys.argv = before
    assert caught.value.code == 0
    assert "--quick" in capsys.readouterr().out


def test_the_pairs_are_made_in_a_process_that_knows_the_scripts_alone(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from device import pairs; "
    code += "print(len(pairs.trained(Path(sys.argv[1]))))"
    scripts = Path(device_check.__file__).parent
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (scripts.parent, scripts)))}
    command = [sys.executable, "-P", "-c", code, str(tmp_path)]
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=300, check=True
    )
    assert int(done.stdout) > 4


def test_a_grown_pair_writes_what_the_small_one_writes(tmp_path: Path) -> None:
    small = pairs.trained(tmp_path)["draft model"]
    large = pairs.grown(small, tmp_path)
    assert large.draft is not None
    assert large.target.stat().st_size > 3.5e9  # holes
    assert large.draft.stat().st_size > 0.2e9
    assert large.options(pairs.ALL).model == str(large.target)
