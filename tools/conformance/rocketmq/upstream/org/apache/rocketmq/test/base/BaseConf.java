package org.apache.rocketmq.test.base;

import java.util.List;
import java.util.Map;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.subscription.SubscriptionGroupManager;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.attribute.TopicMessageType;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.mockito.Mockito;

/**
 * Stands where upstream's tests start a name server and three brokers: it makes topics and groups in the broker whose address is in the
 * property `rocketmq.namesrv.addr`. It has what the tests of gRPC use.
 */
public class BaseConf {
    public static final String NAMESRV_ADDR = System.getProperty("rocketmq.namesrv.addr");
    protected static final String CLUSTER_NAME, BROKER1_NAME, BROKER2_NAME, BROKER3_NAME;
    /** The tests count on three brokers with eight queues of a topic each. */
    static final int QUEUES = 24, QUEUES_OF_ONE_BROKER = 8;

    protected static final BrokerController brokerController1, brokerController2, brokerController3;
    protected static final List<BrokerController> brokerControllerList;
    protected static final Map<String, BrokerController> brokerControllerMap;

    static final DefaultMQAdminExt ADMIN = new DefaultMQAdminExt(10_000);
    static final String ADDRESS;

    static {
        try {
            ADMIN.setNamesrvAddr(NAMESRV_ADDR);
            ADMIN.start();
            BrokerData broker = ADMIN.examineBrokerClusterInfo().getBrokerAddrTable().values().iterator().next();
            ADDRESS = broker.selectBrokerAddr();
            CLUSTER_NAME = broker.getCluster();
            BROKER1_NAME = BROKER2_NAME = BROKER3_NAME = broker.getBrokerName();
        } catch (Exception error) {
            throw new ExceptionInInitializerError(error);
        }
        brokerController1 = brokerController2 = brokerController3 = controller();
        brokerControllerList = List.of(brokerController1);
        brokerControllerMap = Map.of(BROKER1_NAME, brokerController1);
    }

    public static void shutdown() {
    }

    public static String initTopic() {
        return initTopic(TopicMessageType.NORMAL);
    }

    public static String initTopic(TopicMessageType type) {
        return created(type, QUEUES);
    }

    public static String initTopicOnSampleTopicBroker(String broker) {
        return initTopicOnSampleTopicBroker(broker, TopicMessageType.NORMAL);
    }

    public static String initTopicOnSampleTopicBroker(String broker, TopicMessageType type) {
        return created(type, QUEUES_OF_ONE_BROKER);
    }

    public static String initConsumerGroup(String group) {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(group);
        return initConsumerGroup(config);
    }

    public static String initConsumerGroup(SubscriptionGroupConfig config) {
        try {
            ADMIN.createAndUpdateSubscriptionGroupConfig(ADDRESS, config);
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
        return config.getGroupName();
    }

    private static String created(TopicMessageType type, int queues) {
        TopicConfig topic = new TopicConfig("topic-" + System.nanoTime(), queues, queues);
        topic.getAttributes().put("+message.type", type.getValue());
        try {
            ADMIN.createAndUpdateTopicConfig(ADDRESS, topic);
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
        return topic.getTopicName();
    }

    /** Of a broker in another process: only its groups can be changed. */
    private static BrokerController controller() {
        SubscriptionGroupManager groups = Mockito.mock(SubscriptionGroupManager.class);
        Mockito.when(groups.findSubscriptionGroupConfig(Mockito.anyString())).thenAnswer(asked -> {
            SubscriptionGroupConfig config = new SubscriptionGroupConfig();
            config.setGroupName(asked.getArgument(0));
            return config;
        });
        Mockito.doAnswer(asked -> initConsumerGroup((SubscriptionGroupConfig) asked.getArgument(0)))
            .when(groups).updateSubscriptionGroupConfig(Mockito.any());
        BrokerController controller = Mockito.mock(BrokerController.class);
        Mockito.when(controller.getBrokerConfig()).thenReturn(new BrokerConfig());
        Mockito.when(controller.getSubscriptionGroupManager()).thenReturn(groups);
        return controller;
    }
}
