"""The oracles and the generator live outside the installed package: make the repository importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4]))
