"""A process that starts looks for garbage rarely, one that serves often."""

import subprocess
import sys

PROGRAM = """
import gc
from localspec.core.processes import garbage

class Node:
    alive = 0
    def __init__(self):
        self.itself = self
        Node.alive += 1
    def __del__(self):
        Node.alive -= 1

def made(n):
    for _ in range(n):
        Node()
    return Node.alive

garbage.collect_rarely()
print(made(20_000))
garbage.collect_new()
kept = made(0)
print(made(20_000) - kept)
print(gc.get_freeze_count() > 0)
garbage.collect_new()
print(made(0) < 10)
"""


def test_what_is_made_after_the_start_does_not_pile_up() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    starting, running, frozen, reopened = done.stdout.split()
    assert int(starting) == 20_000
    assert int(running) < 4_000
    assert (frozen, reopened) == ("True", "True")
