import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.testcontainers.kafka.KafkaContainer;
import org.testcontainers.utility.DockerImageName;

/** Testcontainers' Kafka module with the image given as the first argument. */
public class Containers {
    public static void main(String[] arguments) throws Exception {
        DockerImageName image =
                DockerImageName.parse(arguments[0]).asCompatibleSubstituteFor("apache/kafka");
        long begun = System.nanoTime();
        try (KafkaContainer kafka = new KafkaContainer(image)) {
            kafka.start();
            System.out.printf("started after %d ms%n", (System.nanoTime() - begun) / 1_000_000);
            String bootstrap = kafka.getBootstrapServers();
            try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
                admin.createTopics(List.of(new NewTopic("t", 3, (short) 1))).all().get();
            }
            Properties properties = new Properties();
            properties.put("bootstrap.servers", bootstrap);
            try (KafkaProducer<String, String> producer =
                    new KafkaProducer<>(
                            properties, new StringSerializer(), new StringSerializer())) {
                for (int i = 0; i < 100; i++) {
                    producer.send(new ProducerRecord<>("t", "k" + i, "v" + i)).get();
                }
            }
            properties.put("group.id", "g");
            properties.put("auto.offset.reset", "earliest");
            int count = 0;
            try (KafkaConsumer<String, String> consumer =
                    new KafkaConsumer<>(
                            properties, new StringDeserializer(), new StringDeserializer())) {
                consumer.subscribe(List.of("t"));
                long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
                while (count < 100 && System.nanoTime() < deadline) {
                    ConsumerRecords<String, String> records =
                            consumer.poll(Duration.ofMillis(500));
                    count += records.count();
                }
            }
            System.out.println("consumed " + count);
        }
        System.exit(0);
    }
}
