import java.util.Properties;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The paced client of bench/client_failover.py. Arguments: BOOTSTRAP TOPIC. */
public final class Paced {
    private static final long PERIOD_NS = 5_000_000;

    private static double now() {
        java.time.Instant now = java.time.Instant.now();
        return now.getEpochSecond() * 1000.0 + now.getNano() / 1e6;
    }

    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
        for (long due = System.nanoTime(); ; due += PERIOD_NS) {
            while (System.nanoTime() < due) {
                LockSupport.parkNanos(due - System.nanoTime());
            }
            double sent = now();
            producer.send(
                    new ProducerRecord<>(arguments[1], 0, null, new byte[] {'x'}),
                    (metadata, error) -> {
                        if (error == null) {
                            System.out.printf("%.1f %.1f%n", sent, now());
                        }
                    });
        }
    }
}
