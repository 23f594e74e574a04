import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendStatus;
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

    /**
     * Half messages, committed, rolled back or left to the check, as the first and the last word of each say, while the test kills
     * the broker, and until it says that it will not do so again. A line is printed now and then, when some are accepted.
     */
    static void deciding() throws Exception {
        try (Rocket rocket = new Rocket()) {
            TransactionMQProducer producer = rocket.transactional("deciding", Transactions::state, message ->
                Received.text(message).endsWith("rollback") ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.COMMIT_MESSAGE);
            producer.setRetryTimesWhenSendFailed(0);
            List<String> accepted = new ArrayList<>();
            decide(producer, accepted, 0);
            Received received = new Received();
            rocket.consumer("deciding", "deciding", "*", received);
            for (int number = 1, after = 0; after < 20; number++) {
                if (System.in.available() > 0) after++;
                if (decide(producer, accepted, number) && accepted.size() % 20 == 0) Steps.print("deciding");
                Thread.sleep(10);
            }
            Set<String> wanted = new HashSet<>(accepted);
            wanted.removeIf(each -> each.endsWith("rollback"));
            long deadline = System.currentTimeMillis() + Rocket.WAIT_MS;
            while (true) {
                Set<String> found = new HashSet<>(Received.texts(received.all()));
                for (String each : found) Steps.check(!each.endsWith("rollback"), each);
                if (found.containsAll(wanted)) break;
                wanted.removeAll(found);
                Steps.check(System.currentTimeMillis() < deadline, wanted);
                Thread.sleep(50);
            }
        }
    }

    /** One that is not answered while the broker is away may be there, and its fate is the same. */
    private static boolean decide(TransactionMQProducer producer, List<String> accepted, int number) throws InterruptedException {
        String body = List.of("commit-%d-commit", "rollback-%d-rollback", "unknown-%d-commit", "unknown-%d-rollback")
            .get(number % 4)
            .formatted(number);
        try {
            SendStatus status = producer.sendMessageInTransaction(half("deciding", body), null).getSendStatus();
            return status == SendStatus.SEND_OK && accepted.add(body);
        } catch (MQClientException away) {
            Thread.sleep(100);
            return false;
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
