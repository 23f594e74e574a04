import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Requests that wait for a reply. */
final class Requesting {
    static void requests() throws Exception {
        try (Rocket rocket = new Rocket()) {
            DefaultMQProducer asking = rocket.producer("asking");
            DefaultMQProducer replying = rocket.producer("replying");
            rocket.consumer("requests", "requests", "*", (MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt each : messages) {
                    if (Received.text(each).equals("nobody answers")) continue;
                    try {
                        Message reply = MessageUtil.createReplyMessage(each, ("reply to " + Received.text(each)).getBytes());
                        reply.putUserProperty("colour", "red");
                        replying.send(reply);
                    } catch (Exception refused) {
                        throw new IllegalStateException(refused);
                    }
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            for (String body : List.of("one", "two")) {
                Message reply = asking.request(Sending.message("requests", body), Rocket.WAIT_MS);
                Steps.check(Received.text(reply).equals("reply to " + body), reply);
                Steps.check(reply.getUserProperty("colour").equals("red"), reply);
            }
            CompletableFuture<Message> called = new CompletableFuture<>();
            asking.request(Sending.message("requests", "three"), new RequestCallback() {
                @Override
                public void onSuccess(Message message) {
                    if (message != null) called.complete(message); // the client also calls when the request is sent
                }

                @Override
                public void onException(Throwable error) {
                    called.completeExceptionally(error);
                }
            }, Rocket.WAIT_MS);
            Message reply = called.get(Rocket.WAIT_MS, TimeUnit.MILLISECONDS);
            Steps.check(Received.text(reply).equals("reply to three"), reply);
            try {
                asking.request(Sending.message("requests", "nobody answers"), 2000);
                throw new AssertionError("there is a reply");
            } catch (RequestTimeoutException expected) {
                Steps.check(expected.getErrorMessage().contains("timeout"), expected);
            }
        }
    }
}
