import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.MQAdmin;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages that are found, and such that are taken back. */
final class Querying {
    private static final long FAR = Long.MAX_VALUE;

    /** By key and time, by the client's id and by the broker's, with a producer and with a consumer. */
    static void queries() throws Exception {
        try (Rocket rocket = new Rocket()) {
            DefaultMQProducer producer = rocket.producer("queries");
            long before = System.currentTimeMillis() - 1;
            Message first = new Message("queries", "red", "own1 shared", "straße 1".getBytes(StandardCharsets.UTF_8));
            first.putUserProperty("tenant", "blåu");
            SendResult sent = producer.send(first);
            producer.send(new Message("queries", "blue", "own2 shared", "straße 2".repeat(1000).getBytes(StandardCharsets.UTF_8)));
            producer.send(new Message("queries", "blue", "own3", "straße 3".getBytes(StandardCharsets.UTF_8)));
            DefaultMQPushConsumer consumer = rocket.consumer("queries", "queries", "*", new Received());

            for (MQAdmin client : List.of(producer, consumer)) {
                Steps.check(found(client, "shared", before, FAR).equals(Set.of("straße 1", "straße 2".repeat(1000))), client);
                Steps.check(found(client, "own3", before, FAR).equals(Set.of("straße 3")), client);
                check(client.viewMessage("queries", sent.getMsgId()), sent);
                // Clients of 4.9 do not say which topic the broker's id is of.
                if (MQVersion.CURRENT_VERSION >= MQVersion.Version.V5_0_0.ordinal()) {
                    check(client.viewMessage("queries", sent.getOffsetMsgId()), sent);
                }
            }
            check(producer.queryMessage("queries", "own1", 10, before, FAR).getMessageList().get(0), sent);
            Steps.check(producer.queryMessage("queries", "shared", 1, before, FAR).getMessageList().size() == 1, "more than one");
            for (String key : List.of("unknown", "share")) expectNone(producer, key, before, FAR);
            expectNone(producer, "shared", 0, before);
        }
    }

    private static Set<String> found(MQAdmin client, String key, long begin, long end) throws Exception {
        return new TreeSet<>(Received.texts(client.queryMessage("queries", key, 32, begin, end).getMessageList()));
    }

    private static void expectNone(DefaultMQProducer producer, String key, long begin, long end) throws Exception {
        try {
            throw new AssertionError(producer.queryMessage("queries", key, 32, begin, end));
        } catch (MQClientException none) {
            Steps.check(none.getErrorMessage().contains("no message"), none);
        }
    }

    private static void check(MessageExt message, SendResult sent) {
        Steps.check(Received.text(message).equals("straße 1"), message);
        Steps.check(message.getTags().equals("red") && message.getKeys().equals("own1 shared"), message);
        Steps.check(message.getUserProperty("tenant").equals("blåu"), message);
        Steps.check(message.getMsgId().equals(sent.getMsgId()), message);
        Steps.check(message.getQueueId() == sent.getMessageQueue().getQueueId(), message);
        Steps.check(message.getQueueOffset() == sent.getQueueOffset(), message);
    }

    /** Clients of 4.9 have no methods for that. */
    static void recall() throws Exception {
        try (Rocket rocket = new Rocket()) {
            DefaultMQProducer producer = rocket.producer("recall");
            String recalled = handle(producer.send(delayed("recalled", 4000)));
            String delivered = handle(producer.send(delayed("delivered", 4000)));
            for (int time = 0; time < 2; time++) Steps.check(!recall(producer, recalled).isEmpty(), recalled);
            Received received = new Received();
            rocket.consumer("recall", "recall", "*", received);
            received.expect(List.of("delivered"));
            try {
                throw new AssertionError(recall(producer, delivered));
            } catch (java.lang.reflect.InvocationTargetException refused) {
                Steps.check(((MQBrokerException) refused.getCause()).getResponseCode() == 604, refused.getCause());
            }
            producer.send(Sending.message("recall", "last"));
            received.expect(List.of("delivered", "last"));
        }
    }

    private static Message delayed(String body, long milliseconds) {
        Message message = Sending.message("recall", body);
        MessageAccessor.putProperty(message, "TIMER_DELAY_MS", String.valueOf(milliseconds));
        return message;
    }

    private static String handle(SendResult sent) throws Exception {
        return (String) SendResult.class.getMethod("getRecallHandle").invoke(sent);
    }

    private static String recall(DefaultMQProducer producer, String handle) throws Exception {
        return (String) DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class).invoke(producer, "recall", handle);
    }

    /** For a client that may not send: it prints the code of the answer. */
    static void refused() throws Exception {
        try (Rocket rocket = new Rocket()) {
            DefaultMQProducer producer = rocket.producer("refused");
            producer.setRetryTimesWhenSendFailed(0);
            try {
                throw new AssertionError(producer.send(Sending.message("refused", "body")));
            } catch (MQClientException refused) {
                // Of the last answer; 10005 if the client has not even learned where the topic is.
                Steps.print("code " + refused.getResponseCode());
            } catch (IllegalStateException away) {
                Steps.print(away.getCause().getClass().getSimpleName());
            }
        }
    }
}
