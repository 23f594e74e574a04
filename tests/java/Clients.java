import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.FeatureMetadata;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.ShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Each argument after the address names something that Kafka's own clients do; a line is printed when it is done. */
public class Clients {
    static final Duration WAIT = Duration.ofSeconds(30);
    static String address;

    public static void main(String[] arguments) throws Exception {
        address = arguments[0];
        for (int place = 1; place < arguments.length; place++) {
            switch (arguments[place]) {
                case "admin" -> admin();
                case "features" -> features();
                case "settings" -> groupSettings();
                case "tokens" -> tokens();
                case "metrics" -> metrics();
                case "classic" -> consume("classic");
                case "consumer" -> consume("consumer");
                case "transactions" -> transactions();
                case "share" -> share();
                default -> throw new IllegalArgumentException(arguments[place]);
            }
            System.out.println("done " + arguments[place]);
            System.out.flush();
        }
    }

    static void check(boolean holds, Object found) {
        if (!holds) throw new AssertionError(String.valueOf(found));
    }

    static Properties settings(String... more) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        for (int place = 0; place < more.length; place += 2) settings.put(more[place], more[place + 1]);
        return settings;
    }

    static void create(String topic, int partitions) throws Exception {
        try (Admin admin = Admin.create(settings())) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
        }
    }

    static void produce(String topic, int count, String... more) throws Exception {
        try (Producer<String, String> producer = new KafkaProducer<>(settings(more))) {
            for (int number = 0; number < count; number++) {
                producer.send(new ProducerRecord<>(topic, "k" + number, "v" + number));
            }
            producer.flush();
        }
    }

    static void admin() throws Exception {
        try (Admin admin = Admin.create(settings())) {
            create("admin", 3);
            check(admin.describeTopics(List.of("admin")).allTopicNames().get().get("admin").partitions().size() == 3, "3");
            check(admin.describeCluster().nodes().get().size() == 1, "one node");
            check(admin.describeMetadataQuorum().quorumInfo().get().leaderId() == 1, "leader");
            ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "admin");
            AlterConfigOp op = new AlterConfigOp(new ConfigEntry("retention.ms", "1000"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(topic, List.of(op))).all().get();
            Config config = admin.describeConfigs(List.of(topic)).all().get().get(topic);
            check(config.get("retention.ms").value().equals("1000"), config.get("retention.ms"));
            admin.deleteTopics(List.of("admin")).all().get();
            check(!admin.listTopics().names().get().contains("admin"), "deleted");
        }
    }

    static void features() throws Exception {
        try (Admin admin = Admin.create(settings())) {
            FeatureMetadata found = admin.describeFeatures().featureMetadata().get();
            check(found.finalizedFeatures().get("metadata.version").maxVersionLevel() == 30, found);
            check(found.finalizedFeatures().get("streams.version").maxVersionLevel() == 1, found);
            check(found.supportedFeatures().get("transaction.version").maxVersion() == 2, found);
            FeatureUpdate same = new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE);
            admin.updateFeatures(Map.of("group.version", same), new UpdateFeaturesOptions()).all().get();
            FeatureUpdate less = new FeatureUpdate((short) 0, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE);
            String refused = refusal(() -> admin.updateFeatures(Map.of("group.version", less), new UpdateFeaturesOptions()).all().get());
            check(refused.equals("InvalidUpdateVersionException"), refused);
        }
    }

    static void groupSettings() throws Exception {
        try (Admin admin = Admin.create(settings())) {
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, "configured");
            String name = "consumer.session.timeout.ms";
            change(admin, group, name, "50000");
            ConfigEntry entry = admin.describeConfigs(List.of(group)).all().get().get(group).get(name);
            check(entry.value().equals("50000"), entry);
            check(entry.source() == ConfigEntry.ConfigSource.DYNAMIC_GROUP_CONFIG, entry);
            check(refusal(() -> change(admin, group, name, "1")).equals("InvalidConfigurationException"), name);
            check(admin.listConfigResources(Set.of(ConfigResource.Type.GROUP), new org.apache.kafka.clients.admin.ListConfigResourcesOptions()).all().get().contains(group), group);
        }
    }

    static Object change(Admin admin, ConfigResource resource, String name, String value) throws Exception {
        AlterConfigOp op = new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
        return admin.incrementalAlterConfigs(Map.of(resource, List.of(op))).all().get();
    }

    static void tokens() throws Exception {
        try (Admin admin = Admin.create(settings())) {
            String refused = refusal(() -> admin.createDelegationToken().delegationToken().get());
            check(refused.equals("UnsupportedByAuthenticationException"), refused);
        }
    }

    /** Asks for all metrics, and stays until the test has seen some arrive and says so. */
    static void metrics() throws Exception {
        create("measured", 1);
        try (Admin admin = Admin.create(settings())) {
            ConfigResource subscription = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, "all");
            change(admin, subscription, "interval.ms", "100");
            change(admin, subscription, "metrics", "*");
            check(admin.listConfigResources(Set.of(ConfigResource.Type.CLIENT_METRICS), new org.apache.kafka.clients.admin.ListConfigResourcesOptions()).all().get().contains(subscription), subscription);
        }
        try (Producer<String, String> producer = new KafkaProducer<>(settings("client.id", "measured"))) {
            producer.send(new ProducerRecord<>("measured", "x")).get();
            System.out.println("instance " + producer.clientInstanceId(WAIT));
            System.out.flush();
            System.in.read();
        }
    }

    interface Asking {
        Object ask() throws Exception;
    }

    static String refusal(Asking asking) throws Exception {
        try {
            asking.ask();
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
        return "accepted";
    }

    static void consume(String protocol) throws Exception {
        String topic = "records-" + protocol;
        create(topic, 3);
        produce(topic, 100, "compression.type", "zstd");
        String group = "group-" + protocol;
        Properties settings = settings("group.id", group, "group.protocol", protocol, "auto.offset.reset", "earliest", "enable.auto.commit", "false");
        Set<String> values = new TreeSet<>();
        try (Consumer<String, String> first = new KafkaConsumer<>(settings); Consumer<String, String> second = new KafkaConsumer<>(settings)) {
            first.subscribe(List.of(topic));
            second.subscribe(List.of(topic));
            long end = System.nanoTime() + WAIT.toNanos();
            while (System.nanoTime() < end && (values.size() < 100 || first.assignment().isEmpty() || second.assignment().isEmpty())) {
                first.poll(Duration.ofMillis(50)).forEach(record -> values.add(record.value()));
                first.commitSync();
                second.poll(Duration.ofMillis(50)).forEach(record -> values.add(record.value()));
                second.commitSync();
            }
            check(values.size() == 100, values.size());
            check(first.assignment().size() + second.assignment().size() == 3, first.assignment());
        }
        try (Admin admin = Admin.create(settings())) {
            long committed = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().values().stream().mapToLong(OffsetAndMetadata::offset).sum();
            check(committed == 100, committed);
            Collection<GroupListing> groups = admin.listGroups().all().get();
            check(groups.stream().anyMatch(each -> each.groupId().equals(group)), groups);
        }
    }

    static void transactions() throws Exception {
        create("tx-in", 1);
        create("tx-out", 1);
        produce("tx-in", 10);
        try (Consumer<String, String> reader = new KafkaConsumer<>(settings("group.id", "tx", "auto.offset.reset", "earliest", "enable.auto.commit", "false"));
             Producer<String, String> writer = new KafkaProducer<>(settings("transactional.id", "tx"))) {
            reader.subscribe(List.of("tx-in"));
            writer.initTransactions();
            writer.beginTransaction();
            writer.send(new ProducerRecord<>("tx-out", "lost"));
            writer.flush();
            writer.abortTransaction();
            int moved = 0;
            while (moved < 10) {
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                List<ConsumerRecord<String, String>> batch = new ArrayList<>();
                reader.poll(Duration.ofMillis(200)).forEach(batch::add);
                if (batch.isEmpty()) continue;
                writer.beginTransaction();
                for (ConsumerRecord<String, String> record : batch) {
                    writer.send(new ProducerRecord<>("tx-out", record.value()));
                    offsets.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
                    moved++;
                }
                writer.sendOffsetsToTransaction(offsets, reader.groupMetadata());
                writer.commitTransaction();
            }
        }
        List<String> seen = new ArrayList<>();
        try (Consumer<String, String> reader = new KafkaConsumer<>(settings("group.id", "tx-read", "auto.offset.reset", "earliest", "isolation.level", "read_committed"))) {
            reader.subscribe(List.of("tx-out"));
            while (seen.size() < 10) reader.poll(Duration.ofMillis(200)).forEach(record -> seen.add(record.value()));
        }
        check(!seen.contains("lost") && seen.size() == 10, seen);
    }

    static void share() throws Exception {
        create("shared", 2);
        try (Admin admin = Admin.create(settings())) {
            change(admin, new ConfigResource(ConfigResource.Type.GROUP, "shares"), "share.auto.offset.reset", "earliest");
        }
        produce("shared", 20);
        Set<String> accepted = new TreeSet<>();
        boolean released = false;
        Properties settings = settings("group.id", "shares", "share.acknowledgement.mode", "explicit");
        try (ShareConsumer<String, String> consumer = new KafkaShareConsumer<>(settings)) {
            consumer.subscribe(List.of("shared"));
            while (accepted.size() < 20) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    if (record.value().equals("v3") && !released) {
                        consumer.acknowledge(record, AcknowledgeType.RELEASE);
                        released = true;
                    } else {
                        consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                        accepted.add(record.value());
                    }
                }
                consumer.commitSync();
            }
        }
        check(released && accepted.contains("v3"), accepted);
    }
}
