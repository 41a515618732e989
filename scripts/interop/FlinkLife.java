import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A Flink job from topic to topic, whose KafkaSink is EXACTLY_ONCE, and which fails three times between its checkpoints.
 *
 * Usage: FlinkLife BOOTSTRAP PREFIX. Flink's cluster is in this process. Each record is read committed once; the last line is "flink life done".
 */
public class FlinkLife {
    static final int COUNT = 6000, PARTITIONS = 3;
    static final AtomicInteger mapped = new AtomicInteger(), failures = new AtomicInteger();
    static String bootstrap, prefix;

    public static void main(String[] arguments) {
        try {
            bootstrap = arguments[0];
            prefix = arguments[1];
            prepare();
            job();
            List<String> seen = read();
            if (seen.size() != COUNT || new TreeSet<>(seen).size() != COUNT)
                throw new IllegalStateException(seen.size() + " records are read, " + new TreeSet<>(seen).size() + " different ones");
            System.out.println("ok: " + COUNT + " records once each, over " + failures.get() + " failures of the job");
            System.out.println("flink life done");
            System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    static void prepare() throws Exception {
        try (Admin admin = Admin.create(Collections.singletonMap("bootstrap.servers", bootstrap))) {
            admin.createTopics(Arrays.asList(new NewTopic(prefix + "-in", PARTITIONS, (short) 1), new NewTopic(prefix + "-out", PARTITIONS, (short) 1))).all().get();
        }
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties(), new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < COUNT; number++) producer.send(new ProducerRecord<>(prefix + "-in", number % PARTITIONS, "k", "v" + number));
        }
    }

    static void job() throws Exception {
        Configuration configuration = new Configuration();
        configuration.setString("restart-strategy.type", "fixed-delay");
        configuration.setString("restart-strategy.fixed-delay.attempts", "10");
        configuration.setString("restart-strategy.fixed-delay.delay", "200 ms");
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(2, configuration);
        environment.enableCheckpointing(400);
        KafkaSource<String> source = KafkaSource.<String>builder().setBootstrapServers(bootstrap).setTopics(prefix + "-in").setGroupId(prefix + "-flink")
            .setStartingOffsets(OffsetsInitializer.earliest()).setBounded(OffsetsInitializer.latest()).setValueOnlyDeserializer(new SimpleStringSchema()).build();
        KafkaSink<String> sink = KafkaSink.<String>builder().setBootstrapServers(bootstrap).setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix(prefix + "-flink").setProperty("transaction.timeout.ms", "60000")
            .setRecordSerializer(KafkaRecordSerializationSchema.builder().setTopic(prefix + "-out").setValueSerializationSchema(new SimpleStringSchema()).build()).build();
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "in").map(FlinkLife::slowly).sinkTo(sink);
        environment.execute("exactly once");
    }

    /** Some seconds for all records, with a failure after each quarter. */
    static String slowly(String value) throws Exception {
        Thread.sleep(1);
        if (mapped.incrementAndGet() % (COUNT / 4) == 0 && failures.get() < 3) {
            failures.incrementAndGet();
            throw new IllegalStateException("as planned");
        }
        return value;
    }

    static List<String> read() {
        Properties properties = properties();
        properties.put("isolation.level", "read_committed");
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> all = new ArrayList<>();
            for (int partition = 0; partition < PARTITIONS; partition++) all.add(new TopicPartition(prefix + "-out", partition));
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            while (all.stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition)))
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) values.add(record.value());
        }
        return values;
    }

    static Properties properties() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        return properties;
    }
}
