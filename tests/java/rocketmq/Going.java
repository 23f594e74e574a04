import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.exception.RemotingException;

final class Going {
    private static final int OFTEN = 50;

    /**
     * Producer, concurrent and orderly consumer, while the test restarts or kills the broker, and until it says that it will not do
     * so again. A line is printed now and then, when messages are accepted.
     */
    static void on() throws Exception {
        try (Rocket rocket = new Rocket()) {
            DefaultMQProducer producer = rocket.producer("going");
            producer.setRetryTimesWhenSendFailed(0);
            List<String> accepted = new ArrayList<>();
            send(producer, accepted, 0);
            Received received = new Received();
            Received inOrder = new Received();
            rocket.consumer("going", "going", "*", received);
            rocket.orderly("going-in-order", "going", (messages, context) -> {
                messages.forEach(inOrder::add);
                return org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus.SUCCESS;
            });
            received.waitFor(1);
            inOrder.waitFor(1);
            Steps.print("going");
            int number = 1;
            while (System.in.available() == 0) {
                if (send(producer, accepted, number++) && accepted.size() % OFTEN == 0) Steps.print("going");
                Thread.sleep(10);
            }
            int before = accepted.size();
            while (accepted.size() < before + 20) {
                send(producer, accepted, number++);
                Thread.sleep(10);
            }
            for (Received each : List.of(received, inOrder)) {
                // A message may come twice, and one that was not answered may have been stored.
                long deadline = System.currentTimeMillis() + Rocket.WAIT_MS;
                Set<String> missing = missing(accepted, each);
                while (!missing.isEmpty()) {
                    Steps.check(System.currentTimeMillis() < deadline, missing);
                    Thread.sleep(50);
                    missing = missing(accepted, each);
                }
            }
            checkOrder(inOrder.all());
            Steps.print("accepted " + accepted.size());
        }
    }

    /** Those of a queue come as they were sent. After a restart they may come again, from an earlier one on. */
    private static void checkOrder(List<MessageExt> found) {
        Map<Integer, Integer> last = new HashMap<>();
        Set<String> known = new HashSet<>();
        for (MessageExt message : found) {
            if (!known.add(Received.text(message))) continue;
            int number = Integer.parseInt(Received.text(message).substring(1));
            Integer before = last.put(message.getQueueId(), number);
            Steps.check(before == null || before < number, Received.texts(found));
        }
    }

    private static Set<String> missing(List<String> accepted, Received received) {
        Set<String> missing = new HashSet<>(accepted);
        missing.removeAll(Received.texts(received.all()));
        return missing;
    }

    /** What is not answered while the broker is away is not sent again. */
    private static boolean send(DefaultMQProducer producer, List<String> accepted, int number) throws InterruptedException {
        try {
            SendStatus status = producer.send(Sending.message("going", "m" + number), 3000).getSendStatus();
            return status == SendStatus.SEND_OK && accepted.add("m" + number);
        } catch (MQClientException | RemotingException | MQBrokerException away) {
            Thread.sleep(100);
            return false;
        }
    }
}
