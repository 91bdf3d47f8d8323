import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes transactions of Kafka's own producer into partition 0 of a topic: the arguments are
 * bootstrap servers and topic. Each line of the input is a step of a producer, which is named by its
 * transactional id: "begin P", "send P records", "abort P" or "commit P".
 */
public final class Transactions {
    private static final int VALUE_BYTES = 100;

    public static void main(String[] arguments) throws Exception {
        Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            KafkaProducer<byte[], byte[]> producer =
                producers.computeIfAbsent(words[1], id -> opened(arguments[0], id));
            switch (words[0]) {
                case "begin" -> producer.beginTransaction();
                case "send" -> send(producer, arguments[1], Integer.parseInt(words[2]));
                case "abort" -> producer.abortTransaction();
                case "commit" -> producer.commitTransaction();
                default -> throw new IllegalArgumentException(line);
            }
        }
        producers.values().forEach(KafkaProducer::close);
    }

    private static KafkaProducer<byte[], byte[]> opened(String servers, String id) {
        Properties given = new Properties();
        given.put("bootstrap.servers", servers);
        given.put("transactional.id", id);
        given.put("linger.ms", "0");
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(given, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        return producer;
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, String topic, int records)
            throws Exception {
        for (int sent = 0; sent < records; sent++)
            producer.send(new ProducerRecord<>(topic, 0, null, new byte[VALUE_BYTES]));
        producer.flush();
    }
}
