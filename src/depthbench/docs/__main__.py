"""``python -m depthbench.docs FOLDER`` writes the pages that are made from the code.

Designs are measured, which takes minutes, and have a command of their own: ``depthbench designs
--docs FOLDER``.
"""

import sys
from pathlib import Path

from depthbench.docs.pages import write_pages

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("python -m depthbench.docs FOLDER: name the folder to write to")
    for page in write_pages(Path(sys.argv[1])):
        print(page)
