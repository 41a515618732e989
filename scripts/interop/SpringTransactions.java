import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.kafka.config.TopicBuilder;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.ConcurrentMessageListenerContainer;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.DefaultAfterRollbackProcessor;
import org.springframework.kafka.listener.MessageListener;
import org.springframework.kafka.transaction.KafkaTransactionManager;
import org.springframework.transaction.support.TransactionTemplate;
import org.springframework.util.backoff.FixedBackOff;

/**
 * Spring's Kafka support for transactions: templates, a transaction manager, a container that is rolled back.
 *
 * Usage: SpringTransactions BOOTSTRAP PREFIX. Prints one line for each result; the last is "spring transactions done".
 */
public class SpringTransactions {
    static final long LIMIT_MS = 60_000;
    static final int COUNT = 300;
    static String bootstrap, prefix;

    public static void main(String[] arguments) {
        try {
            bootstrap = arguments[0];
            prefix = arguments[1];
            KafkaAdmin admin = new KafkaAdmin(new HashMap<>(Map.of("bootstrap.servers", bootstrap)));
            for (String name : List.of("-direct", "-managed", "-input", "-output"))
                admin.createOrModifyTopics(TopicBuilder.name(prefix + name).partitions(3).build());
            DefaultKafkaProducerFactory<String, String> producers = new DefaultKafkaProducerFactory<>(
                new HashMap<>(Map.of("bootstrap.servers", bootstrap)), new StringSerializer(), new StringSerializer());
            producers.setTransactionIdPrefix(prefix + "-tx-");
            KafkaTemplate<String, String> template = new KafkaTemplate<>(producers);
            direct(template);
            managed(template, new KafkaTransactionManager<>(producers));
            container(template, new KafkaTransactionManager<>(producers));
            producers.destroy();
            System.out.println("spring transactions done");
            System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1); // containers must not keep the process
        }
    }

    static void direct(KafkaTemplate<String, String> template) {
        for (int round = 0; round < 10; round++) {
            int number = round;
            try {
                template.executeInTransaction(operations -> {
                    for (int partition = 0; partition < 3; partition++) operations.send(prefix + "-direct", partition, "k", number + "-" + partition);
                    if (number % 2 == 1) throw new IllegalStateException("rolled back");
                    return null;
                });
            } catch (IllegalStateException expected) {
                check(number % 2 == 1, "only odd ones are rolled back: " + expected);
            }
        }
        List<String> seen = read("-direct");
        check(seen.size() == 15 && seen.stream().allMatch(value -> (value.charAt(0) - '0') % 2 == 0), "those that were committed: " + seen);
        System.out.println("ok: executeInTransaction, committed and rolled back");
    }

    static void managed(KafkaTemplate<String, String> template, KafkaTransactionManager<String, String> manager) {
        TransactionTemplate transactions = new TransactionTemplate(manager);
        for (int round = 0; round < 4; round++) {
            int number = round;
            transactions.executeWithoutResult(status -> {
                template.send(prefix + "-managed", "k", "m" + number);
                if (number % 2 == 1) status.setRollbackOnly();
            });
        }
        check(read("-managed").equals(Arrays.asList("m0", "m2")), "those that were committed: " + read("-managed"));
        System.out.println("ok: KafkaTransactionManager, committed and rolled back");
    }

    /** A container of three listeners; every tenth record fails at first, which rolls its transaction back. */
    static void container(KafkaTemplate<String, String> template, KafkaTransactionManager<String, String> manager) throws Exception {
        template.executeInTransaction(operations -> {
            for (int number = 0; number < COUNT; number++) operations.send(prefix + "-input", number % 3, "k", "v" + number);
            return null;
        });
        Set<String> failed = ConcurrentHashMap.newKeySet();
        ContainerProperties properties = new ContainerProperties(prefix + "-input");
        properties.setGroupId(prefix + "-g");
        properties.setKafkaAwareTransactionManager(manager);
        properties.setMessageListener((MessageListener<String, String>) record -> {
            template.send(prefix + "-output", record.partition(), record.key(), record.value());
            if (record.value().endsWith("7") && failed.add(record.value())) throw new IllegalStateException("once");
        });
        ConcurrentMessageListenerContainer<String, String> container = new ConcurrentMessageListenerContainer<>(consumers(), properties);
        container.setConcurrency(3);
        container.setAfterRollbackProcessor(new DefaultAfterRollbackProcessor<>(new FixedBackOff(20, 5)));
        container.start();
        awaitValues("-output", COUNT);
        container.stop();
        check(read("-output").size() == COUNT, "each once: " + read("-output").size());
        check(failed.size() == COUNT / 10, "so many were rolled back: " + failed.size());
        try (Consumer<String, String> consumer = consumers().createConsumer(prefix + "-g", "after")) {
            for (int partition = 0; partition < 3; partition++) {
                TopicPartition place = new TopicPartition(prefix + "-input", partition);
                check(consumer.committed(Set.of(place)).get(place).offset() >= COUNT / 3, "the offsets are those of the end");
            }
        }
        System.out.println("ok: a container whose transactions are rolled back");
    }

    static DefaultKafkaConsumerFactory<String, String> consumers() {
        return new DefaultKafkaConsumerFactory<>(
            new HashMap<>(Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "earliest", "isolation.level", "read_committed")),
            new StringDeserializer(), new StringDeserializer());
    }

    /** Every committed value up to the current ends. */
    static List<String> read(String name) {
        List<String> values = new ArrayList<>();
        try (Consumer<String, String> consumer = consumers().createConsumer("reader", "reader")) {
            List<TopicPartition> all = new ArrayList<>();
            for (int partition = 0; partition < 3; partition++) all.add(new TopicPartition(prefix + name, partition));
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            while (all.stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition)))
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) values.add(record.value());
        }
        return values;
    }

    /**
     * Waits for so many different committed values. It gives up where no new one has come for LIMIT_MS: on a busy machine
     * 300 transactions of each a few round trips may take longer than that.
     */
    static void awaitValues(String name, int count) throws Exception {
        long lastMs = System.currentTimeMillis();
        for (int seen = 0, before = 0; seen < count; before = seen) {
            Thread.sleep(50);
            seen = new TreeSet<>(read(name)).size();
            if (seen > before) lastMs = System.currentTimeMillis();
            check(System.currentTimeMillis() - lastMs < LIMIT_MS, "a new record within " + LIMIT_MS + " ms after " + seen + " of " + count);
        }
    }

    static void check(boolean isTrue, String what) {
        if (!isTrue) throw new IllegalStateException("not so: " + what);
    }
}
