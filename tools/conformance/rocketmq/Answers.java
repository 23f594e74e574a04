import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.body.ConsumerConnection;
import org.apache.rocketmq.remoting.protocol.body.LockBatchRequestBody;
import org.apache.rocketmq.remoting.protocol.body.LockBatchResponseBody;
import org.apache.rocketmq.remoting.protocol.body.UnlockBatchRequestBody;
import org.apache.rocketmq.remoting.protocol.header.GetConsumerListByGroupResponseBody;
import org.apache.rocketmq.remoting.protocol.heartbeat.ConsumeType;
import org.apache.rocketmq.remoting.protocol.heartbeat.ConsumerData;
import org.apache.rocketmq.remoting.protocol.heartbeat.HeartbeatData;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.remoting.protocol.heartbeat.ProducerData;
import org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.remoting.protocol.route.TopicRouteData;

/**
 * Requests by the stock remoting client, and what is answered, without what differs from run to run. One line is printed for
 * each step: its name, the code of the answer, its fields, and what its body means, separated by tabs.
 */
public class Answers {
    static final int WAIT_MS = 20_000;
    static final String GROUP = "answers", CLIENT = "10.0.0.1@answers";
    /** Of these only the presence is compared: they have addresses, times and numbers of the broker's own. */
    static final Set<String> OPAQUE = Set.of("msgId", "recallHandle");
    /** Fields and properties that are not compared; docs/rocketmq.md says why. */
    static final Set<String> IGNORED = Set.of("transactionId", "MSG_REGION", "TRACE_ON", "CLUSTER", "groupSysFlag", "topicSysFlag",
        "indexLastUpdatePhyoffset", "indexLastUpdateTimestamp", "IS_SUB_CHANGE", "IS_SUPPORT_HEART_BEAT_V2");
    static final String OWN_ID = "0".repeat(24);
    static final String PRIORITY = "_SYS_MSG_PRIORITY_\1";

    static NettyRemotingClient client;
    static String names, broker;
    static RemotingCommand last;

    public static void main(String[] arguments) throws Exception {
        names = arguments[0];
        client = new NettyRemotingClient(new NettyClientConfig());
        client.registerRPCHook(new RPCHook() {
            @Override
            public void doBeforeRequest(String address, RemotingCommand request) {
            }

            @Override
            public void doAfterResponse(String address, RemotingCommand request, RemotingCommand response) {
                last = response;
            }
        });
        client.start();
        client.updateNameServerAddressList(List.of(names));
        try {
            steps();
        } catch (Throwable error) {  // the client's threads would keep the program running
            error.printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }

    static void steps() throws Exception {
        create("answers");
        routes();
        sends();
        badSends();
        pulls();
        offsets();
        queries();
        members();
        locks();
        sendsBack();
        transactions();
        others();
    }

    // Steps

    /** The broker is told by the route of the topic that stands for all that do not exist. */
    static void create(String topic) throws Exception {
        for (long deadline = now() + WAIT_MS; broker == null && now() < deadline; Thread.sleep(100)) {
            RemotingCommand answer = call(names, 105, null, "topic", "TBW102");
            if (answer.getCode() != 0) continue;
            TopicRouteData route = TopicRouteData.decode(answer.getBody(), TopicRouteData.class);
            if (!route.getBrokerDatas().isEmpty()) broker = route.getBrokerDatas().get(0).selectBrokerAddr();
        }
        RemotingCommand answer = call(broker, 17, null, "topic", topic, "defaultTopic", "TBW102", "readQueueNums", "4", "writeQueueNums", "4",
            "perm", "6", "topicFilterType", "SINGLE_TAG", "topicSysFlag", "0", "order", "false");
        check(answer.getCode() == 0, answer);
        for (long deadline = now() + WAIT_MS; call(names, 105, null, "topic", topic).getCode() != 0; Thread.sleep(100)) check(now() < deadline, "no route");
    }

    static void routes() throws Exception {
        step("route of a topic", call(names, 105, null, "topic", "answers"));
        step("route of an unknown topic", call(names, 105, null, "topic", "nothing"));
        step("route of TBW102", call(names, 105, null, "topic", "TBW102"));
        step("route without a topic", call(names, 105, null));
    }

    static void sends() throws Exception {
        step("send", send("answers", 0, "TAGS\1red\2KEYS\1k1 k2\2UNIQ_KEY\1" + unique(1) + "\2", "one"));
        step("send, second message of a queue", send("answers", 0, "TAGS\1blue\2KEYS\1k1\2UNIQ_KEY\1" + unique(2) + "\2own\1value\2", "two"));
        step("send without properties", send("answers", 0, "", "three"));
        step("send with long names of fields", call(broker, 10, bytes("four"), "producerGroup", GROUP, "topic", "answers", "defaultTopic", "TBW102",
            "defaultTopicQueueNums", "4", "queueId", "1", "sysFlag", "0", "bornTimestamp", "" + now(), "flag", "7", "properties", "", "reconsumeTimes", "0"));
        List<Message> batch = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            Message each = new Message("answers", bytes("batch-" + number));
            each.setKeys("b" + number);
            batch.add(each);
        }
        step("batch of three", call(broker, 320, MessageDecoder.encodeMessages(batch), fields("answers", 2, "UNIQ_KEY\1" + unique(3) + "," + unique(4) + "," + unique(5) + "\2", "m", "true")));
        step("batch without messages", call(broker, 320, new byte[0], fields("answers", 2, "", "m", "true")));
        RemotingCommand oneway = RemotingCommand.createRequestCommand(310, null);
        put(oneway, fields("answers", 3, ""));
        oneway.setBody(bytes("oneway"));
        client.invokeOneway(broker, oneway, 5000);
        for (long deadline = now() + WAIT_MS; offset(30, 3) < 1; Thread.sleep(50)) check(now() < deadline, "no oneway message");
        step("end of the queue after a oneway send", last);
        step("send with a delay level", send("answers", 3, "DELAY\0018\2UNIQ_KEY\1" + unique(6) + "\2", "later"));
        step("send with a delay of an hour", send("answers", 3, "TIMER_DELAY_SEC\0013600\2UNIQ_KEY\1" + unique(7) + "\2", "later"));
        step("send with a delay of ten days", send("answers", 3, "TIMER_DELAY_SEC\001864000\2", "later"));
        step("send with a priority", send("priorities", 0, PRIORITY + "2\2", "high"));
        step("send with a priority above the queues", send("priorities", 0, PRIORITY + "9\2", "highest"));
        step("send with a priority that is no number", send("priorities", 0, PRIORITY + "high\2", "none"));
        step("send with a priority and a sharding key", send("priorities", 0, PRIORITY + "2\2__SHARDINGKEY\1key\2", "ordered"));
        step("send to any queue", send("elsewhere", -1, "", "any"), "queueId", "queueOffset");
        step("send to a new topic", send("created", 0, "", "first"));
        step("send with the name of an unknown default topic", call(broker, 310, bytes("x"), replaced(fields("uncreated", 0, ""), "c", "missing")));
    }

    static void badSends() throws Exception {
        step("send to a queue that is not there", send("answers", 99, "", "x"));
        step("send without a body", call(broker, 310, null, fields("elsewhere", 0, "")), "queueOffset");
        step("send with a body of 5 MiB", call(broker, 310, new byte[5 << 20], fields("answers", 0, "")));
        step("send with properties of 33,000 bytes", send("answers", 0, "own\1" + "v".repeat(33_000) + "\2", "x"));
        step("send with properties that are none", send("answers", 1, "no separators", "x"));
        step("send with a property without a name", send("answers", 1, "\1value\2", "x"));
        step("send to a topic with a blank in its name", send("an swers", 0, "", "x"));
        step("send to a topic with a name of 128 letters", send("t".repeat(128), 0, "", "x"));
        step("send to a topic without a name", send("", 0, "", "x"));
        step("send to SCHEDULE_TOPIC_XXXX", send("SCHEDULE_TOPIC_XXXX", 0, "", "x"));
        step("send to TBW102", send("TBW102", 0, "", "x"));
        step("send to RMQ_SYS_TRACE_TOPIC", send("RMQ_SYS_TRACE_TOPIC", 0, "", "x"));
        step("send without fields", call(broker, 310, bytes("x")));
        step("send with a queue that is no number", call(broker, 310, bytes("x"), replaced(fields("answers", 0, ""), "e", "zero")));
        step("send with a delay that is no number", send("answers", 3, "TIMER_DELAY_SEC\1soon\2", "x"));
        step("send to a lite topic", send("answers", 3, "__LITE_TOPIC\1lite\2", "x"));
        step("send with a delay level of 99", send("answers", 3, "DELAY\00199\2", "x"));
    }

    static void pulls() throws Exception {
        heartbeat("*");
        for (long deadline = now() + WAIT_MS; offset(30, 0) < 3; Thread.sleep(50)) check(now() < deadline, "three messages");
        step("pull", pull("answers", 0, 0, "*"));
        step("pull from the second message on", pull("answers", 0, 1, "*"));
        step("pull of one message", call(broker, 11, null, replaced(pullFields("answers", 0, 0, "*"), "maxMsgNums", "1")));
        step("pull of no message", call(broker, 11, null, replaced(pullFields("answers", 0, 0, "*"), "maxMsgNums", "0")));
        step("pull of a batch", pull("answers", 2, 0, "*"));
        step("lite pull", call(broker, 361, null, pullFields("answers", 0, 0, "*")));
        step("pull of a message with a priority", pull("priorities", 2, 0, "*"));
        step("pull of messages whose priority does not count", pull("priorities", 0, 0, "*"));
        step("pull by tag", pull("answers", 0, 0, "blue"));
        step("pull by a tag of no message", pull("answers", 0, 0, "green"));
        step("pull at the end", pull("answers", 0, 3, "*"));
        step("pull behind the end", pull("answers", 0, 100, "*"));
        step("pull from a negative offset", pull("answers", 0, -5, "*"));
        step("pull of an empty queue", pull("created", 1, 0, "*"));
        step("pull of an unknown topic", pull("nothing", 0, 0, "*"));
        step("pull of a queue that is not there", pull("answers", 99, 0, "*"));
        step("pull without a group", call(broker, 11, null, replaced(pullFields("answers", 0, 0, "*"), "consumerGroup", "")));
        step("pull of an unknown group", call(broker, 11, null, replaced(pullFields("answers", 0, 0, "*"), "consumerGroup", "strangers")));
        String[] unsaid = replaced(pullFields("answers", 0, 0, "*"), "sysFlag", "0");
        step("pull with the subscription of the heartbeat", call(broker, 11, null, unsaid));
        step("pull without a subscription", call(broker, 11, null, replaced(unsaid, "consumerGroup", "strangers")));
        String[] sql = replaced(pullFields("answers", 0, 0, "own = 'value'"), "expressionType", "SQL92");
        step("pull by SQL", call(broker, 11, null, sql));
        step("pull by SQL that is none", call(broker, 11, null, replaced(sql, "subscription", "own = = 'value'")));
        step("pull without fields", call(broker, 11, null));
    }

    static void offsets() throws Exception {
        for (Map.Entry<String, Integer> each : new TreeMap<>(Map.of("greatest", 30, "least", 31)).entrySet()) {
            String name = each.getKey() + " offset";
            step(name, call(broker, each.getValue(), null, "topic", "answers", "queueId", "0"));
            step(name + " of an empty queue", call(broker, each.getValue(), null, "topic", "created", "queueId", "1"));
            step(name + " of an unknown topic", call(broker, each.getValue(), null, "topic", "nothing", "queueId", "0"));
            step(name + " of a queue that is not there", call(broker, each.getValue(), null, "topic", "answers", "queueId", "99"));
        }
        step("offset by time, the beginning", call(broker, 29, null, "topic", "answers", "queueId", "0", "timestamp", "0"));
        step("offset by time, in an hour", call(broker, 29, null, "topic", "answers", "queueId", "0", "timestamp", "" + (now() + 3_600_000)));
        step("offset by time, of an unknown topic", call(broker, 29, null, "topic", "nothing", "queueId", "0", "timestamp", "0"));
        step("committed offset, none, of a queue with a first message", committed("answers", 0));
        step("committed offset, none, of an unknown topic", committed("nothing", 0));
        step("commit", commit("answers", 0, 2));
        step("committed offset", committed("answers", 0));
        step("commit of an earlier offset", commit("answers", 0, 1));
        step("committed offset, the earlier one", committed("answers", 0));
        step("commit behind the end", commit("answers", 0, 1000));
        step("committed offset behind the end", committed("answers", 0));
        step("commit of a negative offset", commit("answers", 0, -1));
        step("commit in an unknown topic", commit("nothing", 0, 1));
        step("commit in a queue that is not there", commit("answers", 99, 1));
        step("commit without an offset", call(broker, 15, null, "consumerGroup", GROUP, "topic", "answers", "queueId", "0"));
    }

    static void queries() throws Exception {
        step("query by key", query("k1", 2));
        step("query by the other key of a message", query("k2", 1));
        step("query by a key of no message", query("k3", 0));
        step("query by the producer's id", call(broker, 12, null, queryFields("answers", unique(1), "_UNIQUE_KEY_QUERY", "true")));
        step("query in an unknown topic", call(broker, 12, null, queryFields("nothing", "k1")));
        step("query without fields", call(broker, 12, null));
        MessageExt first = MessageDecoder.decodes(ByteBuffer.wrap(pull("answers", 0, 0, "*").getBody())).get(0);
        step("message by the broker's id", call(broker, 33, null, "topic", "answers", "offset", "" + first.getCommitLogOffset()));
        step("message by a number that is no message's", call(broker, 33, null, "topic", "answers", "offset", "999999999999"));
        step("message by a negative number", call(broker, 33, null, "topic", "answers", "offset", "-1"));
    }

    static void members() throws Exception {
        step("heartbeat", heartbeat("*"));
        step("members of a group", call(broker, 38, null, "consumerGroup", GROUP));
        step("members of an unknown group", call(broker, 38, null, "consumerGroup", "strangers"));
        step("connections of a group", call(broker, 203, null, "consumerGroup", GROUP));
        step("connections of an unknown group", call(broker, 203, null, "consumerGroup", "strangers"));
        step("heartbeat that is no JSON", call(broker, 34, bytes("no JSON")));
        step("heartbeat without a body", call(broker, 34, null));
        step("check of a filter by SQL", filter("own = 'value'"));
        step("check of a filter that is no SQL", filter("own = = 'value'"));
    }

    static void locks() throws Exception {
        step("lock", lock("first", 0, 1));
        step("lock again", lock("first", 0, 1));
        step("lock by another client", lock("second", 0, 2));
        UnlockBatchRequestBody body = new UnlockBatchRequestBody();
        body.setConsumerGroup(GROUP);
        body.setClientId("first");
        body.setMqSet(queues(0));
        step("unlock", call(broker, 42, body.encode()));
        step("lock by another client, after that", lock("second", 0, 1));
        step("lock of a queue that is not there", lock("first", 99));
        step("lock without a body", call(broker, 41, null));
    }

    static void sendsBack() throws Exception {
        MessageExt first = MessageDecoder.decodes(ByteBuffer.wrap(pull("answers", 0, 0, "*").getBody())).get(0);
        String position = "" + first.getCommitLogOffset();
        step("send back", back(position, GROUP, "0"));
        step("send back to the dead letters", back(position, GROUP, "-1"));
        step("send back what is no message", back("999999999999", GROUP, "0"));
        step("send back by an unknown group", back(position, "strangers", "0"));
        step("send back without fields", call(broker, 36, null));
        step("route of dead letters", call(names, 105, null, "topic", "%DLQ%" + GROUP), "perm");
    }

    static void transactions() throws Exception {
        RemotingCommand half = send("answers", 1, "TRAN_MSG\1true\2PGROUP\1" + GROUP + "\2UNIQ_KEY\1" + unique(8) + "\2", "half");
        step("half message", half, "queueOffset", "queueId");
        String id = half.getExtFields().get("msgId");
        String position = "" + MessageDecoder.decodeMessageId(id).getOffset(), offset = half.getExtFields().get("queueOffset");
        long before = offset(30, 1);
        step("commit of another group", end(position, offset, "strangers", "8", unique(8), id));
        step("commit of a half message", end(position, offset, GROUP, "8", unique(8), id));
        for (long deadline = now() + WAIT_MS; offset(30, 1) <= before; Thread.sleep(50)) check(now() < deadline, "no committed message");
        step("pull of a committed message", pull("answers", 1, before, "*"));
        step("commit of a half message again", end(position, offset, GROUP, "8", unique(8), id));
        step("roll-back of a committed message", end(position, offset, GROUP, "12", unique(8), id));
        step("commit of what is no message", end("999999999999", "0", GROUP, "8", unique(9), id));
        step("commit with an unknown decision", end(position, offset, GROUP, "5", unique(8), id));
    }

    static void others() throws Exception {
        step("unknown request", call(broker, 9999, null));
        step("unregister", call(broker, 35, null, "clientID", CLIENT, "producerGroup", GROUP, "consumerGroup", GROUP));
        step("members of a group that has left", call(broker, 38, null, "consumerGroup", GROUP));
        step("configuration of an unknown topic", call(broker, 351, null, "topic", "nothing"));
        step("statistics of an unknown topic", call(broker, 202, null, "topic", "nothing"));
        step("progress of an unknown group", call(broker, 208, null, "consumerGroup", "strangers"));
        step("recall without a handle", call(broker, 370, null, "topic", "answers", "producerGroup", GROUP));
        step("recall by a handle of nobody", call(broker, 370, null, "topic", "answers", "producerGroup", GROUP, "recallHandle", "bm9ib2R5"));
    }

    // Requests

    static RemotingCommand call(String address, int code, byte[] body, String... fields) throws Exception {
        RemotingCommand request = RemotingCommand.createRequestCommand(code, null);
        put(request, fields);
        request.setBody(body);
        last = null;
        try {
            client.invokeSync(address, request, WAIT_MS);
        } catch (org.apache.rocketmq.remoting.exception.RemotingException error) {
            return last = RemotingCommand.createResponseCommand(-1, "no answer: " + error);
        }
        return last;
    }

    static void put(RemotingCommand request, String... fields) {
        for (int at = 0; at < fields.length; at += 2) request.addExtField(fields[at], fields[at + 1]);
    }

    static RemotingCommand send(String topic, int queue, String properties, String body) throws Exception {
        return call(broker, 310, bytes(body), fields(topic, queue, properties));
    }

    static String[] fields(String topic, int queue, String properties, String... more) {
        List<String> fields = new ArrayList<>(List.of("a", GROUP, "b", topic, "c", "TBW102", "d", "4", "e", "" + queue, "f",
            properties.contains("TRAN_MSG") ? "4" : "0", "g", "" + now(), "h", "7", "i", properties, "j", "0", "k", "false"));
        fields.addAll(Arrays.asList(more));
        return fields.toArray(new String[0]);
    }

    static String[] replaced(String[] fields, String name, String value) {
        String[] changed = fields.clone();
        for (int at = 0; at < changed.length; at += 2) if (changed[at].equals(name)) changed[at + 1] = value;
        return changed;
    }

    static RemotingCommand pull(String topic, int queue, long offset, String tags) throws Exception {
        return call(broker, 11, null, pullFields(topic, queue, offset, tags));
    }

    static String[] pullFields(String topic, int queue, long offset, String tags) {
        return new String[] {"consumerGroup", GROUP, "topic", topic, "queueId", "" + queue, "queueOffset", "" + offset, "maxMsgNums", "32", "sysFlag", "4",
            "commitOffset", "0", "suspendTimeoutMillis", "0", "subscription", tags, "subVersion", "0", "expressionType", "TAG"};
    }

    static long offset(int code, int queue) throws Exception {
        return Long.parseLong(call(broker, code, null, "topic", "answers", "queueId", "" + queue).getExtFields().get("offset"));
    }

    static RemotingCommand committed(String topic, int queue) throws Exception {
        return call(broker, 14, null, "consumerGroup", GROUP, "topic", topic, "queueId", "" + queue);
    }

    static RemotingCommand commit(String topic, int queue, long offset) throws Exception {
        return call(broker, 15, null, "consumerGroup", GROUP, "topic", topic, "queueId", "" + queue, "commitOffset", "" + offset);
    }

    /** The index is made in the background, so that what is wanted may come later. */
    static RemotingCommand query(String key, int wanted) throws Exception {
        RemotingCommand answer = call(broker, 12, null, queryFields("answers", key));
        for (long deadline = now() + WAIT_MS; wanted > 0 && found(answer) < wanted && now() < deadline; Thread.sleep(200)) {
            answer = call(broker, 12, null, queryFields("answers", key));
        }
        return answer;
    }

    static int found(RemotingCommand answer) {
        return answer.getBody() == null ? 0 : MessageDecoder.decodes(ByteBuffer.wrap(answer.getBody())).size();
    }

    static String[] queryFields(String topic, String key, String... more) {
        List<String> fields = new ArrayList<>(List.of("topic", topic, "key", key, "maxNum", "32", "beginTimestamp", "0", "endTimestamp", "" + (now() + 60_000)));
        fields.addAll(Arrays.asList(more));
        return fields.toArray(new String[0]);
    }

    static RemotingCommand heartbeat(String tags) throws Exception {
        HeartbeatData heartbeat = new HeartbeatData();
        heartbeat.setClientID(CLIENT);
        ProducerData producer = new ProducerData();
        producer.setGroupName(GROUP);
        heartbeat.setProducerDataSet(Set.of(producer));
        heartbeat.setConsumerDataSet(Set.of(consumer(tags)));
        return call(broker, 34, heartbeat.encode());
    }

    static ConsumerData consumer(String tags) throws Exception {
        ConsumerData consumer = new ConsumerData();
        consumer.setGroupName(GROUP);
        consumer.setConsumeType(ConsumeType.CONSUME_PASSIVELY);
        consumer.setMessageModel(MessageModel.CLUSTERING);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setSubscriptionDataSet(Set.of(new SubscriptionData("answers", tags)));
        return consumer;
    }

    static RemotingCommand filter(String expression) throws Exception {
        String body = "{\"clientId\":\"" + CLIENT + "\",\"group\":\"" + GROUP + "\",\"namespace\":\"\",\"subscriptionData\":{\"topic\":\"answers\",\"subString\":\""
            + expression + "\",\"expressionType\":\"SQL92\",\"subVersion\":1}}";
        return call(broker, 46, bytes(body));
    }

    static RemotingCommand lock(String clientId, int... queues) throws Exception {
        LockBatchRequestBody body = new LockBatchRequestBody();
        body.setConsumerGroup(GROUP);
        body.setClientId(clientId);
        body.setMqSet(queues(queues));
        return call(broker, 41, body.encode());
    }

    static Set<MessageQueue> queues(int... numbers) {
        Set<MessageQueue> queues = new java.util.HashSet<>();
        for (int number : numbers) queues.add(new MessageQueue("answers", "broker", number));
        return queues;
    }

    static RemotingCommand back(String position, String group, String level) throws Exception {
        return call(broker, 36, null, "offset", position, "group", group, "delayLevel", level, "originMsgId", unique(1), "originTopic", "answers",
            "unitMode", "false", "maxReconsumeTimes", "16");
    }

    static RemotingCommand end(String position, String offset, String group, String decision, String unique, String id) throws Exception {
        return call(broker, 37, null, "topic", "answers", "producerGroup", group, "tranStateTableOffset", offset, "commitLogOffset", position,
            "commitOrRollback", decision, "fromTransactionCheck", "false", "msgId", unique, "transactionId", unique);
    }

    // Answers

    static void step(String name, RemotingCommand answer, String... opaque) throws Exception {
        Map<String, String> fields = new TreeMap<>(answer.getExtFields() == null ? Map.of() : answer.getExtFields());
        fields.keySet().removeAll(IGNORED);
        fields.replaceAll((field, value) -> OPAQUE.contains(field) || Arrays.asList(opaque).contains(field) ? "…" : value);
        System.out.println(name + "\t" + answer.getCode() + "\t" + fields + "\t" + meaning(name, answer) + "\t"
            + String.valueOf(answer.getRemark()).replaceAll("\\s+", " "));
    }

    /** What a body says that does not differ from run to run. */
    static String meaning(String name, RemotingCommand answer) throws Exception {
        byte[] body = answer.getBody();
        if (body == null || body.length == 0) return "";
        if (name.startsWith("pull") || name.startsWith("lite pull") || name.startsWith("query") || name.startsWith("message by")) {
            return MessageDecoder.decodes(ByteBuffer.wrap(body)).stream().map(Answers::shown).sorted().toList().toString();
        }
        if (name.startsWith("route")) {
            TopicRouteData route = TopicRouteData.decode(body, TopicRouteData.class);
            return route.getBrokerDatas().size() + " brokers, "
                + route.getQueueDatas().stream().map(each -> each.getReadQueueNums() + " " + each.getWriteQueueNums() + " " + each.getPerm()).toList();
        }
        if (name.startsWith("members")) {
            return String.valueOf(RemotingSerializable.decode(body, GetConsumerListByGroupResponseBody.class).getConsumerIdList());
        }
        if (name.startsWith("lock")) {
            return new TreeSet<>(RemotingSerializable.decode(body, LockBatchResponseBody.class).getLockOKMQSet().stream().map(MessageQueue::getQueueId).toList()).toString();
        }
        if (name.startsWith("connections")) {
            ConsumerConnection found = RemotingSerializable.decode(body, ConsumerConnection.class);
            return found.getConnectionSet().size() + " " + found.getSubscriptionTable().keySet() + " " + found.getConsumeType() + " " + found.getMessageModel();
        }
        return "a body";
    }

    static String shown(MessageExt message) {
        Map<String, String> properties = new TreeMap<>(message.getProperties());
        properties.keySet().removeAll(IGNORED);
        properties.computeIfPresent("UNIQ_KEY", (name, value) -> value.startsWith(OWN_ID) ? value : null);  // or the broker's
        return (message.getBody() == null ? "nothing" : new String(message.getBody(), StandardCharsets.UTF_8)) + " " + message.getTopic() + " " + message.getQueueId() + " " + message.getQueueOffset()
            + " flag " + message.getFlag() + " system flags " + message.getSysFlag() + " times " + message.getReconsumeTimes() + " " + properties;
    }

    static String unique(int number) {
        return String.format("%032X", number);
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static long now() {
        return System.currentTimeMillis();
    }

    static void check(boolean holds, Object found) {
        if (!holds) throw new AssertionError(String.valueOf(found));
    }
}
