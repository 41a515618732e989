import java.io.File;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListStreamsGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.StreamsGroupDescription;
import org.apache.kafka.clients.admin.StreamsGroupMemberAssignment;
import org.apache.kafka.clients.admin.StreamsGroupMemberDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;

/**
 * The life of a Kafka Streams application whose group is a streams group (group.protocol=streams, KIP-1071): the broker creates its
 * internal topics and assigns its tasks.
 *
 * Usage: StreamsGroupLife BOOTSTRAP PREFIX STATE_DIRECTORY at_least_once|exactly_once_v2|restart|wait RELEASE_OF_STREAMS
 *
 * Words are counted over a repartition topic, and a re-keyed stream is joined with a table, by two instances of two threads each, with
 * a standby task for each task; one instance leaves; all state on disk is removed, and a new instance restores it from the changelogs.
 * An instance fails and lets all instances end. Then the group is listed, described, its offsets are changed, and it is deleted. "restart": asks for a restart of the broker while
 * both instances work, by a line on its output, and waits for a line on its input. "wait": one
 * instance works until a line comes, and leaves the group as it is for the tools.
 */
public class StreamsGroupLife {
    static final long LIMIT_MS = 120_000;
    static final int LINES = 200, PARTITIONS = 4;
    static final String POISON = "poison";
    static String bootstrap, prefix, guarantee, release;
    static File state;
    static Admin admin;
    static volatile Throwable failure;

    public static void main(String[] arguments) {
        try {
            bootstrap = arguments[0];
            prefix = arguments[1];
            state = new File(arguments[2]);
            release = arguments[4];
            guarantee = arguments[3].equals("at_least_once") ? "at_least_once" : "exactly_once_v2";
            admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
            if (arguments[3].equals("wait")) waitForTools();
            else run(arguments[3].equals("restart"));
            System.out.println("streams group life done");
            System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace();
            if (failure != null) failure.printStackTrace();
            System.exit(1); // streams threads must not keep the process
        }
    }

    static void run(boolean isRestart) throws Exception {
        prepare();
        send(0);
        KafkaStreams first = start("a", 7001);
        expect("counts", "all", LINES);
        System.out.println("ok: one instance counts");
        KafkaStreams second = start("b", 7002);
        StreamsGroupDescription group = await(4);
        check(group);
        System.out.println("ok: two instances of two threads share active and standby tasks");
        endpoints(first, second);
        System.out.println("ok: the instances know each other's endpoints");
        send(1);
        expect("counts", "all", 2 * LINES);
        if (isRestart) {
            System.out.println("restart the broker now");
            if (System.in.read() < 0) throw new IllegalStateException("nobody restarts the broker");
            send(2);
            expect("counts", "all", 3 * LINES);
            check(await(4));
            exact(3);
            System.out.println("ok: the same members count on after the restart of the broker");
            close(second);
            close(first);
            return;
        }
        close(second);
        await(2);
        send(2);
        expect("counts", "all", 3 * LINES);
        System.out.println("ok: one instance goes on alone");
        close(first);
        await(0);
        delete(state);
        send(3);
        KafkaStreams third = start("a", 7001);
        expect("counts", "all", 4 * LINES);
        expect("counts", "w" + (LINES - 1), 4);
        System.out.println("ok: state is restored from the changelogs");
        if (guarantee.startsWith("exactly")) exact(4);
        joined();
        shutDown(third, start("b", 7002));
        internalTopics();
        administration();
    }

    /** One instance fails, and requests that all end. */
    static void shutDown(KafkaStreams... instances) throws Exception {
        await(2 * instances.length);
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(topic("lines"), "", POISON)).get();
        }
        long end = System.currentTimeMillis() + LIMIT_MS;
        for (KafkaStreams streams : instances) {
            while (!streams.state().hasCompletedShutdown()) {
                if (System.currentTimeMillis() > end) throw new IllegalStateException("an instance does not end: " + streams.state());
                Thread.sleep(50);
            }
            streams.close();
        }
        await(0);
        System.out.println("ok: all instances end when one requests it");
    }

    static void waitForTools() throws Exception {
        prepare();
        send(0);
        KafkaStreams streams = start("a", 7001);
        expect("counts", "all", LINES);
        await(2);
        System.out.println("it works");
        System.in.read();
        close(streams);
        await(0);
    }

    // --- the application

    static void prepare() throws Exception {
        List<NewTopic> topics = new ArrayList<>();
        for (String name : Arrays.asList("lines", "counts", "people", "visits", "joined")) topics.add(new NewTopic(topic(name), PARTITIONS, (short) 1));
        admin.createTopics(topics).all().get();
        Map<String, String> settings = Map.of("streams.num.standby.replicas", "1", "streams.initial.rebalance.delay.ms", "0");
        List<AlterConfigOp> changes = new ArrayList<>();
        settings.forEach((key, value) -> changes.add(new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET)));
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, prefix), changes)).all().get();
    }

    static KafkaStreams start(String instance, int port) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("application.id", prefix);
        properties.put("application.server", "127.0.0.1:" + port);
        properties.put("client.id", prefix + "-" + instance);
        properties.put("group.protocol", "streams");
        properties.put("state.dir", new File(state, instance).getPath());
        properties.put("num.stream.threads", "2");
        properties.put("processing.guarantee", guarantee);
        properties.put("commit.interval.ms", "200");
        properties.put("statestore.cache.max.bytes", "0"); // each count is written
        properties.put("auto.offset.reset", "earliest");
        properties.put("default.key.serde", Serdes.StringSerde.class.getName());
        properties.put("default.value.serde", Serdes.StringSerde.class.getName());
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(topic("lines"))
            .flatMapValues(line -> {
                if (line.equals(POISON)) throw new IllegalArgumentException(POISON);
                return Arrays.asList(line.split(" "));
            })
            .map((key, word) -> KeyValue.pair(word, word)).groupByKey()
            .count(Materialized.as("counts")).toStream().mapValues(String::valueOf).to(topic("counts"));
        KTable<String, String> people = builder.table(topic("people"));
        builder.<String, String>stream(topic("visits"))
            .map((key, person) -> KeyValue.pair(person, key)) // a repartition topic, copartitioned with the table
            .join(people, (visit, person) -> visit + "+" + person).to(topic("joined"));
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        streams.setUncaughtExceptionHandler(error -> {
            for (Throwable one = error; one != null; one = one.getCause())
                if (POISON.equals(one.getMessage())) return StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_APPLICATION;
            failure = error;
            return StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        long end = System.currentTimeMillis() + LIMIT_MS;
        while (streams.state() != KafkaStreams.State.RUNNING) {
            if (System.currentTimeMillis() > end || failure != null) throw new IllegalStateException("it never runs: " + streams.state());
            Thread.sleep(50);
        }
        return streams;
    }

    static void close(KafkaStreams streams) {
        if (!streams.close(new KafkaStreams.CloseOptions().timeout(Duration.ofSeconds(60)).leaveGroup(true))) throw new IllegalStateException("it does not close");
    }

    // --- the group

    /** The group when it is stable with so many members; with none, when it is empty. */
    static StreamsGroupDescription await(int members) throws Exception {
        long end = System.currentTimeMillis() + LIMIT_MS;
        while (true) {
            StreamsGroupDescription group = describe();
            GroupState wanted = members == 0 ? GroupState.EMPTY : GroupState.STABLE;
            if (group.groupState() == wanted && group.members().size() == members) return group;
            if (System.currentTimeMillis() > end || failure != null) throw new IllegalStateException("not " + members + " stable members: " + group);
            Thread.sleep(100);
        }
    }

    static StreamsGroupDescription describe() throws Exception {
        return admin.describeStreamsGroups(List.of(prefix)).all().get().get(prefix);
    }

    /** Each task is active once; those with state are in standby once, in another process. */
    static void check(StreamsGroupDescription group) {
        Map<String, String> active = new HashMap<>();
        Map<String, String> standby = new HashMap<>();
        for (StreamsGroupMemberDescription member : group.members()) {
            for (String task : tasks(member.assignment().activeTasks())) if (active.put(task, member.processId()) != null) throw new IllegalStateException(task + " is active twice");
            for (String task : tasks(member.assignment().standbyTasks())) if (standby.put(task, member.processId()) != null) throw new IllegalStateException(task + " is in standby twice");
            if (!member.assignment().warmupTasks().isEmpty()) throw new IllegalStateException("a warm-up task");
            if (!tasks(member.assignment().activeTasks()).equals(tasks(member.targetAssignment().activeTasks()))) throw new IllegalStateException("it is not what was wanted");
        }
        Set<String> withState = new TreeSet<>();
        Set<String> all = new TreeSet<>();
        group.subtopologies().forEach(subtopology -> {
            for (int number = 0; number < PARTITIONS; number++) {
                all.add(subtopology.subtopologyId() + "_" + number);
                if (!subtopology.stateChangelogTopics().isEmpty()) withState.add(subtopology.subtopologyId() + "_" + number);
            }
        });
        if (!new TreeSet<>(active.keySet()).equals(all)) throw new IllegalStateException("active are " + active + ", not " + all);
        if (withState.isEmpty() || !new TreeSet<>(standby.keySet()).equals(withState)) throw new IllegalStateException("in standby are " + standby + ", not " + withState);
        for (String task : standby.keySet()) if (standby.get(task).equals(active.get(task))) throw new IllegalStateException(task + " is active and in standby in one process");
        if (new HashSet<>(active.values()).size() != 2) throw new IllegalStateException("not all processes work");
    }

    static Set<String> tasks(List<StreamsGroupMemberAssignment.TaskIds> tasks) {
        Set<String> found = new TreeSet<>();
        for (StreamsGroupMemberAssignment.TaskIds one : tasks) for (int number : one.partitions()) found.add(one.subtopologyId() + "_" + number);
        return found;
    }

    /** Both instances find the one that has the count of a word; Streams 4.2 finds the instances, but no keys, with any broker. */
    static void endpoints(KafkaStreams first, KafkaStreams second) throws Exception {
        long end = System.currentTimeMillis() + LIMIT_MS;
        while (true) {
            Set<Integer> ports = first.metadataForAllStreamsClients().stream().map(one -> one.hostInfo().port()).collect(Collectors.toSet());
            int one = first.queryMetadataForKey("counts", "all", new StringSerializer()).activeHost().port();
            int other = second.queryMetadataForKey("counts", "all", new StringSerializer()).activeHost().port();
            boolean isFound = one == other && one > 0 || release.startsWith("4.2.");
            if (ports.equals(Set.of(7001, 7002)) && isFound) return;
            if (System.currentTimeMillis() > end) throw new IllegalStateException("endpoints " + ports + ", " + one + " and " + other);
            Thread.sleep(200);
        }
    }

    static void internalTopics() throws Exception {
        Set<String> names = new TreeSet<>(admin.listTopics().names().get());
        names.removeIf(name -> !name.startsWith(prefix + "-") || !name.endsWith("-changelog") && !name.endsWith("-repartition"));
        Map<String, Integer> counts = new HashMap<>();
        admin.describeTopics(names).allTopicNames().get().forEach((name, topic) -> counts.put(name, topic.partitions().size()));
        if (counts.size() != 4 || !new HashSet<>(counts.values()).equals(Set.of(PARTITIONS))) throw new IllegalStateException("internal topics " + counts);
        ConfigResource changelog = new ConfigResource(ConfigResource.Type.TOPIC, prefix + "-counts-changelog");
        String policy = admin.describeConfigs(List.of(changelog)).all().get().get(changelog).get("cleanup.policy").value();
        if (!policy.equals("compact")) throw new IllegalStateException("the changelog has cleanup.policy " + policy);
        System.out.println("ok: internal topics " + names);
    }

    static void administration() throws Exception {
        boolean isListed = admin.listGroups(ListGroupsOptions.forStreamsGroups()).all().get().stream()
            .anyMatch(one -> one.groupId().equals(prefix) && one.type().orElseThrow() == GroupType.STREAMS && one.groupState().orElseThrow() == GroupState.EMPTY);
        if (!isListed) throw new IllegalStateException("it is not listed");
        TopicPartition lines = new TopicPartition(topic("lines"), 0);
        long committed = offsets().get(lines).offset();
        if (committed <= 0) throw new IllegalStateException("no offsets are committed");
        admin.alterStreamsGroupOffsets(prefix, Map.of(lines, new OffsetAndMetadata(1))).all().get();
        if (offsets().get(lines).offset() != 1) throw new IllegalStateException("the offset was not altered");
        admin.deleteStreamsGroupOffsets(prefix, Set.of(lines)).all().get();
        if (offsets().get(lines) != null) throw new IllegalStateException("the offset was not deleted");
        admin.deleteStreamsGroups(List.of(prefix)).all().get();
        if (admin.listGroups(ListGroupsOptions.forStreamsGroups()).all().get().stream().anyMatch(one -> one.groupId().equals(prefix))) throw new IllegalStateException("it was not deleted");
        System.out.println("ok: the group is listed, its offsets are changed, and it is deleted");
    }

    static Map<TopicPartition, OffsetAndMetadata> offsets() throws Exception {
        return admin.listStreamsGroupOffsets(Map.of(prefix, new ListStreamsGroupOffsetsSpec())).partitionsToOffsetAndMetadata(prefix).get();
    }

    // --- records

    static void send(int round) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < LINES && round == 0; number++) producer.send(new ProducerRecord<>(topic("people"), "p" + number, "person" + number));
            producer.flush();
            for (int number = 0; number < LINES; number++) {
                producer.send(new ProducerRecord<>(topic("lines"), number % PARTITIONS, "l" + number, "all w" + number));
                producer.send(new ProducerRecord<>(topic("visits"), "v" + round + "-" + number, "p" + number));
            }
        }
    }

    static void expect(String name, String key, int value) throws Exception {
        long end = System.currentTimeMillis() + LIMIT_MS;
        String seen = null;
        while (!Integer.toString(value).equals(seen)) {
            if (System.currentTimeMillis() > end || failure != null) throw new IllegalStateException(name + " of " + key + " is " + seen + ", not " + value);
            List<String> values = read(name).getOrDefault(key, List.of());
            seen = values.isEmpty() ? null : values.get(values.size() - 1);
        }
    }

    /** Of each word the committed counts are 1, 2, 3 and so on to the last, each once and in order. */
    static void exact(int rounds) {
        long end = System.currentTimeMillis() + LIMIT_MS;
        boolean isWhole = false;
        while (!isWhole) {
            isWhole = true;
            for (Map.Entry<String, List<String>> word : read("counts").entrySet()) {
                int last = word.getKey().equals("all") ? rounds * LINES : rounds;
                List<String> wanted = new ArrayList<>();
                for (int count = 1; count <= word.getValue().size(); count++) wanted.add(Integer.toString(count));
                if (!word.getValue().equals(wanted) || wanted.size() > last) throw new IllegalStateException("counts of " + word);
                isWhole &= wanted.size() == last;
            }
            if (System.currentTimeMillis() > end || failure != null) throw new IllegalStateException("not all counts came");
        }
        System.out.println("ok: each count exists once, in order");
    }

    /** Visits of the later rounds, when the table was known, have met their person. */
    static void joined() throws Exception {
        long end = System.currentTimeMillis() + LIMIT_MS;
        while (true) {
            Map<String, List<String>> found = read("joined");
            boolean isWhole = true;
            for (int number = 0; number < LINES; number++) isWhole &= found.getOrDefault("p" + number, List.of()).contains("v1-" + number + "+person" + number);
            if (isWhole) break;
            if (System.currentTimeMillis() > end || failure != null) throw new IllegalStateException("joined are " + found);
        }
        System.out.println("ok: a re-keyed stream is joined with a table");
    }

    /** The committed values of each key, in order. */
    static Map<String, List<String>> read(String name) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("isolation.level", "read_committed");
        Map<String, List<String>> values = new HashMap<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            Collection<TopicPartition> partitions = new ArrayList<>();
            for (int number = 0; number < PARTITIONS; number++) partitions.add(new TopicPartition(topic(name), number));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition)))
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) values.computeIfAbsent(record.key(), key -> new ArrayList<>()).add(record.value());
        }
        return values;
    }

    static String topic(String name) {
        return prefix + "-" + name;
    }

    static void delete(File file) {
        File[] inside = file.listFiles();
        if (inside != null) for (File one : inside) delete(one);
        file.delete();
    }
}
