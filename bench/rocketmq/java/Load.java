import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** One load on a broker of RocketMQ's protocol, with the stock client. What was measured is printed as one line of JSON. */
public class Load {
    static final int WARM_UP_MS = 2000;
    static final int MOST_WAITING_MS = 600_000;
    static String address;

    public static void main(String[] arguments) throws Exception {
        address = arguments[0];
        String topic = arguments[2];
        long[] numbers = Arrays.stream(arguments).skip(3).mapToLong(Long::parseLong).toArray();
        String measured = switch (arguments[1]) {
            case "create" -> create(topic);
            case "send" -> send(topic, (int) numbers[0], (int) numbers[1], (int) numbers[2], false);
            case "transactions" -> send(topic, (int) numbers[0], (int) numbers[1], (int) numbers[2], true);
            case "fill" -> fill(topic, (int) numbers[0], (int) numbers[1], (int) numbers[2], numbers[3]);
            case "consume" -> consume(topic, numbers[0]);
            case "delay" -> delay(topic, (int) numbers[0], (int) numbers[1], numbers[2], numbers[3]);
            default -> throw new IllegalArgumentException(arguments[1]);
        };
        System.out.println(measured);
        System.exit(0);
    }

    /** The topic, and a group of its name: gRPC clients of upstream create neither. */
    static String create(String topic) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(address);
        admin.start();
        Set<String> brokers = Set.of();
        // The front end of upstream answers before its broker is known to the name server.
        for (long deadline = now() + 60_000; brokers.isEmpty() && now() < deadline; Thread.sleep(100)) {
            for (BrokerData each : admin.examineBrokerClusterInfo().getBrokerAddrTable().values()) {
                brokers = Set.copyOf(each.getBrokerAddrs().values());
            }
        }
        for (String broker : brokers) {
            TopicConfig config = new TopicConfig(topic, 4, 4, 6);
            admin.createAndUpdateTopicConfig(broker, config);
            SubscriptionGroupConfig group = new SubscriptionGroupConfig();
            group.setGroupName(topic);
            admin.createAndUpdateSubscriptionGroupConfig(broker, group);
        }
        admin.shutdown();
        return "{\"brokers\": " + brokers.size() + "}";
    }

    /** Each thread waits for the answer to one message before it sends the next. */
    static String send(String topic, int size, int threads, int milliseconds, boolean transactional) throws Exception {
        DefaultMQProducer producer = transactional ? transactional(topic) : producer(topic);
        byte[] body = body(size);
        long begin = now() + WARM_UP_MS, end = begin + milliseconds;
        List<List<Long>> times = new ArrayList<>();
        AtomicLong failed = new AtomicLong(), sent = new AtomicLong();
        List<Thread> running = new ArrayList<>();
        for (int number = 0; number < threads; number++) {
            List<Long> mine = new ArrayList<>();
            times.add(mine);
            running.add(start(() -> {
                while (now() < end) {
                    long began = System.nanoTime();
                    boolean good = transactional
                        ? producer.sendMessageInTransaction(new Message(topic, body), null).getSendStatus() == SendStatus.SEND_OK
                        : producer.send(new Message(topic, body)).getSendStatus() == SendStatus.SEND_OK;
                    long took = System.nanoTime() - began;
                    sent.incrementAndGet();
                    if (!good) failed.incrementAndGet();
                    else if (now() >= begin && now() < end) mine.add(took);
                }
            }, failed));
        }
        for (Thread each : running) each.join();
        producer.shutdown();
        long[] all = times.stream().flatMap(List::stream).mapToLong(each -> each).sorted().toArray();
        return String.format("{\"rate\": %.1f, \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"sent\": %d, \"failed\": %d}",
            all.length * 1000.0 / milliseconds, of(all, 0.5) / 1e6, of(all, 0.99) / 1e6, sent.get(), failed.get());
    }

    /** Batches, as fast as they go. */
    static String fill(String topic, int size, int batch, int threads, long count) throws Exception {
        DefaultMQProducer producer = producer(topic);
        byte[] body = body(size);
        AtomicLong left = new AtomicLong(count / batch), failed = new AtomicLong();
        long began = System.nanoTime();
        List<Thread> running = new ArrayList<>();
        for (int number = 0; number < threads; number++) {
            running.add(start(() -> {
                while (left.getAndDecrement() > 0) {
                    List<Message> messages = new ArrayList<>();
                    for (int each = 0; each < batch; each++) messages.add(new Message(topic, body));
                    if (producer.send(messages).getSendStatus() != SendStatus.SEND_OK) failed.incrementAndGet();
                }
            }, failed));
        }
        for (Thread each : running) each.join();
        double seconds = (System.nanoTime() - began) / 1e9;
        producer.shutdown();
        return String.format("{\"rate\": %.1f, \"failed\": %d}", count / seconds, failed.get());
    }

    /** From the first message to the last of `count`. */
    static String consume(String topic, long count) throws Exception {
        AtomicLong seen = new AtomicLong(), first = new AtomicLong(), last = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = consumer(topic, messages -> {
            first.compareAndSet(0, System.nanoTime());
            if (seen.addAndGet(messages.size()) >= count && last.compareAndSet(0, System.nanoTime())) done.countDown();
        });
        if (!done.await(MOST_WAITING_MS, TimeUnit.MILLISECONDS)) throw new IllegalStateException("only " + seen + " came");
        consumer.shutdown();
        return String.format("{\"rate\": %.1f}", count * 1e9 / (last.get() - first.get()));
    }

    /** All are due at one moment, which is so far ahead that all are sent by then. */
    static String delay(String topic, int size, int threads, long count, long aheadMs) throws Exception {
        long begun = now(), due = begun + aheadMs;
        AtomicLong seen = new AtomicLong(), early = new AtomicLong(), latest = new AtomicLong(), failed = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = consumer(topic, messages -> {
            long at = now();
            if (at < due) early.addAndGet(messages.size());
            latest.accumulateAndGet(at, Math::max);
            if (seen.addAndGet(messages.size()) >= count) done.countDown();
        });
        DefaultMQProducer producer = producer(topic);
        byte[] body = body(size);
        AtomicLong left = new AtomicLong(count);
        List<Thread> running = new ArrayList<>();
        for (int number = 0; number < threads; number++) {
            running.add(start(() -> {
                while (left.getAndDecrement() > 0) {
                    Message message = new Message(topic, body);
                    message.setDeliverTimeMs(due);
                    if (producer.send(message).getSendStatus() != SendStatus.SEND_OK) failed.incrementAndGet();
                }
            }, failed));
        }
        for (Thread each : running) each.join();
        long sent = now();
        System.out.println("sent");
        System.out.flush();
        boolean came = done.await(due + MOST_WAITING_MS - now(), TimeUnit.MILLISECONDS);
        producer.shutdown();
        consumer.shutdown();
        return String.format("{\"rate\": %.1f, \"delivered\": %.1f, \"early\": %d, \"missing\": %d, \"late_sends\": %d, \"failed\": %d}",
            count * 1000.0 / (sent - begun), seen.get() * 1000.0 / Math.max(1, latest.get() - due), early.get(),
            came ? 0 : count - seen.get(), Math.max(0, sent - due), failed.get());
    }

    interface Work {
        void run() throws Exception;
    }

    interface Seen {
        void all(List<MessageExt> messages);
    }

    static Thread start(Work work, AtomicLong failed) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception error) {
                failed.incrementAndGet();
                error.printStackTrace();
            }
        });
        thread.start();
        return thread;
    }

    static DefaultMQProducer producer(String group) throws Exception {
        return started(new DefaultMQProducer(group));
    }

    static DefaultMQProducer transactional(String group) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(group);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        return started(producer);
    }

    static DefaultMQProducer started(DefaultMQProducer producer) throws Exception {
        producer.setNamesrvAddr(address);
        producer.setSendMsgTimeout(20_000);
        producer.start();
        return producer;
    }

    static DefaultMQPushConsumer consumer(String topic, Seen seen) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(topic);
        consumer.setNamesrvAddr(address);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            seen.all(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    static byte[] body(int size) {
        return "x".repeat(size).getBytes(StandardCharsets.UTF_8);
    }

    static double of(long[] sorted, double share) {
        return sorted.length == 0 ? 0 : sorted[(int) ((sorted.length - 1) * share)];
    }

    static long now() {
        return System.currentTimeMillis();
    }
}
