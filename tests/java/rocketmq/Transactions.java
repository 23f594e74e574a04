import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

final class Transactions {
    /** Of a message whose body begins with this word, this is what becomes of it. */
    private static LocalTransactionState state(Message message) {
        return switch (Received.text(message).split("-")[0]) {
            case "commit" -> LocalTransactionState.COMMIT_MESSAGE;
            case "rollback" -> LocalTransactionState.ROLLBACK_MESSAGE;
            default -> LocalTransactionState.UNKNOW;
        };
    }

    private static Message half(String topic, String body) {
        Message message = Sending.message(topic, body);
        message.setKeys("key of " + body);
        message.putUserProperty("body", body);
        MessageAccessor.putProperty(message, "CHECK_IMMUNITY_TIME_IN_SECONDS", body.equals("orphan") ? "5" : "1");
        return message;
    }

    static void decided() throws Exception {
        try (Rocket rocket = new Rocket()) {
            Set<String> asked = ConcurrentHashMap.newKeySet();
            TransactionMQProducer producer = rocket.transactional("transactions", Transactions::state, message -> {
                String body = Received.text(message);
                asked.add(body);
                Steps.check(message.getTopic().equals("transactions"), message);
                Steps.check(body.equals(message.getUserProperty("body")), message);
                return body.endsWith("later-rollback") ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.COMMIT_MESSAGE;
            });
            for (String body : List.of("commit-1", "rollback-1", "unknown-later-commit", "unknown-later-rollback", "commit-2", "rollback-2")) {
                TransactionSendResult sent = producer.sendMessageInTransaction(half("transactions", body), null);
                Steps.check(sent.getLocalTransactionState() == state(Sending.message("", body)), sent);
            }
            Received received = new Received();
            rocket.consumer("transactions", "transactions", "*", received);
            received.expect(List.of("commit-1", "commit-2", "unknown-later-commit"));
            long deadline = System.currentTimeMillis() + Rocket.WAIT_MS;
            while (asked.size() < 2 && System.currentTimeMillis() < deadline) Thread.sleep(50);
            Steps.check(asked.equals(Set.of("unknown-later-commit", "unknown-later-rollback")), asked);
            for (MessageExt message : received.all()) {
                Steps.check(message.getKeys().equals("key of " + Received.text(message)), message);
                Steps.check(message.getUserProperty("body").equals(Received.text(message)), message);
            }
        }
    }

    /** Does not come back: the process ends after the half message and before its end. */
    static void crash() throws Exception {
        TransactionMQProducer producer = new Rocket().transactional("crash", message -> {
            Runtime.getRuntime().halt(7);
            return null;
        }, message -> null);
        producer.sendMessageInTransaction(half("crash", "orphan"), null);
    }

    /** Another producer of the group is asked about what the crashed one has left. One that sends nothing knows no broker. */
    static void takeover() throws Exception {
        try (Rocket rocket = new Rocket()) {
            Received asked = new Received();
            TransactionMQProducer producer = rocket.transactional("crash", Transactions::state, message -> {
                asked.add(message);
                return LocalTransactionState.COMMIT_MESSAGE;
            });
            producer.sendMessageInTransaction(half("crash", "commit-own"), null);
            Received received = new Received();
            rocket.consumer("takers", "crash", "*", received);
            received.expect(List.of("commit-own", "orphan"));
            asked.expect(List.of("orphan"));
        }
    }
}
