import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** The steps of `tests/clients/rocketmq/grpc_steps.py` with RocketMQ's gRPC client in Java. */
public class Steps {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static final Duration LEASE = Duration.ofSeconds(20);
    static final long DEADLINE_MS = 90_000;
    static ClientConfiguration configuration;

    interface Step {
        void run() throws Exception;
    }

    static final Map<String, Step> STEPS = new HashMap<>(Map.of(
        "exchange", Steps::exchange,
        "ordered", Steps::ordered,
        "delayed", Steps::delayed,
        "transactions", Steps::transactions,
        "crash", Steps::crash,
        "takeover", Steps::takeover,
        "filters", Steps::filters,
        "retries", Steps::retries,
        "redelivery", Steps::redelivery,
        "inbox", Steps::inbox));

    static {
        STEPS.put("priorities", Steps::priorities);
    }

    public static void main(String[] arguments) throws Exception {
        configuration = ClientConfiguration.newBuilder()
            .setEndpoints(arguments[0])
            .enableSsl(arguments[1].equals("tls"))
            .build();
        ExecutorService threads = Executors.newCachedThreadPool();
        List<Future<?>> running = new ArrayList<>();
        for (String name : List.of(arguments).subList(2, arguments.length)) {
            running.add(threads.submit(() -> {
                STEPS.get(name).run();
                synchronized (System.out) {
                    System.out.println("done " + name);
                }
                return null;
            }));
        }
        int status = 0;
        for (Future<?> each : running) {
            try {
                each.get();
            } catch (java.util.concurrent.ExecutionException error) {
                error.printStackTrace();
                status = 1;
            }
        }
        System.out.flush();
        System.exit(status);
    }

    static void expect(Object found, Object wanted) {
        if (!found.equals(wanted)) throw new AssertionError("found " + found + ", wanted " + wanted);
    }

    static MessageBuilder message(String topic, String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    static String text(MessageView message) {
        ByteBuffer body = message.getBody().duplicate();
        byte[] bytes = new byte[body.remaining()];
        body.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    static Producer producer(String topic) throws Exception {
        return PROVIDER.newProducerBuilder()
            .setClientConfiguration(configuration)
            .setTopics(topic)
            .setTransactionChecker(message -> {
                expect(text(message), "left behind");
                return TransactionResolution.COMMIT;
            })
            .build();
    }

    static void send(String topic, List<Message> messages) throws Exception {
        try (Producer producer = producer(topic)) {
            for (Message each : messages) producer.send(each);
        }
    }

    static SimpleConsumer simple(String topic, String group, FilterExpression expression) throws Exception {
        return PROVIDER.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup(group)
            .setAwaitDuration(Duration.ofSeconds(2))
            .setSubscriptionExpressions(Map.of(topic, expression))
            .build();
    }

    static SimpleConsumer simple(String topic) throws Exception {
        return simple(topic, topic, FilterExpression.SUB_ALL);
    }

    static PushConsumer pushed(String topic, Function<MessageView, ConsumeResult> listener) throws Exception {
        return PROVIDER.newPushConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup(topic)
            .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL))
            .setMessageListener(listener::apply)
            .build();
    }

    static List<MessageView> received(SimpleConsumer consumer, int count) throws Exception {
        long late = System.currentTimeMillis() + DEADLINE_MS;
        List<MessageView> found = new ArrayList<>();
        while (found.size() < count) {
            if (System.currentTimeMillis() > late) {
                throw new AssertionError(found.size() + " of " + count + " messages came");
            }
            for (MessageView each : consumer.receive(32, LEASE)) {
                consumer.ack(each);
                found.add(each);
            }
        }
        return found;
    }

    /** These messages come, and no others that were sent before. */
    static void only(SimpleConsumer consumer, String... wanted) throws Exception {
        List<String> bodies = new ArrayList<>();
        for (MessageView each : received(consumer, wanted.length)) bodies.add(text(each));
        for (MessageView each : consumer.receive(32, LEASE)) bodies.add(text(each));
        Collections.sort(bodies);
        expect(bodies, List.of(wanted));
        consumer.close();
    }

    static String next(BlockingQueue<String> came) throws Exception {
        String found = came.poll(DEADLINE_MS, TimeUnit.MILLISECONDS);
        if (found == null) throw new AssertionError("a message has not come");
        return found;
    }

    static String tag(int number) {
        return number % 2 == 1 ? "odd" : "even";
    }

    static void exchange() throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int number = 0; number < 10; number++) {
            messages.add(message("exchange", "message " + number)
                .setTag(tag(number))
                .setKeys("key" + number)
                .addProperty("tenant", "blåu")
                .build());
        }
        send("exchange", messages);
        try (SimpleConsumer consumer = simple("exchange")) {
            for (MessageView each : received(consumer, 10)) {
                int number = Integer.parseInt(text(each).split(" ")[1]);
                expect(each.getTag().get(), tag(number));
                expect(List.copyOf(each.getKeys()), List.of("key" + number));
                expect(each.getProperties(), Map.of("tenant", "blåu"));
                expect(each.getDeliveryAttempt(), 1);
            }
        }
    }

    static void ordered() throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int number = 0; number < 10; number++) {
            for (String group : List.of("a", "b")) {
                messages.add(message("ordered", group + " " + number).setMessageGroup(group).build());
            }
        }
        send("ordered", messages);
        BlockingQueue<String> came = new LinkedBlockingQueue<>();
        Function<MessageView, ConsumeResult> listener = each -> {
            came.add(text(each));
            return ConsumeResult.SUCCESS;
        };
        try (PushConsumer consumer = pushed("ordered", listener)) {
            Map<String, Integer> following = new HashMap<>();
            for (int count = 0; count < messages.size(); count++) {
                String[] words = next(came).split(" ");
                expect(Integer.parseInt(words[1]), following.getOrDefault(words[0], 0));
                following.merge(words[0], 1, Integer::sum);
            }
        }
    }

    static void delayed() throws Exception {
        long due = System.currentTimeMillis() + 3000;
        send("delayed", List.of(message("delayed", "later").setDeliveryTimestamp(due).build()));
        try (SimpleConsumer consumer = simple("delayed")) {
            expect(text(received(consumer, 1).get(0)), "later");
            expect(System.currentTimeMillis() >= due, true);
        }
    }

    static void priorities() throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int priority : new int[] {1, 3, 2, 0, 3, 9}) {
            messages.add(message("priorities", "priority " + priority).setPriority(priority).build());
        }
        send("priorities", messages);
        try (SimpleConsumer consumer = simple("priorities")) {
            List<Integer> found = new ArrayList<>();
            for (MessageView each : received(consumer, 6)) found.add(each.getPriority().get());
            expect(found, List.of(3, 3, 9, 2, 1, 0)); // there are four queues: 9 is as high as 3
        }
    }

    static void transactions() throws Exception {
        try (Producer producer = producer("transactions")) {
            for (String body : List.of("yes", "no")) {
                Transaction transaction = producer.beginTransaction();
                producer.send(message("transactions", body).build(), transaction);
                if (body.equals("yes")) transaction.commit();
                else transaction.rollback();
            }
            only(simple("transactions"), "yes");
        }
    }

    static void crash() throws Exception {
        Producer producer = producer("takeover");
        producer.send(message("takeover", "left behind").build(), producer.beginTransaction());
        Runtime.getRuntime().halt(7);
    }

    static void takeover() throws Exception {
        try (Producer producer = producer("takeover")) {
            only(simple("takeover"), "left behind");
        }
    }

    static void filters() throws Exception {
        List<Message> messages = new ArrayList<>();
        for (String tag : List.of("red", "green", "blue")) {
            messages.add(message("filters", tag).setTag(tag).addProperty("length", "" + tag.length()).build());
        }
        send("filters", messages);
        only(simple("filters", "tags", new FilterExpression("red || blue")), "blue", "red");
        FilterExpression sql = new FilterExpression("length > 3", FilterExpressionType.SQL92);
        only(simple("filters", "sql", sql), "blue", "green");
    }

    static void retries() throws Exception {
        send("retries", List.of(message("retries", "bad").build(), message("retries", "good").build()));
        BlockingQueue<String> came = new LinkedBlockingQueue<>();
        Function<MessageView, ConsumeResult> listener = each -> {
            came.add(text(each) + " " + each.getDeliveryAttempt());
            return text(each).equals("good") ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE;
        };
        try (PushConsumer consumer = pushed("retries", listener)) {
            List<String> found = new ArrayList<>(List.of(next(came), next(came), next(came)));
            Collections.sort(found);
            expect(found, List.of("bad 1", "bad 2", "good 1"));
            only(simple("%DLQ%retries", "undertakers", FilterExpression.SUB_ALL), "bad");
        }
    }

    static void redelivery() throws Exception {
        send("redelivery", List.of(message("redelivery", "again").build()));
        try (SimpleConsumer consumer = simple("redelivery")) {
            long late = System.currentTimeMillis() + DEADLINE_MS;
            List<Integer> attempts = new ArrayList<>();
            while (attempts.size() < 2) {
                if (System.currentTimeMillis() > late) throw new AssertionError("attempts " + attempts);
                for (MessageView each : consumer.receive(32, Duration.ofSeconds(1))) {
                    attempts.add(each.getDeliveryAttempt());
                    if (attempts.size() == 2) consumer.ack(each);
                }
            }
            expect(attempts, List.of(1, 2));
        }
    }

    static void inbox() throws Exception {
        try (SimpleConsumer consumer = simple("inbox")) {
            Map<String, MessageView> found = new HashMap<>();
            for (MessageView each : received(consumer, 2)) found.put(text(each), each);
            MessageView tagged = found.get("grüße von Kafka");
            expect(tagged.getTag().get(), "red");
            expect(List.copyOf(tagged.getKeys()), List.of("from.kafka"));
            expect(tagged.getProperties(), Map.of("tenant", "röt"));
            expect(found.containsKey("ohne alles"), true);
        }
    }
}
