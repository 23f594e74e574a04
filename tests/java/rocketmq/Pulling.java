import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** The consumer of old that does everything by itself. */
@SuppressWarnings("deprecation")
final class Pulling {
    static void pulls() throws Exception {
        try (Rocket rocket = new Rocket()) {
            DefaultMQProducer producer = rocket.producer("pulls");
            producer.send(new Message("pulls", "none", "creates the topic".getBytes()));
            MessageQueue queue = producer.fetchPublishMessageQueues("pulls").get(0);
            long begin = producer.maxOffset(queue);
            Thread.sleep(2); // so that no message is stored in the same millisecond
            long before = System.currentTimeMillis();
            for (int number = 0; number < 10; number++) {
                producer.send(new Message("pulls", number % 2 == 0 ? "even" : "odd", ("m" + number).getBytes()), queue);
            }
            DefaultMQPullConsumer consumer = rocket.pull("pulls");
            Set<MessageQueue> queues = consumer.fetchSubscribeMessageQueues("pulls");
            Steps.check(queues.size() == 4 && queues.contains(queue), queues);
            Steps.check(consumer.minOffset(queue) == 0 && consumer.maxOffset(queue) == begin + 10, consumer.maxOffset(queue));
            Steps.check(consumer.searchOffset(queue, before) == begin, consumer.searchOffset(queue, before));
            Steps.check(consumer.searchOffset(queue, before + 3_600_000) == begin + 10, queue);
            Steps.check(consumer.earliestMsgStoreTime(queue) <= System.currentTimeMillis(), queue);

            PullResult some = consumer.pull(queue, "*", begin, 4);
            expect(some, begin + 4, "m0", "m1", "m2", "m3");
            Steps.check(some.getMinOffset() == 0 && some.getMaxOffset() == begin + 10, some);
            expect(consumer.pull(queue, "odd", begin + 4, 32), begin + 10, "m5", "m7", "m9");
            Steps.check(consumer.pull(queue, "*", begin + 10, 32).getPullStatus() == PullStatus.NO_NEW_MSG, queue);
            Steps.check(consumer.pull(queue, "neither", begin, 32).getPullStatus() == PullStatus.NO_MATCHED_MSG, queue);
            Steps.check(consumer.pull(queue, "*", begin + 1000, 32).getPullStatus() == PullStatus.OFFSET_ILLEGAL, queue);

            consumer.updateConsumeOffset(queue, begin + 4);
            consumer.getDefaultMQPullConsumerImpl().getOffsetStore().persist(queue);
            // The client does not wait for an answer to a commit.
            long deadline = System.currentTimeMillis() + Rocket.WAIT_MS;
            while (consumer.fetchConsumeOffset(queue, true) != begin + 4) {
                Steps.check(System.currentTimeMillis() < deadline, consumer.fetchConsumeOffset(queue, true));
                Thread.sleep(50);
            }

            List<PullResult> waited = new ArrayList<>();
            Thread waiting = new Thread(() -> {
                try {
                    waited.add(consumer.pullBlockIfNotFound(queue, "*", begin + 10, 32));
                } catch (Exception failed) {
                    failed.printStackTrace();
                }
            });
            waiting.start();
            producer.send(new Message("pulls", "even", "late".getBytes()), queue);
            waiting.join(Rocket.WAIT_MS);
            expect(waited.get(0), begin + 11, "late");
        }
    }

    private static void expect(PullResult found, long next, String... bodies) {
        Steps.check(found.getPullStatus() == PullStatus.FOUND && found.getNextBeginOffset() == next, found);
        Steps.check(Received.texts(found.getMsgFoundList()).equals(List.of(bodies)), found);
    }
}
