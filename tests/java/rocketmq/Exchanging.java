import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** For tests with clients of other protocols. */
final class Exchanging {
    static void write(String topic) throws Exception {
        try (Rocket rocket = new Rocket()) {
            DefaultMQProducer producer = rocket.producer("writer");
            for (int number = 0; number < 3; number++) {
                byte[] body = ("straße " + number + " ").repeat(number == 2 ? 1000 : 1).getBytes(StandardCharsets.UTF_8);
                Message message = new Message(topic, "tag" + number, "key" + number, body);
                message.putUserProperty("tenant", "blåu");
                producer.send(message);
            }
        }
    }

    /** A line for each message: its body, keys, and tenant and tag if it has them. */
    static void read(String topic, int count) throws Exception {
        try (Rocket rocket = new Rocket()) {
            Received received = new Received();
            rocket.consumer("reader-of-" + topic, topic, "*", received);
            List<MessageExt> found = received.waitFor(count);
            for (MessageExt message : found) {
                Map<String, String> shown = new TreeMap<>();
                for (String name : List.of("KEYS", "TAGS", "tenant")) {
                    if (message.getProperty(name) != null) shown.put(name, message.getProperty(name));
                }
                Steps.print(Received.text(message) + " " + shown);
            }
        }
    }
}
