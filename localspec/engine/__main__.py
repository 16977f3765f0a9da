"""``python -m localspec.engine``: the engine as a child process; see `localspec.engine.process`."""

from localspec.engine.process import main

if __name__ == "__main__":
    main()
