import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.StringJoiner;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Consumes a topic in a rack, until it is killed. A line for each poll has the values of its records. */
public class RackReader {
    public static void main(String[] arguments) {
        String topic = arguments[1];
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("client.rack", arguments[3]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("metadata.max.age.ms", "5000");
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        try (Consumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (int number = 0; number < Integer.parseInt(arguments[2]); number++) {
                partitions.add(new TopicPartition(topic, number));
            }
            consumer.assign(partitions);
            while (true) {
                StringJoiner values = new StringJoiner(" ");
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    values.add(record.value());
                }
                System.out.println(values);
            }
        }
    }
}
