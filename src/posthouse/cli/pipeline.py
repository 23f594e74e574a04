"""`posthouse pipeline …`: create and run Spark pipelines, and run the ready-made ones."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posthouse.cli.durations import parse_moment
from posthouse.cli.options import Bootstrap, TopicName, complete_topic, invocation_of, pass_on_login
from posthouse.cli.output import counted, say

if TYPE_CHECKING:
    from posthouse.spark.pipelines.launching import Launch
    from posthouse.spark.pipelines.programs import Program

app = typer.Typer(
    name="pipeline",
    help="Create and run Spark pipelines, and run the ready-made ones.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

READY = ("orders", "replay", "repair", "deduplicate")
"""Pipelines that `init` can copy."""
_STORAGE = "posthouse-storage"


def _moment(text: str) -> int:
    try:
        return parse_moment(text, int(time.time() * 1000))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


From = Annotated[
    int | None,
    typer.Option(
        "--from",
        metavar="TIME",
        parser=_moment,
        help="Start at a time: 2026-11-14T00:00, or 2h for two hours ago.",
    ),
]
To = Annotated[
    int | None,
    typer.Option(
        "--to",
        metavar="TIME",
        parser=_moment,
        help="Stop at a time; such a run has its own checkpoints and tables.",
    ),
]
Once = Annotated[
    bool, typer.Option("--once", metavar="", help="Read up to the current end of the log, then stop.")
]
Master = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Spark master, such as spark://host:7077; by default this machine."),
]
Storage = Annotated[
    str | None,
    typer.Option(
        metavar="DIR|URI", help="Directory of checkpoints and tables; on a cluster, shared storage."
    ),
]
Function = Annotated[
    str | None,
    typer.Option(metavar="FILE.py:NAME", help="A function DataFrame → DataFrame; also module:name."),
]
Target = Annotated[
    str, typer.Argument(metavar="TO", help="Topic to write to.", autocompletion=complete_topic)
]


@app.command(epilog="`posthouse pipeline init orders && posthouse pipeline run orders`")
def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Directory to create.")],
    like: Annotated[str, typer.Option(metavar="|".join(READY), help="Pipeline to copy.")] = READY[0],
) -> None:
    """Create a project: a small pipeline to edit, with its settings."""
    if like not in READY:
        raise typer.BadParameter(f"{like!r} is none of {', '.join(READY)}", param_hint="--like")
    directory = Path(name)
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise typer.BadParameter(f"{directory} is not empty; choose another name", param_hint="NAME")
    (directory / "pipeline.py").write_text(_ready(f"{like}.py").read_text())
    (directory / "pipeline.toml").write_text(_ready(f"{like}.toml").read_text())
    (directory / ".gitignore").write_text("storage/\n")
    say(
        f"made {directory}/pipeline.py and {directory}/pipeline.toml; "
        f"run it with 'posthouse pipeline run {name}'"
    )


@app.command(
    epilog="`posthouse pipeline run orders`\n\n"
    "`posthouse pipeline run orders --from 2026-11-14T00:00 --to 2026-11-15T00:00`"
)
def run(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A project, or a Python file.")],
    start: From = None,
    end: To = None,
    once: Once = False,
    master: Master = None,
    storage: Storage = None,
    bootstrap: Bootstrap = None,
) -> None:
    """Run a pipeline. Ctrl-C stops it after the current batch; the next run resumes there."""
    _require_spark()
    from posthouse.spark.pipelines.programs import find_program

    program = find_program(path)
    where = _bootstrap(context, bootstrap, program)
    pass_on_login(context, bootstrap)
    if program.is_declared:
        if start is not None or end is not None:
            raise typer.BadParameter(
                "declarative pipelines choose their input in code; leave these out", param_hint="--from, --to"
            )
        from posthouse.spark.pipelines.declared import run_declared

        run_declared(program, bootstrap=where, master=master)
        return
    from posthouse.spark.pipelines.launching import Launch

    if "://" not in (storage or program.storage) and storage:
        storage = str(Path(storage).absolute())
    _launch(
        Launch(
            program=program,
            bootstrap=where,
            master=master,
            storage=storage,
            start=start,
            end=end,
            once=once,
        )
    )


@app.command(
    epilog="`posthouse pipeline replay orders --from 2026-11-14 --to 2026-11-15 --function fix.py:transform "
    "--to-topic orders-2`"
)
def replay(
    context: typer.Context,
    topic: TopicName,
    to_topic: Annotated[str | None, typer.Option(metavar="TOPIC", help="Write to this topic.")] = None,
    to_table: Annotated[str | None, typer.Option(metavar="NAME", help="Write to this table.")] = None,
    function: Function = None,
    start: From = None,
    end: To = None,
    master: Master = None,
    storage: Storage = None,
    bootstrap: Bootstrap = None,
) -> None:
    """Read a time range of a topic again, through changed code, into another topic or a table."""
    if (to_topic is None) == (to_table is None):
        raise typer.BadParameter("give exactly one of them", param_hint="--to-topic, --to-table")
    if to_topic == topic:
        raise typer.BadParameter("it is the topic that is read; name another one", param_hint="--to-topic")
    settings = {"topic": topic, "to_topic": to_topic, "to_table": to_table, "function": function}
    name = f"replay-{topic}-{to_topic or to_table}"
    job = _ready_job(context, "replay", name, settings, bootstrap, master, storage)
    _launch(job, start=start, end=end, once=True)


@app.command(
    epilog="`posthouse pipeline repair orders.dead --function fix.py:mend --still-dead orders.lost --once`"
)
def repair(
    context: typer.Context,
    topic: TopicName,
    function: Annotated[
        str,
        typer.Option(
            metavar="FILE.py:NAME", help="A function that adds the BOOLEAN column 'mended' to a DataFrame."
        ),
    ],
    back_to: Annotated[
        str | None,
        typer.Option(metavar="TOPIC", help="Original topic of all records; by default a header names it."),
    ] = None,
    header: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Header that names the topic; by default the usual headers."),
    ] = None,
    still_dead: Annotated[
        str | None,
        typer.Option(metavar="TOPIC", help="Topic for records that are not mended; by default they stay."),
    ] = None,
    once: Once = False,
    master: Master = None,
    storage: Storage = None,
    bootstrap: Bootstrap = None,
) -> None:
    """Mend the records of a dead-letter topic, and write them back to their original topics."""
    settings = {
        "topic": topic,
        "function": function,
        "back_to": back_to,
        "header": header,
        "still_dead": still_dead,
    }
    job = _ready_job(context, "repair", f"repair-{topic}", settings, bootstrap, master, storage)
    _launch(job, once=once)


@app.command(epilog="`posthouse pipeline deduplicate orders orders.once --within '10 minutes' --once`")
def deduplicate(
    context: typer.Context,
    topic: TopicName,
    to: Target,
    by: Annotated[
        str, typer.Option(metavar="SQL", help="Expression that is equal for duplicate records.")
    ] = "key",
    within: Annotated[str, typer.Option(metavar="TIME", help="How long a key is remembered.")] = "10 minutes",
    start: From = None,
    once: Once = False,
    master: Master = None,
    storage: Storage = None,
    bootstrap: Bootstrap = None,
) -> None:
    """Copy a topic without duplicate records."""
    settings = {"topic": topic, "to_topic": to, "by": by, "within": within}
    job = _ready_job(
        context, "deduplicate", f"deduplicate-{topic}-{to}", settings, bootstrap, master, storage
    )
    _launch(job, start=start, once=once)


@app.command(epilog="`posthouse pipeline report orders --from 24h --out report.html`")
def report(
    context: typer.Context,
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC", help="Topics to report on; by default all.", autocompletion=complete_topic
        ),
    ] = None,
    start: From = None,
    end: To = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="HTML file to write.")] = Path("traffic.html"),
    master: Master = None,
    bootstrap: Bootstrap = None,
) -> None:
    """Write a traffic report: messages, bytes, keys, sizes and lag by topic and minute."""
    _require_spark()
    from posthouse.spark.pipelines.traffic import survey_traffic
    from posthouse.spark.pipelines.traffic_page import page
    from posthouse.spark.session import logging_into, session

    where = _bootstrap(context, bootstrap, None)
    pass_on_login(context, bootstrap)
    _check_broker(where)
    say("starting Spark …")
    with logging_into(Path(tempfile.mkdtemp(prefix="posthouse-report-"), "spark.log")):
        spark = session("posthouse traffic", master=master)
    traffic = survey_traffic(spark, where, topics or [], start=start, end=end)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page(traffic))
    records = sum(each.messages for each in traffic.minutes)
    say(f"wrote {out}: {counted(records, 'record')} of {counted(len(traffic.topics), 'topic')}")


def _launch(job: Launch, **times: Any) -> None:
    import signal
    from dataclasses import replace

    from posthouse.cli.pipeline_display import Display
    from posthouse.spark.pipelines.launching import launch
    from posthouse.spark.stop_request import StopRequest

    job = replace(job, **times)
    _check_broker(job.bootstrap)
    stop = StopRequest()
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}

    def ready() -> None:
        # Spark has put a handler of its own in place that would cancel the batch.
        for number in before:
            signal.signal(number, stop)

    say(f"starting Spark for {job.program.name!r}; its log is {job.log}; Ctrl-C stops it")
    if job.resumes and job.start is not None and job.end is None:
        say("resuming from its checkpoint; --from is used only by the first run")
    try:
        with Display(bounded=job.once or job.end is not None) as display:
            states = launch(job, stop=stop, show=display.show, ready=ready)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    records = max((state.records for state in states), default=0)
    if stop.is_wanted:
        say(f"stopped after {counted(records, 'record')}; run it again to resume from its checkpoint")
    else:
        say(f"done with {counted(records, 'record')}")


def _ready_job(
    context: typer.Context,
    kind: str,
    name: str,
    settings: Mapping[str, Any],
    bootstrap: str | None,
    master: str | None,
    storage: str | None,
) -> Launch:
    _require_spark()
    from posthouse.spark.pipelines.launching import Launch
    from posthouse.spark.pipelines.programs import Program

    pass_on_login(context, bootstrap)
    plain = re.sub(r"[^\w.-]", "-", name)
    place = storage or str(Path(_STORAGE, plain).absolute())
    if "://" not in place:
        place = str(Path(place).absolute())
    program = Program(file=_ready(f"{kind}.py"), name=plain, storage=place)
    function = settings.get("function")
    if function and ".py:" in function:
        # The file that is meant is one of the user's, not one that lies beside our program.
        file, _, attribute = function.rpartition(":")
        settings = {**settings, "function": f"{Path(file).absolute()}:{attribute}"}
    return Launch(
        program=program,
        bootstrap=_bootstrap(context, bootstrap, None),
        master=master,
        settings={key: value for key, value in settings.items() if value is not None},
    )


def _ready(name: str) -> Path:
    import posthouse

    # Not by importing it: `init` works without PySpark.
    return Path(posthouse.__file__).parent / "spark" / "pipelines" / name


def _bootstrap(context: typer.Context, given: str | None, program: Program | None) -> str:
    """The option, the environment's or the profile's, the project's, the usual one."""
    invocation = invocation_of(context, given)
    return invocation.given_bootstrap() or (program and program.bootstrap) or invocation.kafka_address


def _check_broker(bootstrap: str) -> None:
    """Check the connection before Spark starts, which takes seconds: an error is shown at once."""
    from posthouse.client import Client, Security

    with Client(bootstrap, security=Security.from_environment()) as client:
        client.topics()


def _require_spark() -> None:
    import warnings
    from importlib.util import find_spec

    from posthouse.spark.errors import SparkError

    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise SparkError(
            "pipelines run on Spark, which is not there; install it with 'pip install \"posthouse[spark]\"'"
        )
    # PySpark warns at every start; pipelines do not use pandas.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
