"""Python examples of the documentation, as they are written."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ABOUT_SPARK = re.compile(r'\bspark\b|format\("posthouse"\)')


def examples() -> dict[str, list[str]]:
    """Those that have to do with Spark, by page."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    found = {page.name: list(filter(_ABOUT_SPARK.search, _BLOCK.findall(page.read_text()))) for page in pages}
    return {page: blocks for page, blocks in found.items() if blocks}


def example(page: str, number: int, bootstrap: str, data: Path) -> str:
    """With the address of a broker, and a directory for what is kept."""
    text = examples()[page][number]
    text = re.sub(r"(localhost|127\.0\.0\.1):9092", bootstrap, text)
    return text.replace('"/data/', f'"{data}/').replace('"checkpoints/', f'"{data}/checkpoints/')
