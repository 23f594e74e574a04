"""Examples of documentation pages: commands with their output, in blocks of the language `console`."""

import re

ANYTHING = "…"


def examples(page: str) -> list[tuple[str, str]]:
    """In the order of the page. Lines that go on are indented by six spaces."""
    found: list[tuple[list[str], list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
        is_command = False
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(([line.removeprefix("$ ")], []))
                is_command = True
            elif is_command and line.startswith("      "):
                found[-1][0].append(line)
            else:
                is_command = False
                found[-1][1].append(line)
    return [("\n".join(command), "\n".join(output)) for command, output in found]


def fits(output: str, expected: str) -> bool:
    parts = [re.escape(part) for part in expected.split(ANYTHING)]
    return re.fullmatch(".*".join(parts), output.strip(), re.DOTALL) is not None
