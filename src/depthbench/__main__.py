"""``python -m depthbench``."""

from depthbench.cli import main

if __name__ == "__main__":
    main()
