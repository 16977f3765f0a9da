"""``python -m localspec.engine``: the engine as a child process; see `localspec.engine.main`."""

from localspec.engine.main import main

if __name__ == "__main__":
    main()
