"""Launches a program: from its definition to running queries."""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posthouse.spark.errors import SparkError
from posthouse.spark.pipelines.context import PipelineContext, PipelineSettings
from posthouse.spark.pipelines.errors import WrongPipeline
from posthouse.spark.pipelines.programs import Program, load_module
from posthouse.spark.pipelines.progress import QueryState
from posthouse.spark.pipelines.running import PipelineFailed, reason, run_queries
from posthouse.spark.stop_request import StopRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Show = Callable[[Sequence[QueryState]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The parameters of one run."""

    program: Program
    bootstrap: str
    master: str | None = None
    storage: str | None = None
    start: int | None = None
    end: int | None = None
    once: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Location of checkpoints and tables. A time range has its own: it is a separate, finite run."""
        storage = (self.storage or self.program.storage).rstrip("/")
        if self.end is None:
            return storage
        return f"{storage}/runs/{_moment(self.start or 0)}-{_moment(self.end)}"

    @property
    def log(self) -> Path:
        """Spark's log file: beside the checkpoints, or among the temporary files if those are remote."""
        if "://" not in self.place:
            return Path(self.place, "spark.log")
        return Path(tempfile.gettempdir(), f"posthouse-{self.program.name}-{os.getpid()}.log")

    @property
    def resumes(self) -> bool:
        """Whether there is a checkpoint already. Only known for directories."""
        return "://" not in self.place and any(Path(self.place, "checkpoints").glob("*"))


def launch(job: Launch, *, stop: StopRequest, show: Show, ready: Callable[[], None]) -> list[QueryState]:
    """Run until it ends or is stopped; `ready` is called when Spark has started."""
    from pyspark.sql import SparkSession

    from posthouse.spark.session import logging_into, session

    program = job.program
    had_one = SparkSession.getActiveSession() is not None
    try:
        with logging_into(job.log):
            spark = session(
                program.name,
                master=job.master or program.master,
                conf=program.spark,
                local_checkpoints="://" not in job.place or job.place.startswith("file:"),
            )
    except SparkError:
        raise
    except Exception as error:
        raise PipelineFailed(f"Spark did not start: {reason(error)}; see {job.log} for more") from error
    try:
        ready()
        context = PipelineContext(
            spark=spark,
            bootstrap=job.bootstrap,
            storage=job.place,
            settings=PipelineSettings({**program.settings, **job.settings}),
            start=job.start,
            end=job.end,
            once=job.once,
            interval=program.interval,
            directory=program.file.parent,
        )
        queries = _start(spark, context, program)
        return run_queries(queries, stop=stop, show=show, ends=context.ends)
    finally:
        if not had_one:
            spark.stop()


def _start(spark: "SparkSession", context: PipelineContext, program: Program) -> "Sequence[StreamingQuery]":
    try:
        function = getattr(load_module(program.file), "pipeline", None)
        if function is None:
            raise WrongPipeline(
                f"{program.file} has no function pipeline(spark, context); "
                "see one with 'posthouse pipeline init'"
            )
        started = function(spark, context)
    except SparkError:
        raise
    except Exception as error:
        raise PipelineFailed(
            f"{program.file} failed before its queries ran: {type(error).__name__}: {reason(error)}; "
            "run it with --debug to see where"
        ) from error
    # Queries that the function started and did not return are included.
    return list(started or spark.streams.active)


def _moment(ms: int) -> str:
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    return f"{moment:%Y%m%dT%H%M%S}" + (f".{ms % 1000:03}" if ms % 1000 else "") + "Z"
