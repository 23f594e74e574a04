import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts words: reads `words`, repartitions them by themselves, counts in a store and writes `counts`.
 * Runs until its standard input is closed. Arguments are settings: name=value.
 */
public class StreamsCount {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.String().getClass());
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.String().getClass());
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "100");
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, "1");
        for (String argument : arguments) {
            String[] parts = argument.split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("words")
            .groupBy((key, word) -> word, Grouped.as("by-word"))
            .count(Materialized.as("store"))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to("counts", Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        CountDownLatch failed = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(error -> {
            System.out.println("failed " + error);
            failed.countDown();
            return StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.setStateListener((now, before) -> {
            System.out.println("state " + now);
            System.out.flush();
        });
        streams.start();
        while (System.in.read() >= 0) {
            streams.metadataForLocalThreads().forEach(thread -> System.out.println("tasks active "
                + thread.activeTasks().size() + " standby " + thread.standbyTasks().size()));
            System.out.println("end");
            System.out.flush();
        }
        streams.close(Duration.ofSeconds(20));
        System.out.println("closed");
        System.exit(failed.getCount() == 0 ? 1 : 0);
    }
}
