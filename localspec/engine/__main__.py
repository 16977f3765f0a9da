"""``python -m localspec.engine``: the engine as a child process; see `localspec.engine.main`."""

from localspec.core.processes import garbage

garbage.collect_rarely()  # before the imports

from localspec.engine.main import main  # noqa: E402 - as said

if __name__ == "__main__":
    main()
