"""Finding a pipeline: a Python file, a project directory, or a function in one of them.

A project is a directory with `pipeline.py` and, if there is something to set, `pipeline.toml`:

    name = "orders"                 # of the application; the directory's otherwise
    bootstrap = "broker:9092"       # where the broker is
    master = "spark://host:7077"    # where it runs; this machine otherwise
    storage = "s3a://bucket/orders" # checkpoints and tables; the directory "storage" of the project otherwise
    interval = "5 seconds"          # how often a micro-batch begins

    [settings]                      # whatever the program asks for with context.settings
    [spark]                         # settings of Spark
"""

import importlib
import importlib.util
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from posthouse.spark.pipelines.errors import WrongPipeline

PROGRAM = "pipeline.py"
CONFIG = "pipeline.toml"
DECLARED = ("spark-pipeline.yml", "spark-pipeline.yaml")
_TEXTS = ("name", "bootstrap", "master", "storage", "interval")
_TABLES = ("settings", "spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A pipeline program, with the settings of its directory."""

    file: Path
    name: str
    storage: str
    bootstrap: str | None = None
    master: str | None = None
    interval: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_declared(self) -> bool:
        """Whether it is a project of Spark Declarative Pipelines, which Spark runs itself."""
        return self.file.name in DECLARED


def find_program(path: Path) -> Program:
    file = _file(path)
    config = _config(file.parent / CONFIG)
    name = config.get("name") or (file.resolve().parent.name if file.name == PROGRAM else file.stem)
    storage = config.get("storage") or "storage"
    if "://" not in storage:
        storage = str((file.resolve().parent / storage).absolute())
    return Program(
        file=file,
        name=name,
        storage=storage,
        bootstrap=config.get("bootstrap"),
        master=config.get("master"),
        interval=config.get("interval"),
        settings=config.get("settings", {}),
        spark={key: _spark_text(value) for key, value in config.get("spark", {}).items()},
    )


def load_function(name: str, directory: Path | None = None) -> Callable[..., Any]:
    """`module:function`, or `file.py:function` with the file in `directory` or the current directory."""
    place, colon, function = name.rpartition(":")
    if not colon or not place or not function:
        raise WrongPipeline(f"{name!r} names no function; write module:function or file.py:function")
    if place.endswith(".py"):
        module = load_module((directory or Path()) / place)
    else:
        try:
            module = importlib.import_module(place)
        except ImportError as error:
            raise WrongPipeline(
                f"{place!r} cannot be imported ({error}); check the name and PYTHONPATH"
            ) from None
    found = getattr(module, function, None)
    if not callable(found):
        raise WrongPipeline(f"{place} has no function {function!r}; check its name")
    return found  # type: ignore[no-any-return]


def load_module(file: Path) -> ModuleType:
    """A file as a module. Executors need no copy: its functions are pickled by value."""
    from pyspark import cloudpickle

    name = f"posthouse_pipeline_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if not file.is_file() or spec is None or spec.loader is None:
        raise WrongPipeline(f"there is no Python file {file}; check the path")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # Modules beside the file can be imported, as if Python had been started with it.
    beside = str(file.resolve().parent)
    if beside not in sys.path:
        sys.path.insert(0, beside)
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module


def _file(path: Path) -> Path:
    if path.is_dir():
        for name in (PROGRAM, *DECLARED):
            if (path / name).is_file():
                return path / name
        raise WrongPipeline(
            f"{path} has neither {PROGRAM} nor {DECLARED[0]}; make a project with 'posthouse pipeline init'"
        )
    if not path.is_file():
        raise WrongPipeline(f"there is no {path}; make a project with 'posthouse pipeline init'")
    if path.suffix != ".py" and path.name not in DECLARED:
        raise WrongPipeline(f"{path} is no pipeline; name a Python file, or a directory with {PROGRAM}")
    return path


def _config(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        config = tomllib.loads(file.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise WrongPipeline(f"{file} is not valid TOML: {error}") from None
    for key, value in config.items():
        if key not in _TEXTS + _TABLES:
            known = ", ".join(_TEXTS + _TABLES)
            raise WrongPipeline(f"{file} has an unknown key {key!r}; it may have {known}")
        if not isinstance(value, str if key in _TEXTS else dict):
            raise WrongPipeline(f"{key!r} in {file} must be a {'text' if key in _TEXTS else 'table'}")
    return config


def _spark_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
