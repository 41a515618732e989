import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * What a program does with the share consumer and the share groups of kafka-clients 4.2 and newer (KIP-932).
 *
 * Usage: ShareLife BOOTSTRAP PREFIX. PREFIX begins the names of topics and groups, so that releases do not meet. Each
 * step prints what was seen, after "WRONG" where it may not be so. A record is shown as its offset and, after an x, its
 * delivery count. Kafka writes a start offset later than Ottla, so two lines of offsets are right.
 */
public class ShareLife {
    static final String OK = "[Optional.empty]";
    static String bootstrap;
    static String prefix;
    static Admin admin;
    static boolean isWrong;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        prefix = args[1];
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        admin = Admin.create(properties);
        implicitMode();
        explicitMode();
        deliveryLimit();
        twoMembers();
        closing();
        timeOut();
        renewing();
        committedOnly();
        administration();
        admin.close();
        if (isWrong) System.exit(1);
        System.out.println("share life done");
    }

    // --- steps

    static void implicitMode() throws Exception {
        String topic = topic("implicit", 1), group = group("implicit");
        produce(topic, 0, 10);
        try (KafkaShareConsumer<String, String> member = member(group, topic, "implicit")) {
            say("implicit", shown(poll(member, 10, 30)), "0x1 1x1 2x1 3x1 4x1 5x1 6x1 7x1 8x1 9x1");
            member.commitSync();
        }
        try (KafkaShareConsumer<String, String> member = member(group, topic, "implicit")) {
            say("implicit, none is left", shown(poll(member, 1, 8)), "");
            produce(topic, 10, 12);
            say("implicit, new ones", shown(poll(member, 2, 20)), "10x1 11x1");
        }
    }

    static void explicitMode() throws Exception {
        String topic = topic("explicit", 1), group = group("explicit");
        produce(topic, 0, 6);
        try (KafkaShareConsumer<String, String> member = member(group, topic, "explicit")) {
            List<ConsumerRecord<String, String>> first = poll(member, 6, 30);
            say("explicit", shown(first), "0x1 1x1 2x1 3x1 4x1 5x1");
            AcknowledgeType[] types = {AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT};
            for (ConsumerRecord<String, String> record : first)
                member.acknowledge(record, types[(int) record.offset() / 2]);
            say("explicit, acknowledged", member.commitSync().values(), OK);
            List<ConsumerRecord<String, String>> second = poll(member, 2, 20);
            say("explicit, what was released comes again", shown(second), "2x2 3x2");
            for (ConsumerRecord<String, String> record : second) member.acknowledge(record, AcknowledgeType.ACCEPT);
            say("explicit, accepted", member.commitSync().values(), OK);
        }
        say("explicit, offsets", offsets(group), topic + "-0=6 lag 0", topic + "-0=2 lag 0");
    }

    static void deliveryLimit() throws Exception {
        String topic = topic("limit", 1), group = group("limit", "share.delivery.count.limit", "3");
        produce(topic, 0, 1);
        StringBuilder seen = new StringBuilder();
        try (KafkaShareConsumer<String, String> member = member(group, topic, "explicit")) {
            for (int round = 0; round < 4; round++) {
                List<ConsumerRecord<String, String>> some = poll(member, 1, round == 3 ? 6 : 20);
                seen.append(shown(some)).append(';');
                for (ConsumerRecord<String, String> record : some) member.acknowledge(record, AcknowledgeType.RELEASE);
                member.commitSync();
            }
        }
        say("delivery limit", seen, "0x1;0x2;0x3;;");
    }

    static void twoMembers() throws Exception {
        String topic = topic("two", 1), group = group("two");
        produce(topic, 0, 400);
        ExecutorService pool = Executors.newFixedThreadPool(2);
        List<Future<List<ConsumerRecord<String, String>>>> futures = new ArrayList<>();
        for (int number = 0; number < 2; number++)
            futures.add(pool.submit(() -> {
                try (KafkaShareConsumer<String, String> member = member(group, topic, "implicit", "max.poll.records", "50")) {
                    List<ConsumerRecord<String, String>> all = poll(member, 400, 12);
                    member.commitSync();
                    return all;
                }
            }));
        Set<Long> seen = new TreeSet<>();
        int total = 0;
        for (Future<List<ConsumerRecord<String, String>>> future : futures)
            for (ConsumerRecord<String, String> record : future.get()) {
                seen.add(record.offset());
                total++;
            }
        pool.shutdown();
        say("two members of one partition", total + " records, " + seen.size() + " offsets", "400 records, 400 offsets");
    }

    static void closing() throws Exception {
        String topic = topic("closing", 1), group = group("closing");
        produce(topic, 0, 3);
        try (KafkaShareConsumer<String, String> member = member(group, topic, "explicit")) {
            say("closing", shown(poll(member, 3, 30)), "0x1 1x1 2x1");
        }
        try (KafkaShareConsumer<String, String> member = member(group, topic, "explicit")) {
            say("closing, the next member", shown(poll(member, 3, 20)), "0x2 1x2 2x2");
        }
    }

    static void timeOut() throws Exception {
        String topic = topic("timeout", 1), group = group("timeout", "share.record.lock.duration.ms", "15000");
        produce(topic, 0, 2);
        try (KafkaShareConsumer<String, String> slow = member(group, topic, "explicit")) {
            List<ConsumerRecord<String, String>> mine = poll(slow, 2, 30);
            say("time out", shown(mine) + " lock " + slow.acquisitionLockTimeoutMs().orElse(-1), "0x1 1x1 lock 15000");
            try (KafkaShareConsumer<String, String> other = member(group, topic, "explicit")) {
                say("time out, the other", shown(poll(other, 2, 40)), "0x2 1x2");
                for (ConsumerRecord<String, String> record : mine) slow.acknowledge(record, AcknowledgeType.ACCEPT);
                say("time out, too late", names(slow.commitSync().values()), "[InvalidRecordStateException]");
            }
        }
    }

    static void renewing() throws Exception {
        String topic = topic("renew", 1), group = group("renew", "share.record.lock.duration.ms", "15000");
        produce(topic, 0, 1);
        try (KafkaShareConsumer<String, String> slow = member(group, topic, "explicit")) {
            List<ConsumerRecord<String, String>> mine = poll(slow, 1, 30);
            try (KafkaShareConsumer<String, String> other = member(group, topic, "explicit")) {
                Thread.sleep(9000);
                slow.acknowledge(mine.get(0), AcknowledgeType.RENEW);
                say("renew", slow.commitSync().values(), OK);
                say("renew, the other gets none", shown(poll(other, 1, 10)), "");
                List<ConsumerRecord<String, String>> again = poll(slow, 1, 5);
                say("renew, still the member's", shown(again), "0x1");
                for (ConsumerRecord<String, String> record : again) slow.acknowledge(record, AcknowledgeType.ACCEPT);
                say("renew, accepted", slow.commitSync().values(), OK);
            }
        }
    }

    static void committedOnly() throws Exception {
        String topic = topic("committed", 1), group = group("committed", "share.isolation.level", "read_committed");
        Properties properties = producerProperties();
        properties.put("transactional.id", prefix + "-share");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties)) {
            producer.initTransactions();
            for (int number = 0; number < 4; number++) {
                producer.beginTransaction();
                for (int i = 0; i < 3; i++) producer.send(new ProducerRecord<>(topic, 0, "k", number + "-" + i));
                producer.flush();
                if (number % 2 == 0) producer.commitTransaction();
                else producer.abortTransaction();
            }
        }
        try (KafkaShareConsumer<String, String> member = member(group, topic, "implicit")) {
            say("read_committed", shown(poll(member, 6, 30)), "0x1 1x1 2x1 8x1 9x1 10x1");
            member.commitSync();
        }
    }

    static void administration() throws Exception {
        String topic = topic("admin", 2), group = group("admin");
        produce(topic, 0, 10);
        try (KafkaShareConsumer<String, String> member = member(group, topic, "implicit")) {
            poll(member, 10, 30);
            member.commitSync();
            ShareGroupDescription described = admin.describeShareGroups(List.of(group)).all().get().get(group);
            Set<String> assigned = new TreeSet<>();
            described.members().forEach(one -> one.assignment().topicPartitions().forEach(p -> assigned.add(p.toString())));
            say("describe", described.groupState() + " " + assigned, "Stable [" + topic + "-0, " + topic + "-1]");
            say("alter with members", alter(group, topic, 3), "GroupNotEmptyException");
        }
        say("alter", alter(group, topic, 7), "done");
        say("offsets", offsets(group), topic + "-0=7 lag 3, " + topic + "-1=0 lag 0", topic + "-0=7 lag 3");
        try (KafkaShareConsumer<String, String> member = member(group, topic, "implicit")) {
            say("after alter", shown(poll(member, 3, 30)), "7x1 8x1 9x1");
            member.commitSync();
        }
        boolean isListed = false;
        for (GroupListing one : admin.listGroups(ListGroupsOptions.forShareGroups()).all().get())
            isListed |= one.groupId().equals(group);
        say("list", isListed, true);
        admin.deleteShareGroupOffsets(group, Set.of(topic)).all().get();
        say("offsets of a topic that was forgotten", offsets(group), "");
        admin.deleteShareGroups(List.of(group)).all().get();
        try {
            admin.describeShareGroups(List.of(group)).all().get();
            say("deleted", "still there", "GroupIdNotFoundException");
        } catch (ExecutionException error) {
            say("deleted", error.getCause().getClass().getSimpleName(), "GroupIdNotFoundException");
        }
    }

    // --- below

    static void say(String step, Object seen, Object... allowed) {
        boolean isAllowed = false;
        for (Object one : allowed) isAllowed |= seen.toString().equals(one.toString());
        System.out.println((isAllowed ? "" : "WRONG, not " + Arrays.toString(allowed) + ": ") + step + ": " + seen);
        System.out.flush();
        isWrong |= !isAllowed;
    }

    static String topic(String name, int partitions) throws Exception {
        String whole = prefix + "-" + name;
        admin.createTopics(List.of(new NewTopic(whole, partitions, (short) 1))).all().get();
        return whole;
    }

    /** A group that begins with the first record. */
    static String group(String name, String... settings) throws Exception {
        String whole = prefix + "-g-" + name;
        List<AlterConfigOp> operations = new ArrayList<>();
        operations.add(new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET));
        for (int i = 0; i < settings.length; i += 2)
            operations.add(new AlterConfigOp(new ConfigEntry(settings[i], settings[i + 1]), AlterConfigOp.OpType.SET));
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, whole), operations)).all().get();
        return whole;
    }

    static KafkaShareConsumer<String, String> member(String group, String topic, String mode, String... more) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("group.id", group);
        properties.put("share.acknowledgement.mode", mode);
        properties.put("key.deserializer", StringDeserializer.class.getName());
        properties.put("value.deserializer", StringDeserializer.class.getName());
        for (int i = 0; i < more.length; i += 2) properties.put(more[i], more[i + 1]);
        KafkaShareConsumer<String, String> member = new KafkaShareConsumer<>(properties);
        member.subscribe(List.of(topic));
        return member;
    }

    static Properties producerProperties() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("key.serializer", StringSerializer.class.getName());
        properties.put("value.serializer", StringSerializer.class.getName());
        return properties;
    }

    static void produce(String topic, int first, int end) throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(producerProperties())) {
            for (int i = first; i < end; i++) producer.send(new ProducerRecord<>(topic, 0, "k" + i, "v" + i)).get();
        }
    }

    static List<ConsumerRecord<String, String>> poll(KafkaShareConsumer<String, String> member, int wanted, int seconds) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        long end = System.currentTimeMillis() + seconds * 1000L;
        while (found.size() < wanted && System.currentTimeMillis() < end)
            for (ConsumerRecord<String, String> record : member.poll(Duration.ofMillis(500))) found.add(record);
        return found;
    }

    static String shown(Collection<ConsumerRecord<String, String>> records) {
        List<String> texts = new ArrayList<>();
        for (ConsumerRecord<String, String> record : records)
            texts.add(record.offset() + "x" + record.deliveryCount().orElse((short) -1));
        return String.join(" ", texts);
    }

    static List<String> names(Collection<Optional<KafkaException>> errors) {
        List<String> names = new ArrayList<>();
        for (Optional<KafkaException> error : errors)
            names.add(error.map(one -> one.getClass().getSimpleName()).orElse("none"));
        return names;
    }

    static String alter(String group, String topic, long offset) throws Exception {
        try {
            admin.alterShareGroupOffsets(group, Map.of(new TopicPartition(topic, 0), offset)).all().get();
            return "done";
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }

    static String offsets(String group) throws Exception {
        Map<String, ListShareGroupOffsetsSpec> asked = new HashMap<>();
        asked.put(group, new ListShareGroupOffsetsSpec());
        TreeMap<String, String> sorted = new TreeMap<>();
        admin.listShareGroupOffsets(asked).partitionsToOffsetInfo(group).get().forEach((partition, info) -> {
            if (info != null) sorted.put(partition.toString(), info.startOffset() + " lag " + info.lag().orElse(-1L));
        });
        List<String> texts = new ArrayList<>();
        sorted.forEach((partition, text) -> texts.add(partition + "=" + text));
        return String.join(", ", texts);
    }
}
