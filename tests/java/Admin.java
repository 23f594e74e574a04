import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Runs commands of mqadmin in one JVM: one on each line of the input, with a line "done" behind what each prints. */
public class Admin {
    public static void main(String[] arguments) throws Exception {
        System.setProperty("user.home", arguments[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "consume" -> consume(words[1], words[2], words[3]);
                case "produce" -> produce(words[1], words[2], words[3]);
                default -> MQAdminStartup.main0(words, null);
            }
            System.out.println(); // some commands leave their last line open
            System.out.println("done");
            System.out.flush();
        }
        System.exit(0);
    }

    private static void consume(String address, String group, String topic) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(address);
        consumer.setInstanceName("consuming");
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                System.err.println("got " + new String(message.getBody()));
            }
            System.err.flush();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    private static void produce(String address, String group, String topic) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(address);
        producer.setInstanceName("producing");
        producer.start();
        producer.send(new Message(topic, "paid".getBytes()));
    }
}
