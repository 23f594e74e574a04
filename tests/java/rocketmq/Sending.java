import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Steps that are about what producers can do. */
final class Sending {
    static Message message(String topic, String body) {
        return new Message(topic, body.getBytes(StandardCharsets.UTF_8));
    }

    static void normal() throws Exception {
        try (Rocket rocket = new Rocket()) {
            DefaultMQProducer producer = rocket.producer("normal");
            List<String> wanted = new ArrayList<>();
            Map<String, String> ids = new HashMap<>();
            for (int number = 0; number < 20; number++) {
                Message message = new Message("normal", "tag" + number % 2, "a" + number + " b" + number, number, ("one-" + number).getBytes(), true);
                message.putUserProperty("number", "№ " + number);
                SendResult sent = producer.send(message);
                Steps.check(sent.getSendStatus() == SendStatus.SEND_OK, sent);
                ids.put("one-" + number, sent.getMsgId());
                wanted.add("one-" + number);
            }
            CountDownLatch answered = new CountDownLatch(10);
            for (int number = 0; number < 10; number++) {
                producer.sendOneway(message("normal", "oneway-" + number));
                producer.send(message("normal", "async-" + number), new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                        answered.countDown();
                    }

                    @Override
                    public void onException(Throwable error) {
                        error.printStackTrace();
                    }
                });
                wanted.addAll(List.of("oneway-" + number, "async-" + number));
            }
            Steps.check(answered.await(Rocket.WAIT_MS, TimeUnit.MILLISECONDS), "not all sends are answered");
            List<Message> batch = new ArrayList<>();
            for (int number = 0; number < 10; number++) {
                Message each = message("normal", "batch-" + number);
                each.setKeys("k" + number);
                batch.add(each);
                wanted.add("batch-" + number);
            }
            SendResult sent = producer.send(batch);
            Steps.check(sent.getSendStatus() == SendStatus.SEND_OK && sent.getMsgId().split(",").length == 10, sent);
            Steps.check(producer.fetchPublishMessageQueues("normal").size() == 4, producer.fetchPublishMessageQueues("normal"));

            Received received = new Received();
            rocket.consumer("normal", "normal", "*", received);
            received.expect(wanted);
            for (MessageExt message : received.all()) {
                String body = Received.text(message);
                int number = Integer.parseInt(body.split("-")[1]);
                if (body.startsWith("batch")) Steps.check(message.getKeys().equals("k" + number), message);
                if (!body.startsWith("one-")) continue;
                Steps.check(message.getTags().equals("tag" + number % 2), message);
                Steps.check(message.getKeys().equals("a" + number + " b" + number), message);
                Steps.check(message.getUserProperty("number").equals("№ " + number), message);
                Steps.check(message.getFlag() == number && message.getReconsumeTimes() == 0, message);
                Steps.check(message.getMsgId().equals(ids.get(body)), message);
            }
        }
    }

    /** Four keys by a selector. One message is refused once: those behind it wait. */
    static void ordered() throws Exception {
        try (Rocket rocket = new Rocket()) {
            DefaultMQProducer producer = rocket.producer("ordered");
            for (int number = 0; number < 40; number++) {
                Integer key = number % 4;
                Message message = message("ordered", key + "-" + number / 4);
                producer.send(message, (queues, each, by) -> queues.get((Integer) by), key);
            }
            Received received = new Received();
            AtomicInteger refused = new AtomicInteger();
            rocket.orderly("ordered", "ordered", (messages, context) -> {
                if (Received.text(messages.get(0)).equals("2-5") && refused.getAndIncrement() == 0) {
                    context.setSuspendCurrentQueueTimeMillis(200);
                    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                }
                messages.forEach(received::add);
                return ConsumeOrderlyStatus.SUCCESS;
            });
            List<MessageExt> found = received.waitFor(40);
            Steps.check(found.size() == 40 && refused.get() == 2, found.size() + " " + refused);
            for (int key = 0; key < 4; key++) {
                String mine = key + "-";
                List<MessageExt> ofKey = found.stream().filter(each -> Received.text(each).startsWith(mine)).toList();
                Steps.check(ofKey.stream().map(MessageExt::getQueueId).distinct().count() == 1, ofKey);
                for (int number = 0; number < 10; number++) {
                    Steps.check(Received.text(ofKey.get(number)).equals(mine + number), Received.texts(ofKey));
                }
            }
        }
    }

    static void delayed() throws Exception {
        try (Rocket rocket = new Rocket()) {
            DefaultMQProducer producer = rocket.producer("delayed");
            producer.send(message("delayed", "now"));
            long now = System.currentTimeMillis();
            Message byLevel = message("delayed", "level");
            byLevel.setDelayTimeLevel(1);
            producer.send(byLevel);
            // Clients of 4.9 have no methods for these.
            Map<String, String> others = Map.of("TIMER_DELAY_MS", "1500", "TIMER_DELAY_SEC", "2", "TIMER_DELIVER_MS", "" + (now + 2500));
            for (Map.Entry<String, String> other : others.entrySet()) {
                Message message = message("delayed", other.getKey());
                MessageAccessor.putProperty(message, other.getKey(), other.getValue());
                producer.send(message);
            }
            Received received = new Received();
            rocket.consumer("delayed", "delayed", "*", received);
            received.expect(List.of("now", "level", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS"));
            Map<String, Integer> least = Map.of("now", 0, "level", 1000, "TIMER_DELAY_MS", 1500, "TIMER_DELAY_SEC", 2000, "TIMER_DELIVER_MS", 2500);
            for (Map.Entry<String, Integer> each : least.entrySet()) {
                long after = received.timeOf(each.getKey()) - now;
                Steps.check(after >= each.getValue(), each + " came after " + after);
            }
        }
    }

    /** What the client compresses, what cannot be compressed, and nearly all the properties that a message may have. */
    static void large() throws Exception {
        try (Rocket rocket = new Rocket()) {
            DefaultMQProducer producer = rocket.producer("large");
            byte[] random = new byte[1_000_000];
            new Random(1).nextBytes(random);
            byte[] repeated = "0123456789".repeat(50_000).getBytes();
            producer.send(new Message("large", "random", random));
            producer.send(new Message("large", "repeated", repeated));
            Message many = new Message("large", "many", "properties".getBytes());
            for (int number = 0; number < 250; number++) many.putUserProperty("name" + number, "v".repeat(100) + number);
            producer.send(many);
            Message tooMany = new Message("large", "too many", "properties".getBytes());
            for (int number = 0; number < 400; number++) tooMany.putUserProperty("name" + number, "v".repeat(100));
            try {
                producer.send(tooMany);
                throw new AssertionError("40,000 bytes of properties are accepted");
            } catch (org.apache.rocketmq.client.exception.MQBrokerException refused) {
                Steps.check(refused.getResponseCode() == 13, refused);
            }
            Received received = new Received();
            rocket.consumer("large", "large", "*", received);
            for (MessageExt message : received.waitFor(3)) {
                switch (message.getTags()) {
                    case "random" -> Steps.check(Arrays.equals(message.getBody(), random), message.getBody().length);
                    case "repeated" -> Steps.check(Arrays.equals(message.getBody(), repeated), message.getBody().length);
                    case "many" -> {
                        for (int number = 0; number < 250; number++) {
                            String value = message.getUserProperty("name" + number);
                            Steps.check(value.equals("v".repeat(100) + number), value);
                        }
                    }
                    default -> throw new AssertionError(message);
                }
            }
        }
    }

    /** To one queue, so that messages come in order. */
    static void send(DefaultMQProducer producer, Message message, int queue) throws Exception {
        for (MessageQueue each : producer.fetchPublishMessageQueues(message.getTopic())) {
            if (each.getQueueId() == queue) {
                producer.send(message, each);
                return;
            }
        }
        throw new AssertionError("no queue " + queue);
    }
}
