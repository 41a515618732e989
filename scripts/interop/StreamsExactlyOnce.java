import java.io.File;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
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
import org.apache.kafka.streams.kstream.Materialized;

/**
 * The parts of a Kafka Streams application with exactly_once_v2 whose instances are killed from outside.
 *
 * Usage: StreamsExactlyOnce BOOTSTRAP PREFIX STATE_DIRECTORY prepare | send LINES | work INSTANCE | check LINES
 *
 * Each line has the word "all" and one of ten others; words are counted over a repartition topic, and nothing is cached, so that each
 * count is written. Check: of each word the committed counts are 1, 2, 3 and so on to the last, each once and in order.
 */
public class StreamsExactlyOnce {
    static final long LIMIT_MS = 180_000;
    static final int PARTITIONS = 4, WORDS = 10;
    static String bootstrap, prefix;

    public static void main(String[] arguments) {
        try {
            bootstrap = arguments[0];
            prefix = arguments[1];
            switch (arguments[3]) {
                case "prepare" -> prepare();
                case "send" -> send(Integer.parseInt(arguments[4]));
                case "work" -> work(new File(arguments[2], arguments[4]).getPath(), arguments[4]);
                default -> check(Integer.parseInt(arguments[4]));
            }
            if (!arguments[3].equals("work")) System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    static void prepare() throws Exception {
        try (Admin admin = Admin.create(Collections.singletonMap("bootstrap.servers", bootstrap))) {
            List<NewTopic> topics = new ArrayList<>();
            for (String name : Arrays.asList("lines", "counts")) topics.add(new NewTopic(prefix + "-" + name, PARTITIONS, (short) 1));
            admin.createTopics(topics).all().get();
        }
    }

    /** Slowly, so that there is work between the kills. */
    static void send(int lines) throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties(), new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < lines; number++) {
                producer.send(new ProducerRecord<>(prefix + "-lines", number % PARTITIONS, "l" + number, "all w" + number % WORDS));
                if (number % 10 == 9) Thread.sleep(50);
            }
        }
    }

    static void work(String state, String instance) {
        Properties properties = properties();
        properties.put("application.id", prefix);
        properties.put("client.id", prefix + "-" + instance);
        properties.put("state.dir", state);
        properties.put("num.stream.threads", "2");
        properties.put("processing.guarantee", "exactly_once_v2");
        properties.put("commit.interval.ms", "100");
        properties.put("statestore.cache.max.bytes", "0");
        properties.put("auto.offset.reset", "earliest");
        properties.put("session.timeout.ms", "6000");
        properties.put("heartbeat.interval.ms", "500");
        properties.put("default.key.serde", Serdes.StringSerde.class.getName());
        properties.put("default.value.serde", Serdes.StringSerde.class.getName());
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(prefix + "-lines").flatMapValues(line -> Arrays.asList(line.split(" ")))
            .map((key, word) -> KeyValue.pair(word, word)).groupByKey()
            .count(Materialized.as("counts")).toStream().mapValues(String::valueOf).to(prefix + "-counts");
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        streams.setStateListener((now, before) -> System.out.println(instance + ": " + now));
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.start();
    }

    static void check(int lines) {
        Map<String, Long> last = new HashMap<>();
        Properties properties = properties();
        properties.put("isolation.level", "read_committed");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (int number = 0; number < PARTITIONS; number++) partitions.add(new TopicPartition(prefix + "-counts", number));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long end = System.currentTimeMillis() + LIMIT_MS;
            long quiet = 0, read = 0;
            while (quiet < 20) { // two seconds of silence after the last one: a count too many would come by then
                boolean isEmpty = true;
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    isEmpty = false;
                    read++;
                    long before = last.getOrDefault(record.key(), 0L), now = Long.parseLong(record.value());
                    if (now != before + 1) throw new IllegalStateException(record.key() + ": " + now + " after " + before + ", offset " + record.offset() + " of " + record.partition());
                    last.put(record.key(), now);
                }
                if (last.getOrDefault("all", 0L) >= lines && isEmpty) quiet++;
                if (System.currentTimeMillis() > end) throw new IllegalStateException("the last count never came: " + last);
            }
            for (int word = 0; word < WORDS; word++)
                if (last.getOrDefault("w" + word, 0L) != lines / WORDS) throw new IllegalStateException("w" + word + ": " + last);
            System.out.println("ok: " + read + " counts, each once and in order");
        }
    }

    static Properties properties() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        return properties;
    }
}
