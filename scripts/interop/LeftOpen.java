import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Leaves transactions open: a record in each partition, and an offset of a group, by producers that end without ending them.
 *
 * Usage: LeftOpen BOOTSTRAP PREFIX COUNT. The topic PREFIX-t has a partition for each; the transactional ids are PREFIX-0 and up.
 */
@SuppressWarnings("removal") // ConsumerGroupMetadata's constructors, from 4.4 on
public class LeftOpen {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1] + "-t";
        int count = Integer.parseInt(arguments[2]);
        try (Admin admin = Admin.create(Collections.singletonMap("bootstrap.servers", arguments[0]))) {
            admin.createTopics(Arrays.asList(new NewTopic(topic, count, (short) 1))).all().get();
        }
        for (int index = 0; index < count; index++) {
            Properties properties = new Properties();
            properties.put("bootstrap.servers", arguments[0]);
            properties.put("transactional.id", arguments[1] + "-" + index);
            KafkaProducer<String, String> producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, index, "k", "left open")).get();
            producer.sendOffsetsToTransaction(Collections.singletonMap(new TopicPartition(topic, index), new OffsetAndMetadata(1)), new ConsumerGroupMetadata(arguments[1] + "-g"));
            producer.close(Duration.ZERO);
        }
        System.out.println("left open: " + count);
        System.exit(0);
    }
}
