import java.io.File;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.TimeWindows;

/**
 * The life of a Kafka Streams application: counts, windows and a join, with state that is restored from its changelogs.
 *
 * Usage: StreamsLife BOOTSTRAP PREFIX STATE_DIRECTORY [at_least_once|exactly_once_v2]
 *
 * At least once: words are counted (a repartition topic and a changelog each), counted per hour, and two tables are joined, by
 * two instances of two threads each; one instance leaves; then all state on disk is removed, a new instance restores it
 * from the changelogs and continues to count. With exactly_once_v2 the first count is enough: StreamsExactlyOnce has more.
 */
public class StreamsLife {
    static final long LIMIT_MS = 120_000;
    static final int LINES = 300;
    static final long HOUR_MS = 3_600_000, BEGIN_MS = System.currentTimeMillis() / HOUR_MS * HOUR_MS - 2 * HOUR_MS;
    static String bootstrap, prefix;
    static File state;

    public static void main(String[] arguments) {
        try {
            bootstrap = arguments[0];
            prefix = arguments[1];
            state = new File(arguments[2]);
            boolean isExact = arguments.length > 3 && arguments[3].equals("exactly_once_v2");
            createTopics();
            if (isExact) exactlyOnce();
            else atLeastOnce();
            System.out.println("streams life done");
            System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1); // streams threads must not keep the process
        }
    }

    static void atLeastOnce() throws Exception {
        send(0);
        KafkaStreams first = start("a", "at_least_once", new AtomicReference<>());
        KafkaStreams second = start("b", "at_least_once", new AtomicReference<>());
        expect("counts", "all", Integer.toString(LINES));
        expect("counts", "w" + (LINES - 1), "1");
        expect("hourly", "all@" + BEGIN_MS, Integer.toString(LINES / 2));
        expect("hourly", "all@" + (BEGIN_MS + HOUR_MS), Integer.toString(LINES / 2));
        expect("joined", "k7", "left7+right7");
        System.out.println("ok: counts, windows and a join by two instances");
        close(second);
        send(1);
        expect("counts", "all", Integer.toString(2 * LINES));
        System.out.println("ok: one instance goes on alone");
        close(first);
        delete(state);
        send(2);
        KafkaStreams third = start("a", "at_least_once", new AtomicReference<>());
        expect("counts", "all", Integer.toString(3 * LINES));
        expect("counts", "w" + (LINES - 1), "3");
        expect("hourly", "all@" + BEGIN_MS, Integer.toString(3 * LINES / 2));
        System.out.println("ok: state is restored from the changelogs");
        close(third);
        third.cleanUp();
        internalTopics();
    }

    static void exactlyOnce() throws Exception {
        send(0);
        long begin = System.currentTimeMillis();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        KafkaStreams streams = start("a", "exactly_once_v2", failure);
        while (failure.get() == null && System.currentTimeMillis() - begin < 60_000) {
            if (("" + LINES).equals(read("counts").get("all"))) {
                System.out.println("ok: exactly_once_v2 counts");
                close(streams);
                return;
            }
            Thread.sleep(200);
        }
        throw new IllegalStateException("exactly_once_v2 does not count, state " + streams.state(), failure.get());
    }

    static KafkaStreams start(String instance, String guarantee, AtomicReference<Throwable> failure) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("application.id", prefix);
        properties.put("client.id", prefix + "-" + instance);
        properties.put("state.dir", new File(state, instance).getPath());
        properties.put("num.stream.threads", "2");
        properties.put("processing.guarantee", guarantee);
        properties.put("commit.interval.ms", "200");
        properties.put("auto.offset.reset", "earliest");
        properties.put("default.key.serde", Serdes.StringSerde.class.getName());
        properties.put("default.value.serde", Serdes.StringSerde.class.getName());
        StreamsBuilder builder = new StreamsBuilder();
        var words = builder.<String, String>stream(topic("lines"))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .map((key, word) -> KeyValue.pair(word, word)).groupByKey();
        words.count(Materialized.as("counts")).toStream().mapValues(String::valueOf).to(topic("counts"));
        words.windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMillis(HOUR_MS), Duration.ofDays(1))).count(Materialized.as("hourly")).toStream()
            .map((window, count) -> KeyValue.pair(window.key() + "@" + window.window().start(), String.valueOf(count)))
            .to(topic("hourly"));
        KTable<String, String> left = builder.table(topic("left")), right = builder.table(topic("right"));
        left.join(right, (one, other) -> one + "+" + other).toStream().to(topic("joined"));
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        CountDownLatch running = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING || now == KafkaStreams.State.ERROR) running.countDown();
        });
        streams.setUncaughtExceptionHandler(error -> {
            failure.compareAndSet(null, error);
            return StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        boolean isExact = guarantee.startsWith("exactly");
        if (!isExact && !running.await(LIMIT_MS, TimeUnit.MILLISECONDS)) throw new IllegalStateException("never runs: " + streams.state());
        if (!isExact && failure.get() != null) throw new IllegalStateException("failed", failure.get());
        return streams;
    }

    static void close(KafkaStreams streams) {
        if (!streams.close(Duration.ofSeconds(60))) throw new IllegalStateException("does not close");
    }

    static void createTopics() throws Exception {
        try (Admin admin = Admin.create(Collections.singletonMap("bootstrap.servers", bootstrap))) {
            List<NewTopic> topics = new ArrayList<>();
            for (String name : Arrays.asList("lines", "counts", "hourly", "left", "right", "joined")) topics.add(new NewTopic(topic(name), 4, (short) 1));
            admin.createTopics(topics).all().get();
        }
    }

    /** The internal topics of Streams. */
    static void internalTopics() throws Exception {
        try (Admin admin = Admin.create(Collections.singletonMap("bootstrap.servers", bootstrap))) {
            Set<String> names = new TreeSet<>(admin.listTopics().names().get());
            names.removeIf(name -> !name.startsWith(prefix + "-") || !name.endsWith("-changelog") && !name.endsWith("-repartition"));
            System.out.println("ok: internal topics " + names);
            if (names.stream().filter(name -> name.endsWith("-repartition")).count() != 2) throw new IllegalStateException("two repartition topics");
            if (names.stream().filter(name -> name.endsWith("-changelog")).count() < 4) throw new IllegalStateException("four changelogs");
        }
    }

    static void send(int round) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < LINES; number++) {
                long stamp = BEGIN_MS + (number % 2) * HOUR_MS; // half of the words in either hour
                producer.send(new ProducerRecord<>(topic("lines"), number % 4, stamp, "l" + number, "all w" + number)).get();
                if (number == 0) continue;
                producer.send(new ProducerRecord<>(topic("left"), "k" + number, "left" + number));
                producer.send(new ProducerRecord<>(topic("right"), "k" + number, "right" + number));
            }
        }
    }

    static void expect(String name, String key, String value) throws Exception {
        long end = System.currentTimeMillis() + LIMIT_MS;
        String seen = null;
        while (!value.equals(seen)) {
            if (System.currentTimeMillis() > end) throw new IllegalStateException(name + " of " + key + " is " + seen + ", not " + value);
            seen = read(name).get(key);
        }
    }

    /** The newest value of each key. */
    static Map<String, String> read(String name) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        Map<String, String> newest = new HashMap<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (int number = 0; number < 4; number++) partitions.add(new TopicPartition(topic(name), number));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition)))
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) newest.put(record.key(), record.value());
        }
        return newest;
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
