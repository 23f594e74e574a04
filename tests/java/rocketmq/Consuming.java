import java.text.SimpleDateFormat;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Date;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/** Steps that are about what consumers can do. */
final class Consuming {
    private static final RPCHook NO_HOOK = null;

    private static List<String> bodies(int since, int until) {
        return IntStream.range(since, until).mapToObj(String::valueOf).toList();
    }

    private static void send(DefaultMQProducer producer, String topic, int since, int until) throws Exception {
        for (String body : bodies(since, until)) producer.send(Sending.message(topic, body));
    }

    /** In one queue, the last message is one that all filters take. */
    static void filters() throws Exception {
        try (Rocket rocket = new Rocket()) {
            DefaultMQProducer producer = rocket.producer("filters");
            producer.send(new Message("filters", "none", "first".getBytes()));
            String[] tags = {"red", "blue", "green"};
            for (int number = 0; number < 12; number++) {
                Message message = new Message("filters", tags[number % 3], ("m" + number).getBytes());
                message.putUserProperty("amount", String.valueOf(number));
                if (number % 2 == 0) message.putUserProperty("shop", "Berlin");
                Sending.send(producer, message, 0);
            }
            Message last = new Message("filters", "red", "last".getBytes());
            last.putUserProperty("amount", "5");
            last.putUserProperty("shop", "Berlin");
            Sending.send(producer, last, 0);
            Received byTag = new Received();
            rocket.consumer("by-tag", "filters", "red || blue", byTag);
            Received bySql = new Received();
            rocket.consumer(new DefaultMQPushConsumer("by-sql"), consumer -> {
                consumer.subscribe("filters", MessageSelector.bySql("amount BETWEEN 3 AND 8 AND shop = 'Berlin' OR TAGS = 'green'"));
                consumer.registerMessageListener(bySql);
            });
            byTag.expect(List.of("m0", "m1", "m3", "m4", "m6", "m7", "m9", "m10", "last"));
            bySql.expect(List.of("m2", "m4", "m5", "m6", "m8", "m11", "last"));
            try {
                rocket.consumer(new DefaultMQPushConsumer("bad-sql"), consumer -> {
                    consumer.subscribe("filters", MessageSelector.bySql("amount BETWEEN"));
                    consumer.registerMessageListener(new Received());
                });
                throw new AssertionError("a bad condition is accepted");
            } catch (org.apache.rocketmq.client.exception.MQClientException refused) {
                Steps.check(refused.getResponseCode() == 23, refused);
            }
        }
    }

    static void broadcasting() throws Exception {
        try (Rocket rocket = new Rocket()) {
            send(rocket.producer("broadcasting"), "broadcasting", 0, 10);
            List<Received> all = List.of(new Received(), new Received());
            for (Received each : all) {
                rocket.consumer(new DefaultMQPushConsumer("broadcasting"), consumer -> {
                    consumer.setInstanceName("broadcasting-" + all.indexOf(each));
                    // The enum is in different packages of 4.9 and 5.
                    var model = consumer.getMessageModel();
                    for (var other : model.getDeclaringClass().getEnumConstants()) {
                        if (other.name().equals("BROADCASTING")) consumer.setMessageModel(other);
                    }
                    consumer.subscribe("broadcasting", "*");
                    consumer.registerMessageListener(each);
                });
            }
            for (Received each : all) each.expect(bodies(0, 10));
        }
    }

    /** By subscription, with commits, and with queues of its own choice. */
    static void lite() throws Exception {
        try (Rocket rocket = new Rocket()) {
            DefaultMQProducer producer = rocket.producer("lite");
            send(producer, "lite", 0, 10);
            DefaultLitePullConsumer first = rocket.lite("lite", each -> {
                each.setAutoCommit(false);
                each.subscribe("lite", "*");
            });
            expect(Rocket.poll(first, 10), bodies(0, 10));
            first.commitSync();
            first.shutdown();
            send(producer, "lite", 10, 15);
            DefaultLitePullConsumer second = rocket.lite("lite", each -> each.subscribe("lite", "*"));
            expect(Rocket.poll(second, 5), bodies(10, 15));
            DefaultLitePullConsumer reader = rocket.reader("lite-reader", "lite");
            expect(Rocket.poll(reader, 15), bodies(0, 15));
        }
    }

    private static void expect(List<MessageExt> found, List<String> wanted) {
        Steps.check(new TreeSet<>(Received.texts(found)).equals(new TreeSet<>(wanted)) && found.size() == wanted.size(), found);
    }

    /** Two retries, after a second each. Then the message is a dead letter. */
    static void retries() throws Exception {
        try (Rocket rocket = new Rocket()) {
            DefaultMQProducer producer = rocket.producer("retries");
            producer.send(new Message("retries", "tag", "key", "good".getBytes()));
            Message bad = new Message("retries", "tag", "key", "bad".getBytes());
            bad.putUserProperty("colour", "red");
            String id = producer.send(bad).getMsgId();
            Received tried = new Received();
            long started = System.currentTimeMillis();
            rocket.consumer(new DefaultMQPushConsumer("retries"), consumer -> {
                consumer.setMaxReconsumeTimes(2);
                consumer.subscribe("retries", "tag");
                consumer.registerMessageListener((org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently) (messages, context) -> {
                    messages.forEach(tried::add);
                    context.setDelayLevelWhenNextConsume(1);
                    boolean isBad = Received.text(messages.get(0)).equals("bad");
                    return isBad ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                });
            });
            List<MessageExt> found = new ArrayList<>(tried.waitFor(4));
            found.removeIf(each -> Received.text(each).equals("good"));
            Steps.check(found.stream().map(MessageExt::getReconsumeTimes).toList().equals(List.of(0, 1, 2)), found);
            // A new group knows at once where its retries are: clients look for new topics only every 30 s.
            long took = System.currentTimeMillis() - started;
            Steps.check(took < 25_000, "the retries took " + took + " ms");
            List<MessageExt> dead = Rocket.poll(rocket.reader("undertaker", "%DLQ%retries"), 1);
            found.addAll(dead);
            for (MessageExt each : found) {
                Steps.check(each.getTopic().equals(dead.contains(each) ? "%DLQ%retries" : "retries"), each);
                Steps.check(Received.text(each).equals("bad") && each.getTags().equals("tag") && each.getKeys().equals("key"), each);
                Steps.check(each.getUserProperty("colour").equals("red"), each);
                Steps.check(dead.contains(each) || each.getMsgId().equals(id), each);
            }
            Steps.check(dead.size() == 1 && dead.get(0).getProperty("RETRY_TOPIC").equals("retries"), dead);
        }
    }

    /** The topic `replay` has lost its first record, and has those numbered from `first` on since `timestamp`. */
    static void replay(long timestamp, int first) throws Exception {
        try (Rocket rocket = new Rocket()) {
            Received received = new Received();
            rocket.consumer(new DefaultMQPushConsumer("replay"), consumer -> {
                consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP);
                consumer.setConsumeTimestamp(new SimpleDateFormat("yyyyMMddHHmmss").format(new Date(timestamp)));
                consumer.subscribe("replay", "*");
                consumer.registerMessageListener(received);
            });
            received.expect(bodies(first, 10));
            DefaultLitePullConsumer reader = rocket.reader("replay-reader", "replay");
            expect(Rocket.poll(reader, 9), bodies(1, 10));
            Collection<MessageQueue> queues = reader.fetchMessageQueues("replay");
            Steps.check(queues.size() == 1, queues);
            for (MessageQueue queue : queues) {
                Long offset = reader.offsetForTimestamp(queue, timestamp);
                Steps.check(offset == first, offset);
                reader.seek(queue, offset);
            }
            expect(Rocket.poll(reader, 10 - first), bodies(first, 10));
        }
    }

    /** Two clients of one group want different tags: each gets all that it wants of the queues that it has. */
    static void subscriptions() throws Exception {
        try (Rocket rocket = new Rocket()) {
            DefaultMQProducer producer = rocket.producer("subscriptions");
            producer.send(new Message("subscriptions", "none", "creates the topic".getBytes()));
            List<String> tags = List.of("red", "blue");
            List<Received> received = List.of(new Received(), new Received());
            List<DefaultMQPushConsumer> consumers = new ArrayList<>();
            for (int place = 0; place < 2; place++) {
                consumers.add(rocket.consumer("subscriptions", "subscriptions", tags.get(place), received.get(place)));
            }
            List<Set<Integer>> queues = balanced(consumers);
            List<List<String>> wanted = List.of(new ArrayList<>(), new ArrayList<>());
            for (int number = 0; number < 80; number++) {
                int queue = number % 4;
                int tag = number / 4 % 2;
                Sending.send(producer, new Message("subscriptions", tags.get(tag), ("m" + number).getBytes()), queue);
                if (queues.get(tag).contains(queue)) wanted.get(tag).add("m" + number);
            }
            for (int place = 0; place < 2; place++) {
                Steps.check(wanted.get(place).size() == 20, wanted);
                received.get(place).expect(wanted.get(place));
            }
        }
    }

    /** Their queues, once each has two of the four: the first has more until it knows of the other, and has got to them one by one. */
    private static List<Set<Integer>> balanced(List<DefaultMQPushConsumer> consumers) throws Exception {
        long deadline = System.currentTimeMillis() + Rocket.WAIT_MS;
        while (true) {
            List<Set<Integer>> found = consumers.stream().map(Consuming::queues).toList();
            Set<Integer> all = new HashSet<>();
            found.forEach(all::addAll);
            if (all.size() == 4 && found.stream().allMatch(each -> each.size() == 2)) return found;
            Steps.check(System.currentTimeMillis() < deadline, found);
            Thread.sleep(50);
        }
    }

    private static Set<Integer> queues(DefaultMQPushConsumer consumer) {
        Set<Integer> found = new HashSet<>();
        for (MessageQueue queue : consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet()) {
            if (queue.getTopic().equals("subscriptions")) found.add(queue.getQueueId());
        }
        return found;
    }

    /** What clients tell of each message is itself in messages. */
    static void trace() throws Exception {
        try (Rocket rocket = new Rocket()) {
            DefaultMQProducer producer = rocket.started(new DefaultMQProducer("trace", NO_HOOK, true, null));
            producer.send(Sending.message("traced", "before"));
            Received received = new Received();
            DefaultMQPushConsumer traced = new DefaultMQPushConsumer("trace", NO_HOOK, new AllocateMessageQueueAveragely(), true, null);
            rocket.consumer(traced, consumer -> {
                consumer.subscribe("traced", "*");
                consumer.registerMessageListener(received);
            });
            // Clients of 5 trace what they consume once they have started: a message may have been faster.
            received.expect(List.of("before"));
            String id = producer.send(Sending.message("traced", "after")).getMsgId();
            received.expect(List.of("before", "after"));
            DefaultLitePullConsumer reader = rocket.reader("trace-reader", "RMQ_SYS_TRACE_TOPIC");
            Set<String> missing = new HashSet<>(List.of("Pub", "SubBefore", "SubAfter"));
            while (!missing.isEmpty()) {
                for (MessageExt message : Rocket.poll(reader, 1)) {
                    for (String entry : Received.text(message).split("\u0002")) {
                        if (entry.contains(id)) missing.remove(entry.split("\u0001")[0].strip());
                    }
                }
            }
        }
    }

    /** The same names of topics and groups, in a namespace and outside of it. */
    @SuppressWarnings("deprecation")
    static void namespaces() throws Exception {
        try (Rocket rocket = new Rocket()) {
            DefaultMQProducer inside = new DefaultMQProducer("spaces");
            inside.setNamespace("ns");
            rocket.started(inside).send(Sending.message("spaces", "inside"));
            rocket.producer("spaces").send(Sending.message("spaces", "outside"));
            Received inNamespace = new Received();
            rocket.consumer(new DefaultMQPushConsumer("spaces"), consumer -> {
                consumer.setNamespace("ns");
                consumer.subscribe("spaces", "*");
                consumer.registerMessageListener(inNamespace);
            });
            Received outside = new Received();
            rocket.consumer("spaces", "spaces", "*", outside);
            Received byWholeName = new Received();
            rocket.consumer("whole-name", "ns%spaces", "*", byWholeName);
            inNamespace.expect(List.of("inside"));
            outside.expect(List.of("outside"));
            byWholeName.expect(List.of("inside"));
            Steps.check(inNamespace.all().get(0).getTopic().equals("spaces"), inNamespace.all());
            Steps.check(byWholeName.all().get(0).getTopic().equals("ns%spaces"), byWholeName.all());
        }
    }
}
