import java.lang.reflect.Method;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.FinalizedVersionRange;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The administrator's calls about transactions with kafka-clients 3.9 or newer: lists, descriptions, aborts, fences, the feature's levels.
 *
 * Usage: TransactionAdminLife BOOTSTRAP PREFIX [LEVELS]. With a third argument transaction.version is lowered and raised, too,
 * which producers of the whole broker notice. Prints one line for each result, the same on each broker; the last one
 * is "transaction admin done". Exit status 1 with the stack trace of a failure.
 */
@SuppressWarnings("removal") // ConsumerGroupMetadata's constructors, from 4.4 on
public class TransactionAdminLife {
    static final long LIMIT_MS = 60_000;
    static String bootstrap, prefix;
    static Admin admin;

    public static void main(String[] arguments) {
        try {
            bootstrap = arguments[0];
            prefix = arguments[1];
            admin = Admin.create(Collections.singletonMap("bootstrap.servers", bootstrap));
            lists();
            descriptions();
            unknown();
            aborts();
            fences();
            if (arguments.length > 2) levels();
            System.out.println("transaction admin done");
            System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    static void lists() throws Exception {
        topic("lists", 1);
        try (KafkaProducer<String, String> open = producer("list-open"); KafkaProducer<String, String> done = producer("list-done"); KafkaProducer<String, String> empty = producer("list-empty")) {
            write(done, "lists", 0, "done");
            done.commitTransaction();
            write(open, "lists", 0, "open");
            check(listed(new ListTransactionsOptions()).equals(Set.of("list-open Ongoing", "list-done CompleteCommit", "list-empty Empty")), "all: " + listed(new ListTransactionsOptions()));
            check(listed(new ListTransactionsOptions().filterStates(Set.of(TransactionState.ONGOING))).equals(Set.of("list-open Ongoing")), "by state");
            check(listed(new ListTransactionsOptions().filterStates(Set.of(TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT))).equals(Set.of("list-empty Empty", "list-done CompleteCommit")), "by two states");
            long producerId = describe("list-done").producerId();
            check(listed(new ListTransactionsOptions().filterProducerIds(Set.of(producerId))).equals(Set.of("list-done CompleteCommit")), "by producer id");
            check(listed(new ListTransactionsOptions().filterProducerIds(Set.of(987_654_321L))).isEmpty(), "by a producer id that is not there");
            Thread.sleep(50);
            check(listed(new ListTransactionsOptions().filterOnDuration(20)).contains("list-open Ongoing"), "by duration");
            check(!listed(new ListTransactionsOptions().filterOnDuration(3_600_000)).contains("list-open Ongoing"), "by a long duration");
            System.out.println("ok: listed by a short duration " + listed(new ListTransactionsOptions().filterOnDuration(20))
                + ", by a long one " + listed(new ListTransactionsOptions().filterOnDuration(3_600_000))); // those that are not open count, too
            for (Method method : ListTransactionsOptions.class.getMethods())
                if (method.getName().equals("filterOnTransactionalIdPattern")) { // 4.1 has it
                    ListTransactionsOptions options = new ListTransactionsOptions();
                    method.invoke(options, prefix + "-list-[de].*");
                    check(listed(options).equals(Set.of("list-done CompleteCommit", "list-empty Empty")), "by pattern: " + listed(options));
                    method.invoke(options, "list-(");
                    System.out.println("ok: a wrong pattern: " + refusal(() -> admin.listTransactions(options).all().get()));
                }
            open.abortTransaction();
            check(listed(new ListTransactionsOptions().filterStates(Set.of(TransactionState.COMPLETE_ABORT))).equals(Set.of("list-open CompleteAbort")), "after the end");
        }
        System.out.println("ok: lists by state, producer id, duration");
    }

    static void descriptions() throws Exception {
        topic("described", 3);
        try (KafkaProducer<String, String> producer = producer("described")) {
            check(describe("described").state() == TransactionState.EMPTY && describe("described").transactionTimeoutMs() == 60_000, "an empty one");
            long begin = System.currentTimeMillis();
            write(producer, "described", 0, "one");
            producer.send(new ProducerRecord<>(prefix + "-described", 2, "k", "two")).get();
            producer.sendOffsetsToTransaction(Collections.singletonMap(place("described", 1), new OffsetAndMetadata(1)), new ConsumerGroupMetadata(prefix + "-described"));
            TransactionDescription told = describe("described");
            Set<String> names = told.topicPartitions().stream().map(Object::toString).map(name -> name.replace(prefix, "")).collect(Collectors.toCollection(TreeSet::new));
            check(told.state() == TransactionState.ONGOING && names.containsAll(Set.of("-described-0", "-described-2")) && names.size() == 3, "its partitions: " + names);
            check(Math.abs(told.transactionStartTimeMs().getAsLong() - begin) < 20_000, "its start");
            ProducerState state = producers("described", 2).iterator().next();
            check(state.producerId() == told.producerId() && state.producerEpoch() == told.producerEpoch() && state.currentTransactionStartOffset().getAsLong() == 0, "its producer: " + state);
            producer.commitTransaction();
            check(describe("described").topicPartitions().isEmpty() && describe("described").state() == TransactionState.COMPLETE_COMMIT, "after the end");
            check(producers("described", 2).iterator().next().currentTransactionStartOffset().isEmpty(), "no open transaction of the producer");
            System.out.println("ok: descriptions; coordinator id " + told.coordinatorId() + ", coordinator's epoch in the log "
                + (producers("described", 2).iterator().next().coordinatorEpoch().isPresent() ? "known" : "unknown"));
        }
    }

    static void unknown() {
        System.out.println("ok: unknown id: " + refusal(() -> describe("nobody"))
            + "; unknown partition: " + refusal(() -> producers("nothing", 0))
            + "; abort with a wrong epoch: " + refusal(() -> admin.abortTransaction(new AbortTransactionSpec(place("described", 0), producers("described", 0).iterator().next().producerId(), (short) -1, 0)).all().get())
            + "; of an unknown partition: " + refusal(() -> admin.abortTransaction(new AbortTransactionSpec(place("nothing", 0), 1, (short) 0, 0)).all().get()));
    }

    /** An administrator ends an open transaction in one partition, as kafka-transactions abort does. */
    static void aborts() throws Exception {
        topic("aborts", 2);
        try (KafkaProducer<String, String> producer = producer("aborts")) {
            write(producer, "aborts", 0, "hangs");
            producer.send(new ProducerRecord<>(prefix + "-aborts", 1, "k", "hangs, too")).get();
            ProducerState state = producers("aborts", 0).iterator().next();
            admin.abortTransaction(new AbortTransactionSpec(place("aborts", 0), state.producerId(), (short) state.producerEpoch(), state.coordinatorEpoch().orElse(0))).all().get();
            check(producers("aborts", 0).iterator().next().currentTransactionStartOffset().isEmpty(), "it has ended in this partition");
            check(stable("aborts", 0) == 2 && stable("aborts", 1) == 0, "readers of this one are free, those of the other wait: " + stable("aborts", 0) + ", " + stable("aborts", 1));
            String refused = refusal(() -> producer.commitTransaction());
            producer.close(Duration.ZERO);
            producer("aborts").close();
            check(stable("aborts", 1) > 1, "both are free after a successor");
            check(readCommitted("aborts", 2).stream().noneMatch("hangs"::equals), "the aborted record is not read");
            System.out.println("ok: an abort by an administrator; the producer's commit: " + refused);
        }
    }

    static void fences() throws Exception {
        topic("fences", 1);
        KafkaProducer<String, String> first = producer("fence-1"), second = producer("fence-2");
        write(first, "fences", 0, "fenced");
        admin.fenceProducers(Arrays.asList(prefix + "-fence-1", prefix + "-fence-2", prefix + "-fence-3")).all().get();
        String one = refusal(() -> first.commitTransaction());
        String other = refusal(() -> {
            second.beginTransaction();
            second.send(new ProducerRecord<>(prefix + "-fences", 0, "k", "fenced")).get();
        });
        first.close(Duration.ZERO);
        second.close(Duration.ZERO);
        check(readCommitted("fences", 1).isEmpty(), "no record of a fenced producer is read");
        try (KafkaProducer<String, String> third = producer("fence-1")) {
            write(third, "fences", 0, "kept");
            third.commitTransaction();
        }
        check(readCommitted("fences", 1).equals(Arrays.asList("kept")), "its successor's is");
        System.out.println("ok: fenced producers: commit " + one + ", send " + other);
    }

    /** The level of transaction.version is lowered and raised while producers work. */
    static void levels() throws Exception {
        topic("levels", 2);
        List<String> kept = new ArrayList<>();
        KafkaProducer<String, String> old = producer("level-old");
        for (short level : new short[] {2, 1, 0, 1, 2}) {
            boolean isOver = level == 1 && kept.size() < 5 || level == 2; // with 0 before or after, Apache Kafka refuses what is open
            if (isOver) write(old, "levels", 0, "over " + kept.size());
            setLevel(level);
            if (isOver) {
                old.send(new ProducerRecord<>(prefix + "-levels", 1, "k", "the change")).get();
                old.commitTransaction();
                kept.addAll(Arrays.asList("over " + kept.size(), "the change"));
            }
            try (KafkaProducer<String, String> fresh = producer("level-" + kept.size())) {
                write(fresh, "levels", 0, "fresh " + kept.size());
                fresh.sendOffsetsToTransaction(Collections.singletonMap(place("levels", 1), new OffsetAndMetadata(level)), new ConsumerGroupMetadata(prefix + "-levels"));
                fresh.commitTransaction();
                write(fresh, "levels", 0, "gone");
                fresh.abortTransaction();
            }
            System.out.println("ok: transactions at level " + level + " of transaction.version");
            kept.add("fresh " + kept.size());
            check(new TreeSet<>(readCommitted("levels", 2)).equals(new TreeSet<>(kept)), "level " + level + ": " + readCommitted("levels", 2));
        }
        old.close();
        System.out.println("ok: transactions at each level of transaction.version, and over the changes");
    }

    static void setLevel(short level) throws Exception {
        FinalizedVersionRange now = admin.describeFeatures().featureMetadata().get().finalizedFeatures().get("transaction.version");
        int current = now == null ? 0 : now.maxVersionLevel();
        if (current == level) return;
        FeatureUpdate.UpgradeType kind = level > current ? FeatureUpdate.UpgradeType.UPGRADE : FeatureUpdate.UpgradeType.SAFE_DOWNGRADE;
        admin.updateFeatures(Map.of("transaction.version", new FeatureUpdate(level, kind)), new UpdateFeaturesOptions()).all().get();
        long end = System.currentTimeMillis() + LIMIT_MS;
        while (true) {
            now = admin.describeFeatures().featureMetadata().get().finalizedFeatures().get("transaction.version");
            if ((now == null ? 0 : now.maxVersionLevel()) == level) return;
            check(System.currentTimeMillis() < end, "the level becomes " + level);
            Thread.sleep(50);
        }
    }

    // --- shared by all steps

    static void topic(String name, int partitions) throws Exception {
        admin.createTopics(Arrays.asList(new NewTopic(prefix + "-" + name, partitions, (short) 1))).all().get();
    }

    static TopicPartition place(String topic, int partition) {
        return new TopicPartition(prefix + "-" + topic, partition);
    }

    static KafkaProducer<String, String> producer(String name) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("transactional.id", prefix + "-" + name);
        KafkaProducer<String, String> producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    /** Begins a transaction with one record, which is acknowledged on return. */
    static void write(KafkaProducer<String, String> producer, String topic, int partition, String value) throws Exception {
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(prefix + "-" + topic, partition, "k", value)).get();
    }

    static TransactionDescription describe(String name) throws Exception {
        return admin.describeTransactions(Arrays.asList(prefix + "-" + name)).description(prefix + "-" + name).get();
    }

    static Collection<ProducerState> producers(String topic, int partition) throws Exception {
        TopicPartition place = place(topic, partition);
        return admin.describeProducers(Arrays.asList(place)).partitionResult(place).get().activeProducers();
    }

    /** "name State" of each listed id that begins with "list-". */
    static Set<String> listed(ListTransactionsOptions options) throws Exception {
        Set<String> found = new TreeSet<>();
        for (TransactionListing one : admin.listTransactions(options).all().get())
            if (one.transactionalId().startsWith(prefix + "-list-")) found.add(one.transactionalId().substring(prefix.length() + 1) + " " + one.state());
        return found;
    }

    static KafkaConsumer<String, String> reader() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("isolation.level", "read_committed");
        return new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    }

    static long stable(String topic, int partition) {
        try (KafkaConsumer<String, String> consumer = reader()) {
            return consumer.endOffsets(Collections.singleton(place(topic, partition))).values().iterator().next();
        }
    }

    static List<String> readCommitted(String topic, int partitions) {
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = reader()) {
            List<TopicPartition> all = new ArrayList<>();
            for (int partition = 0; partition < partitions; partition++) all.add(place(topic, partition));
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            long limit = System.currentTimeMillis() + LIMIT_MS;
            while (all.stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition))) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) values.add(record.value());
                check(System.currentTimeMillis() < limit, "the end is reached");
            }
        }
        return values;
    }

    interface Act { void run() throws Exception; }

    /** The class of the exception, or "none". */
    static String refusal(Act act) {
        try {
            act.run();
            return "none";
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        } catch (Exception error) {
            return error.getClass().getSimpleName();
        }
    }

    static void check(boolean isTrue, String what) {
        if (!isTrue) throw new IllegalStateException("not so: " + what);
    }
}
