import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A program that uses kafka-clients of any release from 0.10.2 on: produce, consume, groups, offsets, administration.
 *
 * Usage: ClientLife BOOTSTRAP PREFIX [FILE]. PREFIX begins the names of topics and groups, so that releases do not share any.
 * FILE has properties for every client, as `security.protocol`.
 * Methods that only some releases have are called by reflection, and left out if they are missing. Prints one line for each
 * result; the last one is "client life done". Exit status 1 with the stack trace of a failure.
 */
public class ClientLife {
    static final long LIMIT_MS = 40_000, STAMP_MS = System.currentTimeMillis() - 10_000;
    static String bootstrap, prefix;
    static final Properties COMMON = new Properties();

    public static void main(String[] arguments) {
        try {
            bootstrap = arguments[0];
            prefix = arguments[1];
            if (arguments.length > 2)
                try (java.io.FileReader file = new java.io.FileReader(arguments[2])) {
                    COMMON.load(file);
                }
            String topic = prefix + "-t";
            Object admin = admin();
            if (admin == null) createByProducing(topic);
            else administration(admin, topic);
            for (String codec : codecs(admin)) produced(topic, codec);
            idempotent(topic, admin != null);
            offsets(topic);
            transactions(admin != null);
            group(topic, "org.apache.kafka.clients.consumer.RangeAssignor", "range");
            group(topic, "org.apache.kafka.clients.consumer.RoundRobinAssignor", "roundrobin");
            if (exists("org.apache.kafka.clients.consumer.CooperativeStickyAssignor"))
                group(topic, "org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "cooperative-sticky");
            if (exists("org.apache.kafka.clients.consumer.SubscriptionPattern")) group(topic, null, "consumer protocol");
            if (admin != null) groupAdministration(admin, topic);
            System.out.println("client life done");
            System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1); // members that still poll must not keep the process
        }
    }

    // --- administration, from 0.11 on

    static Object admin() throws Exception {
        if (!exists("org.apache.kafka.clients.admin.AdminClient")) return null;
        return Class.forName("org.apache.kafka.clients.admin.AdminClient").getMethod("create", Properties.class)
            .invoke(null, properties());
    }

    static void administration(Object admin, String topic) throws Exception {
        Class<?> kind = Class.forName("org.apache.kafka.clients.admin.NewTopic");
        Object fresh = kind.getConstructor(String.class, int.class, short.class).newInstance(topic, 4, (short) 1);
        kind.getMethod("configs", Map.class).invoke(fresh, Collections.singletonMap("retention.ms", "-1"));
        get(call(call(admin, "createTopics", Arrays.asList(fresh)), "all"));
        refused("TopicExistsException", () -> get(call(call(admin, "createTopics", Arrays.asList(fresh)), "all")));
        check(((Set<?>) get(call(call(admin, "listTopics"), "names"))).contains(topic), "the topic is listed");
        check(get(call(call(admin, "describeCluster"), "clusterId")) != null, "the cluster has an id");
        check(((Collection<?>) get(call(call(admin, "describeCluster"), "nodes"))).size() == 1, "the cluster has a node");
        Object described = call(admin, "describeTopics", Arrays.asList(topic));
        String all = has(described, "allTopicNames") ? "allTopicNames" : "all"; // "all" went with 4.0
        String said = get(call(described, all)).toString();
        check(said.contains("partition=3"), "four partitions are described");
        Class<?> resource = Class.forName("org.apache.kafka.common.config.ConfigResource");
        @SuppressWarnings({"unchecked", "rawtypes"})
        Object type = Enum.valueOf((Class) Class.forName("org.apache.kafka.common.config.ConfigResource$Type"), "TOPIC");
        Object name = resource.getConstructors()[0].newInstance(type, topic);
        check(config(admin, name, "retention.ms").equals("-1"), "a configuration is described");
        Class<?> entry = Class.forName("org.apache.kafka.clients.admin.ConfigEntry");
        Object wanted = entry.getConstructor(String.class, String.class).newInstance("retention.ms", "7200000");
        if (has(admin, "alterConfigs")) {
            Object config = Class.forName("org.apache.kafka.clients.admin.Config").getConstructor(Collection.class)
                .newInstance(Arrays.asList(wanted));
            get(call(call(admin, "alterConfigs", Collections.singletonMap(name, config)), "all"));
            check(config(admin, name, "retention.ms").equals("7200000"), "alterConfigs has changed it");
        }
        if (has(admin, "incrementalAlterConfigs")) {
            @SuppressWarnings({"unchecked", "rawtypes"})
            Object delete = Enum.valueOf((Class) Class.forName("org.apache.kafka.clients.admin.AlterConfigOp$OpType"), "DELETE");
            Object change = Class.forName("org.apache.kafka.clients.admin.AlterConfigOp").getConstructors()[0].newInstance(wanted, delete);
            get(call(call(admin, "incrementalAlterConfigs", Collections.singletonMap(name, Arrays.asList(change))), "all"));
            check(config(admin, name, "retention.ms").equals("604800000"), "incrementalAlterConfigs has taken it back");
        }
        if (has(admin, "createPartitions")) {
            Class<?> partitions = Class.forName("org.apache.kafka.clients.admin.NewPartitions");
            Object six = partitions.getMethod("increaseTo", int.class).invoke(null, 6);
            get(call(call(admin, "createPartitions", Collections.singletonMap(topic, six)), "all"));
            check(get(call(call(admin, "describeTopics", Arrays.asList(topic)), all)).toString().contains("partition=5"), "six partitions now");
        }
        if (has(admin, "deleteRecords")) {
            String short_ = prefix + "-shortened";
            createByProducing(short_);
            Class<?> before = Class.forName("org.apache.kafka.clients.admin.RecordsToDelete");
            Object end = before.getMethod("beforeOffset", long.class).invoke(null, 1L);
            get(call(call(admin, "deleteRecords", Collections.singletonMap(new TopicPartition(short_, 0), end)), "all"));
            try (KafkaConsumer<String, String> consumer = consumer(null, null)) {
                check(consumer.beginningOffsets(partitions(short_, 1)).values().iterator().next() == 1L, "deleteRecords moved the start");
            }
            get(call(call(admin, "deleteTopics", Arrays.asList(short_)), "all"));
            refused("UnknownTopicOrPartitionException", () -> get(call(call(admin, "deleteTopics", Arrays.asList(short_)), "all")));
        }
        if (has(admin, "describeLogDirs")) {
            Object directories = call(admin, "describeLogDirs", Arrays.asList(nodeId(admin)));
            get(call(directories, has(directories, "all") ? "all" : "allDescriptions")); // "all" went with 4.0
        }
        System.out.println("ok: topics, configurations, log directories");
    }

    static int nodeId(Object admin) throws Exception {
        return (int) call(((Collection<?>) get(call(call(admin, "describeCluster"), "nodes"))).iterator().next(), "id");
    }

    static String config(Object admin, Object resource, String key) throws Exception {
        Map<?, ?> all = (Map<?, ?>) get(call(call(admin, "describeConfigs", Arrays.asList(resource)), "all"));
        return (String) call(call(all.get(resource), "get", key), "value");
    }

    static void groupAdministration(Object admin, String topic) throws Exception {
        String group = prefix + "-range";
        if (has(admin, "listConsumerGroups") || has(admin, "listGroups")) {
            Object listing = call(admin, has(admin, "listConsumerGroups") ? "listConsumerGroups" : "listGroups");
            check(get(call(listing, "all")).toString().contains("'" + group + "'"), "the group is listed");
        }
        if (has(admin, "describeConsumerGroups")) {
            Object descriptions = get(call(call(admin, "describeConsumerGroups", Arrays.asList(group)), "all"));
            check(descriptions.toString().contains(group), "the group is described");
            Object result = call(admin, "listConsumerGroupOffsets", group);
            check(((Map<?, ?>) get(call(result, "partitionsToOffsetAndMetadata"))).size() > 0, "the group's offsets are listed");
        }
        if (has(admin, "alterConsumerGroupOffsets")) {
            TopicPartition first = new TopicPartition(topic, 0);
            get(call(call(admin, "alterConsumerGroupOffsets", group, Collections.singletonMap(first, new OffsetAndMetadata(0))), "all"));
            get(call(call(admin, "deleteConsumerGroupOffsets", group, Collections.singleton(first)), "all"));
        }
        if (has(admin, "listOffsets")) {
            Object latest = Class.forName("org.apache.kafka.clients.admin.OffsetSpec").getMethod("latest").invoke(null);
            get(call(call(admin, "listOffsets", Collections.singletonMap(new TopicPartition(topic, 0), latest)), "all"));
        }
        if (has(admin, "deleteConsumerGroups")) {
            get(call(call(admin, "deleteConsumerGroups", Arrays.asList(group)), "all"));
            refused("GroupIdNotFoundException", () -> get(call(call(admin, "deleteConsumerGroups", Arrays.asList(group)), "all")));
        }
        System.out.println("ok: administration of groups");
    }

    // --- records

    static void createByProducing(String topic) throws Exception {
        try (KafkaProducer<String, String> producer = producer("none", null)) {
            for (int number = 0; number < 2; number++) producer.send(new ProducerRecord<>(topic, 0, "k", "first")).get();
        }
        System.out.println("ok: a topic comes by producing");
    }

    static List<String> codecs(Object admin) {
        List<String> codecs = new ArrayList<>(Arrays.asList("none", "gzip", "snappy", "lz4"));
        if (admin != null && has(admin, "incrementalAlterConfigs")) codecs.add("zstd"); // 2.1 had it first
        return codecs;
    }

    static void produced(String topic, String codec) throws Exception {
        Set<String> sent = new TreeSet<>();
        try (KafkaProducer<String, String> producer = producer(codec, null)) {
            List<java.util.concurrent.Future<RecordMetadata>> futures = new ArrayList<>();
            for (int number = 0; number < 200; number++) {
                String value = codec + "-" + number + "-" + "x".repeat(100);
                sent.add(value);
                ProducerRecord<String, String> record = new ProducerRecord<>(topic, null, STAMP_MS + number, "k" + number, value);
                if (has(record, "headers")) call(call(record, "headers"), "add", "h", codec.getBytes());
                futures.add(producer.send(record));
            }
            for (java.util.concurrent.Future<RecordMetadata> future : futures) check(future.get().offset() >= 0, "an offset is told");
        }
        Set<String> seen = new TreeSet<>();
        try (KafkaConsumer<String, String> consumer = consumer(null, null)) {
            List<TopicPartition> all = partitions(topic, consumer.partitionsFor(topic).size());
            consumer.assign(all);
            consumer.seekToBeginning(all);
            long end = System.currentTimeMillis() + LIMIT_MS;
            while (!seen.containsAll(sent) && System.currentTimeMillis() < end)
                for (ConsumerRecord<String, String> record : poll(consumer)) {
                    if (!record.value().startsWith(codec + "-")) continue;
                    check(record.timestamp() >= STAMP_MS && record.timestamp() < STAMP_MS + 200, "the timestamp is kept");
                    if (has(record, "headers")) check(((Object[]) call(call(record, "headers"), "toArray")).length == 1, "the header is kept");
                    seen.add(record.value());
                }
        }
        check(seen.equals(sent), "every record of codec " + codec + " is read: " + seen.size() + " of " + sent.size());
        System.out.println("ok: " + sent.size() + " records, codec " + codec);
    }

    static void idempotent(String topic, boolean isKnown) throws Exception {
        if (!isKnown) return; // 0.11 had it first
        try (KafkaProducer<String, String> producer = producer("none", "idempotent")) {
            for (int number = 0; number < 50; number++) producer.send(new ProducerRecord<>(topic, "i" + number, "idempotent"));
            producer.flush();
        }
        System.out.println("ok: an idempotent producer");
    }

    /** From 0.11 on: an aborted transaction and a committed one; TransactionLife has more. */
    static void transactions(boolean isKnown) throws Exception {
        if (!isKnown) return;
        Properties properties = properties();
        properties.put("transactional.id", prefix);
        properties.put("max.block.ms", "30000");
        String topic = prefix + "-transactions";
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            call(producer, "initTransactions");
            for (String end : Arrays.asList("abortTransaction", "commitTransaction")) {
                call(producer, "beginTransaction");
                for (int number = 0; number < 20; number++) producer.send(new ProducerRecord<>(topic, 0, "k", end));
                producer.flush();
                call(producer, end);
            }
        }
        properties = properties();
        properties.put("isolation.level", "read_committed");
        List<String> seen = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> all = partitions(topic, 1);
            consumer.assign(all);
            consumer.seekToBeginning(all);
            long end = System.currentTimeMillis() + LIMIT_MS;
            while (seen.size() < 20 && System.currentTimeMillis() < end)
                for (ConsumerRecord<String, String> record : poll(consumer)) seen.add(record.value());
        }
        check(seen.equals(Collections.nCopies(20, "commitTransaction")), "committed records are read, aborted ones are not: " + seen);
        System.out.println("ok: transactions");
    }

    static void offsets(String topic) {
        try (KafkaConsumer<String, String> consumer = consumer(prefix + "-offsets", null)) {
            TopicPartition first = new TopicPartition(topic, 0);
            Long end = consumer.endOffsets(Collections.singleton(first)).get(first);
            check(end > 0, "the end offset is known");
            check(consumer.beginningOffsets(Collections.singleton(first)).get(first) == 0, "so is the first");
            check(consumer.offsetsForTimes(Collections.singletonMap(first, STAMP_MS)).get(first) != null, "an offset for a time");
            check(consumer.offsetsForTimes(Collections.singletonMap(first, Long.MAX_VALUE)).get(first) == null, "none for one to come");
            consumer.assign(Collections.singleton(first));
            consumer.seek(first, end - 1);
            consumer.commitSync(Collections.singletonMap(first, new OffsetAndMetadata(end, "note")));
            check(consumer.position(first) == end - 1, "the position is kept");
        }
        System.out.println("ok: offsets by time and by end, commits by hand");
    }

    // --- groups

    static class Member extends Thread {
        final KafkaConsumer<String, String> consumer;
        volatile boolean isClosing;
        volatile int owned;
        volatile Throwable failure;

        Member(String topic, String group, String assignor) {
            consumer = consumer(group, assignor == null ? "consumer" : assignor);
            consumer.subscribe(Arrays.asList(topic));
        }

        public void run() {
            try (KafkaConsumer<String, String> closing = consumer) {
                while (!isClosing) {
                    poll(consumer);
                    owned = consumer.assignment().size();
                    if (owned > 0) consumer.commitAsync();
                }
                consumer.commitSync();
            } catch (Throwable error) {
                failure = error;
            }
        }
    }

    static void group(String topic, String assignor, String name) throws Exception {
        String group = prefix + "-" + name.replace(' ', '-');
        int partitions;
        try (KafkaConsumer<String, String> asking = consumer(null, null)) {
            partitions = asking.partitionsFor(topic).size();
        }
        Member first = new Member(topic, group, assignor), second = new Member(topic, group, assignor);
        first.start();
        until(name + ": one member owns all", first, second, () -> first.owned == partitions);
        second.start();
        if (partitions > 1)
            until(name + ": two own half each", first, second, () -> first.owned == partitions / 2 && second.owned == partitions / 2);
        second.isClosing = true;
        second.join();
        until(name + ": the first owns all again", first, second, () -> first.owned == partitions);
        first.isClosing = true;
        first.join();
        if (first.failure != null || second.failure != null) throw new IllegalStateException("a member failed", first.failure != null ? first.failure : second.failure);
        try (KafkaConsumer<String, String> again = consumer(group, assignor == null ? "consumer" : assignor)) {
            check(committed(again, new TopicPartition(topic, 0)) >= 0, "the group has committed");
        }
        System.out.println("ok: a group of two, " + name);
    }

    static void until(String what, Member first, Member second, java.util.function.BooleanSupplier condition) throws Exception {
        long end = System.currentTimeMillis() + LIMIT_MS;
        while (!condition.getAsBoolean()) {
            for (Member member : Arrays.asList(first, second))
                if (member.failure != null) throw new IllegalStateException(what, member.failure);
            check(System.currentTimeMillis() < end, what + " (owned: " + first.owned + ", " + second.owned + ")");
            Thread.sleep(20);
        }
    }

    static long committed(KafkaConsumer<String, String> consumer, TopicPartition partition) throws Exception {
        for (Method method : KafkaConsumer.class.getMethods())
            if (method.getName().equals("committed") && method.getParameterCount() == 1 && method.getParameterTypes()[0] == TopicPartition.class)
                return ((OffsetAndMetadata) method.invoke(consumer, partition)).offset();
        Map<?, ?> all = (Map<?, ?>) call(consumer, "committed", Collections.singleton(partition)); // 4.0 has only this
        return ((OffsetAndMetadata) all.get(partition)).offset();
    }

    // --- APIs that differ between releases

    static Properties properties() {
        Properties properties = new Properties();
        properties.putAll(COMMON);
        properties.put("bootstrap.servers", bootstrap);
        return properties;
    }

    static KafkaProducer<String, String> producer(String codec, String idempotent) {
        Properties properties = properties();
        properties.put("acks", "all");
        properties.put("linger.ms", "5");
        properties.put("compression.type", codec);
        if (idempotent != null) properties.put("enable.idempotence", "true");
        return new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(String group, String assignor) {
        Properties properties = properties();
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        if (group != null) properties.put("group.id", group);
        if ("consumer".equals(assignor)) properties.put("group.protocol", "consumer");
        else if (assignor != null) {
            properties.put("partition.assignment.strategy", assignor);
            properties.put("session.timeout.ms", "10000");
            properties.put("heartbeat.interval.ms", "500");
        }
        return new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    }

    static List<TopicPartition> partitions(String topic, int count) {
        List<TopicPartition> all = new ArrayList<>();
        for (int number = 0; number < count; number++) all.add(new TopicPartition(topic, number));
        return all;
    }

    @SuppressWarnings("unchecked")
    static ConsumerRecords<String, String> poll(KafkaConsumer<String, String> consumer) {
        try { // poll(long) went with 4.0, poll(Duration) came with 2.0
            for (Method method : KafkaConsumer.class.getMethods())
                if (method.getName().equals("poll") && method.getParameterTypes()[0] == Duration.class)
                    return (ConsumerRecords<String, String>) method.invoke(consumer, Duration.ofMillis(100));
            return (ConsumerRecords<String, String>) KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, 100L);
        } catch (InvocationTargetException error) {
            throw (RuntimeException) error.getCause();
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    interface Act { void run() throws Exception; }

    static void refused(String kind, Act act) throws Exception {
        try {
            act.run();
        } catch (ExecutionException error) {
            check(error.getCause().getClass().getSimpleName().equals(kind), kind + " is told, not " + error.getCause());
            return;
        }
        throw new IllegalStateException("not refused with " + kind);
    }

    static void check(boolean isTrue, String what) {
        if (!isTrue) throw new IllegalStateException("not so: " + what);
    }

    static Object get(Object future) throws Exception {
        return ((java.util.concurrent.Future<?>) future(future)).get(LIMIT_MS, java.util.concurrent.TimeUnit.MILLISECONDS);
    }

    /** KafkaFuture is a Future up to 3.x and has toCompletionStage since; both have get(long, TimeUnit). */
    static Object future(Object future) throws Exception {
        return future instanceof java.util.concurrent.Future ? future : ((java.util.concurrent.CompletionStage<?>) call(future, "toCompletionStage")).toCompletableFuture();
    }

    static boolean exists(String name) {
        try {
            Class.forName(name);
            return true;
        } catch (ClassNotFoundException absent) {
            return false;
        }
    }

    static boolean has(Object target, String name) {
        return new HashSet<>(names(target)).contains(name);
    }

    static List<String> names(Object target) {
        List<String> names = new ArrayList<>();
        for (Method method : target.getClass().getMethods()) names.add(method.getName());
        return names;
    }

    /** Calls the public method of that name that takes these arguments. */
    static Object call(Object target, String name, Object... arguments) throws Exception {
        for (Method method : target.getClass().getMethods()) {
            if (!method.getName().equals(name) || method.getParameterCount() != arguments.length || method.isBridge()) continue;
            boolean fits = true;
            for (int index = 0; index < arguments.length; index++) fits &= fits(method.getParameterTypes()[index], arguments[index]);
            if (!fits) continue;
            method.setAccessible(true); // a public method of a class that is not
            try {
                return method.invoke(target, arguments);
            } catch (InvocationTargetException error) {
                throw error.getCause() instanceof Exception exception ? exception : error;
            }
        }
        throw new NoSuchMethodException(target.getClass() + "." + name);
    }

    static boolean fits(Class<?> kind, Object argument) {
        return kind.isInstance(argument) || kind.isPrimitive() && !(argument instanceof Collection);
    }
}
