import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
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
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DefaultErrorHandler;
import org.springframework.kafka.listener.KafkaMessageListenerContainer;
import org.springframework.kafka.listener.MessageListener;
import org.springframework.kafka.requestreply.ReplyingKafkaTemplate;
import org.springframework.kafka.support.KafkaHeaders;
import org.springframework.util.backoff.FixedBackOff;

/**
 * Spring's Kafka support: topics, listeners of a group, retries and dead letters, request and reply.
 *
 * Usage: SpringLife BOOTSTRAP PREFIX. Prints one line for each result; the last one is "spring life done".
 */
public class SpringLife {
    static final long LIMIT_MS = 60_000;
    static String bootstrap, prefix;

    public static void main(String[] arguments) {
        try {
            bootstrap = arguments[0];
            prefix = arguments[1];
            topics();
            KafkaTemplate<String, String> template = new KafkaTemplate<>(producers());
            listeners(template);
            deadLetters(template);
            requestAndReply(template);
            System.out.println("spring life done");
            System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1); // containers must not keep the process
        }
    }

    /** KafkaAdmin creates missing topics, and adds partitions and configurations to existing ones. */
    static void topics() {
        KafkaAdmin admin = new KafkaAdmin(Collections.singletonMap("bootstrap.servers", bootstrap));
        admin.setModifyTopicConfigs(true);
        for (int partitions : new int[] {2, 4})
            admin.createOrModifyTopics(TopicBuilder.name(prefix + "-t").partitions(partitions).config("retention.ms", partitions + "0000000").build());
        for (String name : List.of("-orders", "-orders-dlt", "-questions", "-answers"))
            admin.createOrModifyTopics(TopicBuilder.name(prefix + name).partitions(2).build());
        check(admin.describeTopics(prefix + "-t").get(prefix + "-t").partitions().size() == 4, "partitions are added");
        System.out.println("ok: topics are created and grow");
    }

    static void listeners(KafkaTemplate<String, String> template) throws Exception {
        Set<String> seen = ConcurrentHashMap.newKeySet();
        AtomicInteger count = new AtomicInteger();
        ContainerProperties properties = new ContainerProperties(prefix + "-t");
        properties.setGroupId(prefix + "-g");
        properties.setMessageListener((MessageListener<String, String>) record -> { seen.add(record.value()); count.incrementAndGet(); });
        ConcurrentMessageListenerContainer<String, String> container = new ConcurrentMessageListenerContainer<>(consumers(), properties);
        container.setConcurrency(2);
        container.start();
        List<java.util.concurrent.CompletableFuture<?>> sent = new ArrayList<>();
        for (int number = 0; number < 400; number++) sent.add(template.send(prefix + "-t", number % 4, "k" + number, "v" + number));
        for (java.util.concurrent.CompletableFuture<?> future : sent) future.get(30, TimeUnit.SECONDS);
        until("all records", () -> seen.size() == 400);
        until("both listeners own partitions", () -> container.getAssignmentsByClientId().values().stream().filter(owned -> owned.size() == 2).count() == 2);
        container.stop();
        container.start();
        template.send(prefix + "-t", 0, "k", "after").get(30, TimeUnit.SECONDS);
        until("what came after a restart", () -> seen.contains("after"));
        check(count.get() == 401, "every record once: " + count.get());
        container.stop();
        System.out.println("ok: a container of two listeners, stopped and started");
    }

    static void deadLetters(KafkaTemplate<String, String> template) throws Exception {
        AtomicInteger attempts = new AtomicInteger();
        Set<String> good = ConcurrentHashMap.newKeySet();
        ContainerProperties properties = new ContainerProperties(prefix + "-orders");
        properties.setGroupId(prefix + "-orders");
        properties.setMessageListener((MessageListener<String, String>) record -> {
            if (record.value().equals("bad")) {
                attempts.incrementAndGet();
                throw new IllegalStateException("cannot be done");
            }
            good.add(record.value());
        });
        KafkaMessageListenerContainer<String, String> container = new KafkaMessageListenerContainer<>(consumers(), properties);
        container.setCommonErrorHandler(new DefaultErrorHandler(
            new DeadLetterPublishingRecoverer(template, (record, error) -> new TopicPartition(prefix + "-orders-dlt", record.partition())), new FixedBackOff(100, 2)));
        container.start();
        for (String value : List.of("one", "bad", "two")) template.send(prefix + "-orders", 0, "k", value).get(30, TimeUnit.SECONDS);
        Map<String, String> dead = new ConcurrentHashMap<>();
        ContainerProperties letters = new ContainerProperties(prefix + "-orders-dlt");
        letters.setGroupId(prefix + "-letters");
        letters.setMessageListener((MessageListener<String, String>) record ->
            dead.put(record.value(), new String(record.headers().lastHeader(KafkaHeaders.DLT_ORIGINAL_TOPIC).value())));
        KafkaMessageListenerContainer<String, String> reader = new KafkaMessageListenerContainer<>(consumers(), letters);
        reader.start();
        until("the others are handled", () -> good.equals(Set.of("one", "two")));
        until("a dead letter", () -> dead.equals(Map.of("bad", prefix + "-orders")));
        check(attempts.get() == 3, "three attempts, not " + attempts.get());
        container.stop();
        reader.stop();
        System.out.println("ok: retries and a dead letter");
    }

    static void requestAndReply(KafkaTemplate<String, String> template) throws Exception {
        ContainerProperties questions = new ContainerProperties(prefix + "-questions");
        questions.setGroupId(prefix + "-servers");
        questions.setMessageListener((MessageListener<String, String>) record -> {
            ProducerRecord<String, String> answer = new ProducerRecord<>(prefix + "-answers", record.value().toUpperCase());
            answer.headers().add(record.headers().lastHeader(KafkaHeaders.CORRELATION_ID));
            template.send(answer);
        });
        KafkaMessageListenerContainer<String, String> server = new KafkaMessageListenerContainer<>(consumers(), questions);
        server.start();
        ContainerProperties answers = new ContainerProperties(prefix + "-answers");
        answers.setGroupId(prefix + "-askers");
        ReplyingKafkaTemplate<String, String, String> asking =
            new ReplyingKafkaTemplate<>(producers(), new KafkaMessageListenerContainer<>(consumers(), answers));
        asking.start();
        check(asking.waitForAssignment(java.time.Duration.ofMillis(LIMIT_MS)), "the asker is assigned");
        for (int number = 0; number < 20; number++) {
            ConsumerRecord<String, String> answer =
                asking.sendAndReceive(new ProducerRecord<>(prefix + "-questions", "k" + number, "q" + number)).get(60, TimeUnit.SECONDS);
            check(answer.value().equals("Q" + number), "the answer belongs to the question");
        }
        asking.stop();
        server.stop();
        System.out.println("ok: requests and replies");
    }

    static DefaultKafkaProducerFactory<String, String> producers() {
        return new DefaultKafkaProducerFactory<>(new HashMap<>(Map.of("bootstrap.servers", bootstrap)), new StringSerializer(), new StringSerializer());
    }

    static DefaultKafkaConsumerFactory<String, String> consumers() {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "earliest"));
        return new DefaultKafkaConsumerFactory<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    static void until(String what, BooleanSupplier condition) throws Exception {
        long end = System.currentTimeMillis() + LIMIT_MS;
        while (!condition.getAsBoolean()) {
            check(System.currentTimeMillis() < end, what + " came");
            Thread.sleep(50);
        }
    }

    static void check(boolean isTrue, String what) {
        if (!isTrue) throw new IllegalStateException("not so: " + what);
    }
}
