"""A user whom the system does not know, as in containers, and who has no HOME."""

from __future__ import annotations

import pwd

import pytest


def without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing says where the user's home is, nor what the user's name is."""

    def unknown(user: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {user}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("LOCALSPEC_HOME", "LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("CONFIG", "DATA", "STATE", "CACHE"):
        monkeypatch.delenv(f"XDG_{name}_HOME", raising=False)
    monkeypatch.setenv("HOME", "")
