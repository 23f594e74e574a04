import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/** Clients of one step, with default settings but for what the step is about, and for patience; closed with it. */
final class Rocket implements AutoCloseable {
    static final long WAIT_MS = 90_000;
    static String address;
    /** Signs all requests, if there is an access key. */
    static final RPCHook LOGIN = System.getenv("ACCESS_KEY") == null
        ? null
        : new AclClientRPCHook(new SessionCredentials(System.getenv("ACCESS_KEY"), System.getenv("SECRET")));

    private final List<Runnable> closing = new ArrayList<>();

    interface Configured<C> {
        void with(C client) throws Exception;
    }

    DefaultMQProducer producer(String group) throws Exception {
        return started(new DefaultMQProducer(group, LOGIN));
    }

    DefaultMQProducer started(DefaultMQProducer producer) throws Exception {
        producer.setNamesrvAddr(address);
        producer.setSendMsgTimeout((int) WAIT_MS); // by default 3 s, in which a busy machine may start all steps
        producer.start();
        closing.add(0, producer::shutdown);
        return producer;
    }

    /** Local transactions end as the first argument says; what is asked back, as the second one. */
    TransactionMQProducer transactional(String group, java.util.function.Function<Message, LocalTransactionState> local,
            java.util.function.Function<MessageExt, LocalTransactionState> check) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(group, LOGIN);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return local.apply(message);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return check.apply(message);
            }
        });
        started(producer);
        return producer;
    }

    /** One thread, so that messages of a queue are seen in order. */
    DefaultMQPushConsumer consumer(String group, String topic, String tags, MessageListenerConcurrently listener) throws Exception {
        return consumer(pushConsumer(group), consumer -> {
            consumer.subscribe(topic, tags);
            consumer.registerMessageListener(listener);
        });
    }

    DefaultMQPushConsumer orderly(String group, String topic, MessageListenerOrderly listener) throws Exception {
        return consumer(pushConsumer(group), consumer -> {
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener(listener);
        });
    }

    private static DefaultMQPushConsumer pushConsumer(String group) {
        return new DefaultMQPushConsumer(group, LOGIN, new AllocateMessageQueueAveragely());
    }

    DefaultMQPushConsumer consumer(DefaultMQPushConsumer consumer, Configured<DefaultMQPushConsumer> configured) throws Exception {
        consumer.setNamesrvAddr(address);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        configured.with(consumer);
        consumer.start();
        closing.add(0, consumer::shutdown);
        return consumer;
    }

    @SuppressWarnings("deprecation")
    DefaultMQPullConsumer pull(String group) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group, LOGIN);
        consumer.setNamesrvAddr(address);
        consumer.start();
        closing.add(0, consumer::shutdown);
        return consumer;
    }

    DefaultLitePullConsumer lite(String group, Configured<DefaultLitePullConsumer> configured) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group, LOGIN);
        consumer.setNamesrvAddr(address);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        configured.with(consumer);
        consumer.start();
        closing.add(0, consumer::shutdown);
        return consumer;
    }

    /** A lite pull consumer that has all queues of the topic, from their first messages on. */
    DefaultLitePullConsumer reader(String group, String topic) throws Exception {
        DefaultLitePullConsumer consumer = lite(group, each -> each.setAutoCommit(false));
        Collection<MessageQueue> queues = queues(consumer, topic);
        consumer.assign(queues);
        for (MessageQueue queue : queues) consumer.seekToBegin(queue);
        return consumer;
    }

    /** Of a topic that may only be created now. */
    static Collection<MessageQueue> queues(DefaultLitePullConsumer consumer, String topic) throws Exception {
        long deadline = System.currentTimeMillis() + WAIT_MS;
        while (true) {
            try {
                return consumer.fetchMessageQueues(topic);
            } catch (org.apache.rocketmq.client.exception.MQClientException error) {
                if (System.currentTimeMillis() > deadline) throw error;
                Thread.sleep(100);
            }
        }
    }

    static List<MessageExt> poll(DefaultLitePullConsumer consumer, int count) {
        List<MessageExt> found = new ArrayList<>();
        long deadline = System.currentTimeMillis() + WAIT_MS;
        while (found.size() < count) {
            Steps.check(System.currentTimeMillis() < deadline, found);
            found.addAll(consumer.poll(200));
        }
        return found;
    }

    @Override
    public void close() {
        closing.forEach(Runnable::run);
    }
}
