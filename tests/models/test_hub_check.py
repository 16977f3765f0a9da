"""``scripts/hub_check``: what it expects of the real Hub is what the stand-in of the tests does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hub_server import TARGET, TARGET_FILE, Hub

pytest_plugins = ["hub_fixtures"]
SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "hub_check.py"


def check(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, "--repo", TARGET, "--file", TARGET_FILE],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


def test_the_stand_in_meets_what_is_expected_of_the_hub(hub: Hub, models) -> None:
    hub.repo(TARGET, {TARGET_FILE: models.target})
    done = check(HF_TOKEN="hf_good")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok ") == len(done.stdout.splitlines()) > 8


def test_a_hub_that_is_otherwise_is_found_out(hub: Hub, models) -> None:
    hub.repo(TARGET, {TARGET_FILE: models.target})
    hub.heads = False
    done = check()
    assert done.returncode == 1
    assert "DIFFERS  head says size and hash" in done.stdout


def test_without_a_network_it_says_that_nothing_was_checked(hub: Hub) -> None:
    done = check(HF_ENDPOINT="http://127.0.0.1:9")
    assert done.returncode == 1
    assert "nothing could be checked: cannot reach" in done.stderr
    assert "Traceback" not in done.stderr
