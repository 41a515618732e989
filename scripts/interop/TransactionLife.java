import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A program that uses the transactions of kafka-clients, any release from 2.8 on: commit, abort, offsets, fencing, time.
 *
 * Usage: TransactionLife BOOTSTRAP PREFIX. PREFIX begins the names of topics, groups and transactional ids. Prints one line
 * for each result, with the classes of the exceptions, so that two brokers' lines can be compared; the last one is
 * "transaction life done". Exit status 1 with the stack trace of a failure.
 */
@SuppressWarnings("removal") // ConsumerGroupMetadata's constructors, from 4.4 on
public class TransactionLife {
    static final long LIMIT_MS = 60_000;
    static final int PARTITIONS = 6;
    static String bootstrap, prefix;

    public static void main(String[] arguments) {
        try {
            bootstrap = arguments[0];
            prefix = arguments[1];
            commitAndAbort();
            emptyTransactions();
            large();
            waitingReader();
            offsets();
            staleMember();
            exactlyOnce();
            fencing();
            leftOpen();
            tooLong();
            limits();
            System.out.println("transaction life done");
            System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1); // threads that still poll must not keep the process
        }
    }

    /** Each isolation level reads what it should, over several partitions; the ends are those of the level. */
    static void commitAndAbort() throws Exception {
        String topic = topic("ends", PARTITIONS);
        TreeSet<String> committed = new TreeSet<>(), every = new TreeSet<>();
        try (KafkaProducer<String, String> producer = producer("ends")) {
            for (int round = 0; round < 20; round++) {
                producer.beginTransaction();
                for (int number = 0; number < 30; number++) {
                    String value = String.format("%02d-%02d", round, number);
                    producer.send(new ProducerRecord<>(topic, number % PARTITIONS, "k", value));
                    every.add(value);
                    if (round % 3 != 1) committed.add(value);
                }
                if (round % 2 == 0) producer.flush();
                if (round % 3 == 1) producer.abortTransaction(); // with and without what is not yet sent
                else producer.commitTransaction();
            }
            check(new TreeSet<>(readAll(topic, true)).equals(committed), "each committed record is read, and no other");
            check(readAll(topic, true).size() == committed.size(), "none is read twice");
            TreeSet<String> seen = new TreeSet<>(readAll(topic, false));
            check(seen.containsAll(committed) && every.containsAll(seen), "a reader of uncommitted records reads them all");
            producer.beginTransaction();
            RecordMetadata sent = producer.send(new ProducerRecord<>(topic, 0, "k", "open")).get();
            check(ends(topic, true).get(0) == sent.offset(), "the last stable offset is that of the open transaction");
            check(ends(topic, false).get(0) == sent.offset() + 1, "the high watermark is after it");
            producer.abortTransaction();
            check(ends(topic, true).get(0) == sent.offset() + 2, "after the marker both are the same");
        }
        System.out.println("ok: committed and aborted records, both isolation levels");
    }

    static void emptyTransactions() throws Exception {
        try (KafkaProducer<String, String> producer = producer("empty")) {
            for (int round = 0; round < 6; round++) {
                producer.beginTransaction();
                if (round % 2 == 0) producer.commitTransaction();
                else producer.abortTransaction();
            }
        }
        System.out.println("ok: transactions without a record");
    }

    /** Many batches in every partition; the first time aborted. */
    static void large() throws Exception {
        String topic = topic("large", PARTITIONS), filling = "x".repeat(1000);
        int count = 12_000;
        try (KafkaProducer<String, String> producer = producer("large")) {
            for (String name : Arrays.asList("aborted", "committed")) {
                producer.beginTransaction();
                for (int number = 0; number < count; number++)
                    producer.send(new ProducerRecord<>(topic, number % PARTITIONS, name, number + filling));
                if (name.equals("aborted")) {
                    producer.flush();
                    producer.abortTransaction();
                } else producer.commitTransaction();
            }
        }
        List<String> seen = readAll(topic, true);
        check(seen.size() == count && new TreeSet<>(seen).size() == count, "the committed records are read once each: " + seen.size());
        check(readAll(topic, false).size() == 2 * count, "the others are in the log");
        System.out.println("ok: transactions of " + count + " records of 1 KB");
    }

    /** A reader that waits gets committed records, in the order of the log, as soon as they are committed. */
    static void waitingReader() throws Exception {
        String topic = topic("waiting", 1);
        try (KafkaProducer<String, String> producer = producer("waiting"); KafkaProducer<String, String> plain = plain(); KafkaConsumer<String, String> reader = reader(topic, true)) {
            for (boolean isKept : new boolean[] {true, false, true}) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, 0, "k", "inside")).get();
                plain.send(new ProducerRecord<>(topic, 0, "k", "beside")).get();
                check(reader.poll(Duration.ofMillis(400)).isEmpty(), "nothing is read while the transaction is open");
                if (isKept) producer.commitTransaction();
                else producer.abortTransaction();
                List<String> expected = isKept ? Arrays.asList("inside", "beside") : Arrays.asList("beside"), seen = new ArrayList<>();
                long end = System.currentTimeMillis() + LIMIT_MS;
                while (seen.size() < expected.size() && System.currentTimeMillis() < end)
                    for (ConsumerRecord<String, String> record : reader.poll(Duration.ofMillis(100))) seen.add(record.value());
                check(seen.equals(expected), expected + " is read, not " + seen);
            }
        }
        System.out.println("ok: a reader that waits for the end of a transaction");
    }

    /** Offsets move with the transaction; a reader of stable offsets waits for its end. */
    static void offsets() throws Exception {
        String topic = topic("offsets", 2), group = prefix + "-offsets";
        TopicPartition first = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer = producer("offsets")) {
            for (int round = 1; round <= 4; round++) {
                producer.beginTransaction();
                if (round > 2) producer.send(new ProducerRecord<>(topic, 1, "k", "v" + round));
                producer.sendOffsetsToTransaction(Collections.singletonMap(first, new OffsetAndMetadata(round, "round " + round)), new ConsumerGroupMetadata(group));
                if (round % 2 == 0) producer.commitTransaction();
                else producer.abortTransaction();
                OffsetAndMetadata found = committed(group, first);
                check(round == 1 ? found == null : found.offset() == round / 2 * 2 && found.metadata().equals("round " + round / 2 * 2), "offset of round " + round + ": " + found);
            }
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(Collections.singletonMap(first, new OffsetAndMetadata(9)), new ConsumerGroupMetadata(group));
            Class<?> refused = null;
            try (KafkaConsumer<String, String> stable = consumer(group, true)) {
                stable.committed(Collections.singleton(first), Duration.ofMillis(1500));
            } catch (KafkaException error) {
                refused = error.getClass();
            }
            check(refused != null, "a pending offset is not returned to a reader that requires stable ones");
            producer.commitTransaction();
            check(committed(group, first).offset() == 9, "it is after the end");
            System.out.println("ok: offsets in transactions; while they are pending: " + refused.getSimpleName());
        }
    }

    /** A member that is no longer one (or of an old generation) cannot move the group's offsets. */
    static void staleMember() throws Exception {
        String topic = topic("stale", 2), group = prefix + "-stale";
        try (KafkaConsumer<String, String> consumer = consumer(group, true); KafkaProducer<String, String> producer = producer("stale")) {
            consumer.subscribe(Arrays.asList(topic));
            long end = System.currentTimeMillis() + LIMIT_MS;
            while (consumer.assignment().isEmpty() && System.currentTimeMillis() < end) consumer.poll(Duration.ofMillis(100));
            ConsumerGroupMetadata now = consumer.groupMetadata();
            TopicPartition first = new TopicPartition(topic, 0);
            List<String> classes = new ArrayList<>();
            ConsumerGroupMetadata[] wrong = {
                new ConsumerGroupMetadata(group, now.generationId() + 7, now.memberId(), now.groupInstanceId()),
                new ConsumerGroupMetadata(group, now.generationId(), "nobody", now.groupInstanceId())
            };
            for (ConsumerGroupMetadata metadata : wrong) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, 1, "k", "v")).get();
                try {
                    producer.sendOffsetsToTransaction(Collections.singletonMap(first, new OffsetAndMetadata(5)), metadata);
                    producer.commitTransaction();
                    classes.add("none");
                } catch (KafkaException error) {
                    classes.add(error.getClass().getSimpleName());
                    producer.abortTransaction();
                }
            }
            check(committed(group, first) == null, "no offset was committed");
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(Collections.singletonMap(first, new OffsetAndMetadata(6)), consumer.groupMetadata());
            producer.commitTransaction();
            check(committed(group, first).offset() == 6, "the real member's is");
            System.out.println("ok: a stale generation, an unknown member: " + classes);
        }
    }

    /** Two workers in a group move 3,000 records; every third transaction is aborted, and done again. */
    static void exactlyOnce() throws Exception {
        String input = topic("input", 4), output = topic("output", 4);
        int count = 3000;
        try (KafkaProducer<String, String> plain = plain()) {
            for (int number = 0; number < count; number++) plain.send(new ProducerRecord<>(input, number % 4, "k" + number, "v" + number));
        }
        List<Worker> workers = new ArrayList<>();
        for (int index = 0; index < 2; index++) workers.add(new Worker(input, output, index));
        for (Worker worker : workers) worker.start();
        TreeSet<String> seen = new TreeSet<>();
        try (KafkaConsumer<String, String> reader = reader(output, true)) {
            long end = System.currentTimeMillis() + 2 * LIMIT_MS;
            while (seen.size() < count) {
                for (ConsumerRecord<String, String> record : reader.poll(Duration.ofMillis(100)))
                    check(seen.add(record.value()), record.value() + " is read once");
                for (Worker worker : workers) if (worker.failure != null) throw new IllegalStateException("a worker failed", worker.failure);
                check(System.currentTimeMillis() < end, "all records came; " + seen.size() + " did");
            }
        }
        for (Worker worker : workers) worker.isStopping = true;
        for (Worker worker : workers) worker.join();
        check(readAll(output, true).size() == count, "none is there twice");
        for (int index = 0; index < 4; index++) check(committed(prefix + "-workers", new TopicPartition(input, index)).offset() == count / 4, "the offsets are those of the end");
        System.out.println("ok: " + count + " records through two workers of a group, once each");
    }

    static class Worker extends Thread {
        final String input, output;
        final int index;
        volatile boolean isStopping;
        volatile Throwable failure;

        Worker(String input, String output, int index) {
            this.input = input;
            this.output = output;
            this.index = index;
        }

        public void run() {
            Random random = new Random(index);
            try (KafkaConsumer<String, String> consumer = consumer(prefix + "-workers", true); KafkaProducer<String, String> producer = producer("worker-" + index)) {
                consumer.subscribe(Arrays.asList(input), new ConsumerRebalanceListener() {
                    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {}

                    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {}
                });
                while (!isStopping) {
                    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>(), begins = new HashMap<>();
                    var records = consumer.poll(Duration.ofMillis(100));
                    if (records.isEmpty()) continue;
                    producer.beginTransaction();
                    for (ConsumerRecord<String, String> record : records) {
                        TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                        begins.putIfAbsent(partition, new OffsetAndMetadata(record.offset()));
                        offsets.put(partition, new OffsetAndMetadata(record.offset() + 1));
                        producer.send(new ProducerRecord<>(output, record.partition(), record.key(), record.value()));
                    }
                    try {
                        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                        if (random.nextInt(3) == 0) throw new KafkaException("this one is done again");
                        producer.commitTransaction();
                    } catch (KafkaException error) {
                        producer.abortTransaction();
                        for (TopicPartition partition : consumer.assignment())
                            if (begins.containsKey(partition)) consumer.seek(partition, begins.get(partition).offset());
                    }
                }
            } catch (Throwable error) {
                failure = error;
            }
        }
    }

    /** A second producer of the id: the first one's transaction is aborted, and its next calls are refused. */
    static void fencing() throws Exception {
        String topic = topic("fencing", 1);
        List<String> classes = new ArrayList<>();
        for (String act : Arrays.asList("commit", "abort", "send", "offsets", "begin")) {
            KafkaProducer<String, String> first = producer("fencing");
            if (!act.equals("begin")) {
                first.beginTransaction();
                first.send(new ProducerRecord<>(topic, 0, "k", "of the first")).get();
            }
            KafkaProducer<String, String> second = producer("fencing");
            second.beginTransaction();
            second.send(new ProducerRecord<>(topic, 0, "k", "of the second")).get();
            try {
                if (act.equals("commit")) first.commitTransaction();
                if (act.equals("abort")) first.abortTransaction();
                if (act.equals("begin")) first.beginTransaction();
                if (act.equals("begin") || act.equals("send")) get(first.send(new ProducerRecord<>(topic, 0, "k", "too late")));
                if (act.equals("offsets"))
                    first.sendOffsetsToTransaction(Collections.singletonMap(new TopicPartition(topic, 0), new OffsetAndMetadata(1)), new ConsumerGroupMetadata(prefix + "-fencing"));
                classes.add(act + ": none");
            } catch (KafkaException error) {
                classes.add(act + ": " + error.getClass().getSimpleName());
            }
            first.close(Duration.ZERO);
            second.commitTransaction();
            second.close();
        }
        check(readAll(topic, true).equals(Collections.nCopies(5, "of the second")), "only the second producer's are there: " + readAll(topic, true));
        System.out.println("ok: a producer that was fenced: " + classes);
    }

    /** The open transaction of a dead producer is aborted when its successor begins. */
    static void leftOpen() throws Exception {
        String topic = topic("left", 3);
        for (int round = 0; round < 5; round++) {
            KafkaProducer<String, String> dead = producer("left");
            dead.beginTransaction();
            for (int partition = 0; partition < 3; partition++) dead.send(new ProducerRecord<>(topic, partition, "k", "left open")).get();
            dead.close(Duration.ZERO);
            try (KafkaProducer<String, String> heir = producer("left")) {
                heir.beginTransaction();
                heir.send(new ProducerRecord<>(topic, round % 3, "k", "heir " + round)).get();
                heir.commitTransaction();
            }
        }
        check(new TreeSet<>(readAll(topic, true)).equals(new TreeSet<>(Arrays.asList("heir 0", "heir 1", "heir 2", "heir 3", "heir 4"))), "the heirs' are there");
        System.out.println("ok: transactions that a producer left open");
    }

    /** The broker ends a transaction that is open for longer than its timeout; the producer can continue after that. */
    static void tooLong() throws Exception {
        String topic = topic("long", 1);
        try (KafkaProducer<String, String> producer = producer("long", 1000)) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, "k", "forgotten")).get();
            long end = System.currentTimeMillis() + LIMIT_MS;
            while (ends(topic, true).get(0) < 2) {
                check(System.currentTimeMillis() < end, "the broker aborts it");
                Thread.sleep(100);
            }
            String refused = "none", again = "none";
            try {
                producer.commitTransaction();
            } catch (KafkaException error) {
                refused = error.getClass().getSimpleName();
            }
            try {
                producer.abortTransaction();
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, 0, "k", "again"));
                producer.commitTransaction();
            } catch (KafkaException error) {
                again = error.getClass().getSimpleName();
            }
            System.out.println("ok: a transaction that was open too long; commit: " + refused + ", abort and a new one: " + again);
        }
        check(!readAll(topic, true).contains("forgotten"), "its record is not read");
        try (KafkaProducer<String, String> heir = producer("long")) {
            heir.beginTransaction();
            heir.send(new ProducerRecord<>(topic, 0, "k", "heir"));
            heir.commitTransaction();
        }
        check(readAll(topic, true).contains("heir"), "the heir's is");
    }

    static void limits() throws Exception {
        List<String> classes = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer("limits", 3_600_000)) {
            classes.add("none");
        } catch (KafkaException error) {
            classes.add(error.getClass().getSimpleName());
        }
        for (int round = 0; round < 30; round++) producer("often").close();
        try (KafkaProducer<String, String> producer = producer("\u00e4 \u4e2d".repeat(100))) {
            producer.beginTransaction();
            producer.commitTransaction();
        }
        System.out.println("ok: a timeout of an hour: " + classes + ", thirty producers of an id, a strange id");
    }

    // --- shared by all steps

    static String topic(String name, int partitions) throws Exception {
        try (Admin admin = Admin.create(Collections.singletonMap("bootstrap.servers", bootstrap))) {
            admin.createTopics(Arrays.asList(new NewTopic(prefix + "-" + name, partitions, (short) 1))).all().get();
        }
        return prefix + "-" + name;
    }

    static KafkaProducer<String, String> producer(String name) {
        return producer(name, 60_000);
    }

    static KafkaProducer<String, String> producer(String name, int timeoutMs) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("transactional.id", prefix + "-" + name);
        properties.put("transaction.timeout.ms", Integer.toString(timeoutMs));
        KafkaProducer<String, String> producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
        try {
            producer.initTransactions();
        } catch (RuntimeException error) {
            producer.close();
            throw error;
        }
        return producer;
    }

    static KafkaProducer<String, String> plain() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        return new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(String group, boolean isCommitted) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("isolation.level", isCommitted ? "read_committed" : "read_uncommitted");
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("max.poll.records", "100");
        if (group != null) properties.put("group.id", group);
        return new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    }

    static KafkaConsumer<String, String> reader(String topic, boolean isCommitted) {
        KafkaConsumer<String, String> consumer = consumer(null, isCommitted);
        List<TopicPartition> partitions = new ArrayList<>();
        consumer.partitionsFor(topic).forEach(one -> partitions.add(new TopicPartition(topic, one.partition())));
        consumer.assign(partitions);
        consumer.seekToBeginning(partitions);
        return consumer;
    }

    /** Every value up to the current ends. */
    static List<String> readAll(String topic, boolean isCommitted) {
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = reader(topic, isCommitted)) {
            Map<TopicPartition, Long> ends = consumer.endOffsets(consumer.assignment());
            long limit = System.currentTimeMillis() + LIMIT_MS;
            while (consumer.assignment().stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition))) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) values.add(record.value());
                check(System.currentTimeMillis() < limit, "the end of " + topic + " is reached");
            }
        }
        return values;
    }

    static TreeMap<Integer, Long> ends(String topic, boolean isCommitted) {
        TreeMap<Integer, Long> found = new TreeMap<>();
        try (KafkaConsumer<String, String> consumer = reader(topic, isCommitted)) {
            consumer.endOffsets(consumer.assignment()).forEach((partition, offset) -> found.put(partition.partition(), offset));
        }
        return found;
    }

    static OffsetAndMetadata committed(String group, TopicPartition partition) {
        try (KafkaConsumer<String, String> consumer = consumer(group, true)) {
            return consumer.committed(Collections.singleton(partition)).get(partition);
        }
    }

    static void get(Future<RecordMetadata> future) throws Exception {
        try {
            future.get();
        } catch (ExecutionException error) {
            throw (Exception) error.getCause();
        }
    }

    static void check(boolean isTrue, String what) {
        if (!isTrue) throw new IllegalStateException("not so: " + what);
    }
}
