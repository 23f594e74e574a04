import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** A listener that keeps what it gets, and when. */
final class Received implements MessageListenerConcurrently {
    private final List<MessageExt> messages = new ArrayList<>();
    private final List<Long> times = new ArrayList<>();

    @Override
    public ConsumeConcurrentlyStatus consumeMessage(List<MessageExt> found, ConsumeConcurrentlyContext context) {
        found.forEach(this::add);
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    }

    synchronized void add(MessageExt message) {
        messages.add(message);
        times.add(System.currentTimeMillis());
        notifyAll();
    }

    synchronized List<MessageExt> waitFor(int count) throws InterruptedException {
        long deadline = System.currentTimeMillis() + Rocket.WAIT_MS;
        while (messages.size() < count) {
            long left = deadline - System.currentTimeMillis();
            if (left <= 0) throw new AssertionError(messages.size() + " of " + count + " came: " + texts(messages));
            wait(left);
        }
        return new ArrayList<>(messages);
    }

    synchronized long timeOf(String body) {
        for (int place = 0; place < messages.size(); place++) {
            if (text(messages.get(place)).equals(body)) return times.get(place);
        }
        throw new AssertionError(body);
    }

    synchronized int count() {
        return messages.size();
    }

    synchronized List<MessageExt> all() {
        return new ArrayList<>(messages);
    }

    /** Those and no others, in any order. */
    void expect(List<String> bodies) throws InterruptedException {
        List<String> wanted = bodies.stream().sorted().toList();
        List<String> found = texts(waitFor(bodies.size())).stream().sorted().toList();
        Steps.check(found.equals(wanted), found + " and not " + wanted);
    }

    static String text(Message message) {
        return new String(message.getBody(), java.nio.charset.StandardCharsets.UTF_8);
    }

    static List<String> texts(List<? extends Message> messages) {
        return messages.stream().map((Function<Message, String>) Received::text).toList();
    }
}
