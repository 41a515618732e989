import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * The life of a group of Java consumers: one member owns all, a second takes half, the first gets all back.
 *
 * Usage: GroupLife BOOTSTRAP TOPIC PARTITIONS classic-range|classic-cooperative|consumer|consumer-regex|static
 */
public class GroupLife {
    static final long LIMIT_S = 60;

    static class Member extends Thread {
        final KafkaConsumer<byte[], byte[]> consumer;
        final AtomicBoolean closing = new AtomicBoolean();
        final int id;
        volatile List<TopicPartition> owned = new ArrayList<>();
        volatile Throwable failure;

        Member(int id, String bootstrap, String topic, String kind) {
            this.id = id;
            Properties properties = new Properties();
            properties.put("bootstrap.servers", bootstrap);
            properties.put("group.id", "java-" + kind);
            properties.put("auto.offset.reset", "earliest");
            properties.put("enable.auto.commit", "false");
            properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
            properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
            if (kind.startsWith("consumer")) properties.put("group.protocol", "consumer");
            else properties.put("session.timeout.ms", "6000");
            if (kind.equals("classic-range"))
                properties.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor");
            if (kind.equals("classic-cooperative"))
                properties.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
            if (kind.equals("static")) properties.put("group.instance.id", "instance-" + id);
            consumer = new KafkaConsumer<>(properties);
            ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
                public void onPartitionsRevoked(Collection<TopicPartition> gone) { owned = without(gone); }
                public void onPartitionsLost(Collection<TopicPartition> gone) { owned = without(gone); }
                public void onPartitionsAssigned(Collection<TopicPartition> come) {
                    List<TopicPartition> all = new ArrayList<>(owned);
                    all.addAll(come);
                    owned = all;
                }
                List<TopicPartition> without(Collection<TopicPartition> gone) {
                    List<TopicPartition> rest = new ArrayList<>(owned);
                    rest.removeAll(gone);
                    return rest;
                }
            };
            if (kind.equals("consumer-regex"))
                consumer.subscribe(new SubscriptionPattern(topic.substring(0, topic.length() - 1) + ".*"), listener);
            else consumer.subscribe(List.of(topic), listener);
        }

        public void run() {
            try (consumer) {
                while (!closing.get()) {
                    consumer.poll(Duration.ofMillis(100));
                    try {
                        if (!owned.isEmpty()) consumer.commitSync(Duration.ofSeconds(10));
                    } catch (CommitFailedException | RebalanceInProgressException rebalancing) {
                        continue; // the next poll joins in
                    }
                }
            } catch (Throwable error) {
                failure = error;
            }
        }
    }

    static void until(String what, Member[] members, java.util.function.BooleanSupplier condition) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT_S);
        long begin = System.nanoTime();
        while (!condition.getAsBoolean()) {
            for (Member member : members)
                if (member.failure != null) throw new IllegalStateException("member " + member.id, member.failure);
            if (System.nanoTime() > end) {
                StringBuilder seen = new StringBuilder();
                for (Member member : members) seen.append(member.owned).append(' ');
                throw new IllegalStateException("never came: " + what + ", owned " + seen);
            }
            Thread.sleep(20);
        }
        System.out.println("ok: " + what + " after " + (System.nanoTime() - begin) / 1_000_000 + " ms");
    }

    public static void main(String[] arguments) {
        try {
            live(arguments);
            System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1); // members that still poll must not keep the process
        }
    }

    static void live(String[] arguments) throws Exception {
        String bootstrap = arguments[0], topic = arguments[1], kind = arguments[3];
        int partitions = Integer.parseInt(arguments[2]);
        Member first = new Member(1, bootstrap, topic, kind), second = new Member(2, bootstrap, topic, kind);
        Member[] members = {first, second};
        first.start();
        until("one member owns all " + partitions, members, () -> first.owned.size() == partitions);
        second.start();
        until("two members own half each", members, () ->
            first.owned.size() == partitions / 2 && second.owned.size() == partitions / 2);
        if (first.owned.stream().anyMatch(second.owned::contains)) throw new IllegalStateException("two owners");
        second.closing.set(true);
        second.join();
        until("the first owns all again", members, () -> first.owned.size() == partitions);
        first.closing.set(true);
        first.join();
        System.out.println("group life " + kind + " done");
    }
}
