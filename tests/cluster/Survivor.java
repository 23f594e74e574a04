import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.UUID;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Produces numbers to a topic and consumes them, whatever its brokers do. It knows one address.
 *
 * <p>It prints `sent N` when a record is acknowledged, `read N` when it is consumed, and `polled` after each poll. The first
 * byte of its input ends the producer, and `produced` says that all is sent; the end of the input ends the program.
 */
public class Survivor {
    static volatile boolean isOver;

    public static void main(String[] arguments) throws Exception {
        String address = arguments[0];
        String topic = arguments[1];
        Thread producing = new Thread(() -> produce(address, topic));
        Thread consuming = new Thread(() -> consume(address, topic));
        for (Thread each : List.of(producing, consuming)) {
            each.setUncaughtExceptionHandler((thread, error) -> fail(error));
            each.setDaemon(true);
            each.start();
        }
        if (System.in.read() < 0) return;
        isOver = true;
        producing.join();
        say("produced");
        while (System.in.read() >= 0) {}
    }

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static void fail(Throwable error) {
        error.printStackTrace();
        Runtime.getRuntime().halt(1);
    }

    static Properties settings(String address) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("metadata.max.age.ms", "500");
        return settings;
    }

    static void produce(String address, String topic) {
        Properties settings = settings(address);
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        try (Producer<String, String> producer = new KafkaProducer<>(settings)) {
            for (int number = 1; !isOver; number++) {
                String value = String.valueOf(number);
                producer.send(new ProducerRecord<>(topic, value), (told, error) -> {
                    if (error != null) fail(error);
                    say("sent " + value);
                });
                pause(20);
            }
        }
    }

    static void consume(String address, String topic) {
        Properties settings = settings(address);
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        settings.put("group.id", "survivors-" + UUID.randomUUID());
        settings.put("auto.offset.reset", "earliest");
        try (Consumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(topic));
            while (true) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    say("read " + record.value());
                }
                say("polled");
            }
        }
    }

    static void pause(int milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
