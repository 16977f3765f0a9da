"""Child processes: how they are started, and how their crashes are reported."""
