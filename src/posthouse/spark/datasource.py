"""The data source `posthouse`, for `spark.read`, `readStream`, `write` and `writeStream`."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from posthouse.spark.options import check_names, parse_source
from posthouse.spark.reading import BatchReader
from posthouse.spark.schema import source_schema
from posthouse.spark.sink import BatchSink, StreamSink
from posthouse.spark.sink_options import SinkOptions
from posthouse.spark.streaming import StreamReader


class PosthouseDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "posthouse"

    def schema(self) -> StructType:
        """Called before it is known whether the query streams; option names can be checked already."""
        check_names(self.options)
        return source_schema(include_headers=self.options.get("includeHeaders", "false").lower() == "true")

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(parse_source(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(parse_source(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BatchSink(SinkOptions.parse(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return StreamSink(SinkOptions.parse(self.options), schema)
