"""llama.cpp's speculative example: one process a prompt, read off its report."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from localspec.bench.peers import Mode, Peer, Question, Setting, Spoken
from localspec.core.errors import PeerError, UsageError
from localspec.llama import library

_ANSWER_S = 600.0
_DECODED = re.compile(r"decoded\s+(\d+) tokens in\s+([\d.]+) seconds")
_ACCEPTED = re.compile(r"n_accept\s*=\s*(\d+)")


def modes(program: Path, lengths: Sequence[int]) -> list[Mode]:
    """One a draft length; it has no plain mode."""
    return [Mode(f"speculative-simple K={k}", partial(running, program, k)) for k in lengths]


@contextlib.contextmanager
def running(program: Path, k: int, setting: Setting) -> Iterator[Peer]:
    """Nothing runs between two prompts.

    Raises:
        UsageError: no draft model.
    """
    if setting.draft is None:
        raise UsageError("llama-speculative-simple needs a draft model; name one with --draft")
    yield _Example(program, k, setting, setting.draft)


@dataclass(frozen=True, slots=True)
class _Example:
    program: Path
    k: int
    setting: Setting
    draft: Path

    def answer(self, question: Question) -> Spoken:
        s, setting, threads = question.sampling, self.setting, str(self.setting.threads)
        with tempfile.TemporaryDirectory() as folder:
            prompt = Path(folder) / "prompt"
            prompt.write_text(question.text, encoding="utf-8")
            command = [
                *(str(self.program), "-m", str(setting.target), "-md", str(self.draft)),
                *("--spec-type", "draft-simple", "--spec-draft-n-max", str(self.k)),
                *("-t", threads, "-tb", threads, "-td", threads, "-c", str(setting.context)),
                *("-f", str(prompt), "-n", str(question.max_tokens), "-s", str(question.seed)),
                *("--samplers", "top_k;top_p;min_p;temperature", "--temp", str(s.temperature)),
                *("--top-k", str(s.top_k), "--top-p", str(s.top_p), "--min-p", str(s.min_p)),
                *(() if setting.gpu else ("-ngl", "0", "-ngld", "0")),
            ]
            try:
                done = subprocess.run(
                    command,
                    env=library.environment_of_others(),
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=_ANSWER_S,
                    check=False,
                )
            except OSError as error:
                raise PeerError(f"cannot start {self.program}: {error.strerror}") from None
            except subprocess.TimeoutExpired:
                raise PeerError(f"{self.program.name} took over {_ANSWER_S:.0f} s") from None
        report = (done.stdout + done.stderr).decode("utf-8", "replace")
        decoded, accepted = _DECODED.search(report), _ACCEPTED.search(report)
        if done.returncode or decoded is None or accepted is None:
            last = report.strip().rpartition("\n")[2][:200]
            raise PeerError(f"{self.program.name} failed ({done.returncode}): {last}")
        emitted, seconds = int(decoded[1]), float(decoded[2])
        rounds = emitted / max(1, emitted - int(accepted[1]))
        text = done.stdout.decode("utf-8", "replace")
        return Spoken(text, emitted / max(seconds, 1e-9), rounds)
