"""Later releases, as brokers of an upgrade see them: copies of this one with more versions of the tables."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import posthouse
from tests.served import ServedBroker

COMPATIBLE = """
-- compatible from version {before}

ALTER TABLE log ADD COLUMN colour_{version} text;
ALTER TABLE broker ADD COLUMN zone_{version} text NOT NULL DEFAULT '';
ALTER TABLE topic ADD COLUMN note_{version} text;
CREATE TABLE later_{version} (id integer PRIMARY KEY);
CREATE OR REPLACE FUNCTION renew_lease(p_holder uuid, p_epoch bigint, p_seconds double precision)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE lease SET until = clock_timestamp() + make_interval(secs => p_seconds)
    WHERE holder = p_holder AND epoch = p_epoch;
    RETURN FOUND;
END $$;
"""
INCOMPATIBLE = "ALTER TABLE topic ADD COLUMN other_{version} text;"


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    version: str
    path: Path | None
    """Of the copy; None is the release that the test is of."""

    @property
    def environment(self) -> dict[str, str]:
        return {} if self.path is None else {"PYTHONPATH": str(self.path)}

    def serve(self, data: Path, **settings: Any) -> ServedBroker:
        return ServedBroker(data, environment=self.environment, **settings)

    def command(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "posthouse", *words],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


THIS = Release(version=posthouse.__version__, path=None)


def later_release(directory: Path, version: str, *schemas: str) -> Release:
    """With these versions of the tables after the first one."""
    package = directory / "posthouse"
    shutil.copytree(Path(posthouse.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    text = (package / "__init__.py").read_text()
    assert posthouse.__version__ in text
    (package / "__init__.py").write_text(text.replace(posthouse.__version__, version))
    for number, statements in enumerate(schemas, start=2):
        place = package / "storage" / "shared" / "schema" / f"{number:04}"
        place.mkdir()
        (place / "01_all.sql").write_text(
            statements.replace("{version}", str(number)).replace("{before}", str(number - 1))
        )
    return Release(version=version, path=directory)
