import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Sends numbered records to two partitions until its standard input ends. Arguments: bootstrap
 * servers, topic, then key=value of the client. It prints the number of acknowledged records.
 */
public class SteadyProducer {
    private static final int PARTITIONS = 2;

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        for (int at = 2; at < arguments.length; at++) {
            String[] pair = arguments[at].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        AtomicLong acknowledged = new AtomicLong();
        AtomicInteger inFlight = new AtomicInteger();
        Thread reporter = new Thread(() -> report(acknowledged));
        reporter.setDaemon(true);
        reporter.start();
        StringSerializer text = new StringSerializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, text, text)) {
            for (int number = 0; System.in.available() == 0; number++) {
                if (inFlight.get() < 1000) {
                    inFlight.incrementAndGet();
                    producer.send(
                        new ProducerRecord<>(arguments[1], number % PARTITIONS, null, "java-" + number),
                        (sent, error) -> {
                            inFlight.decrementAndGet();
                            if (error == null) acknowledged.incrementAndGet();
                        });
                }
                Thread.sleep(5);
            }
        }
        System.exit(0);
    }

    private static void report(AtomicLong acknowledged) {
        try {
            while (true) {
                System.out.println(acknowledged.get());
                System.out.flush();
                Thread.sleep(200);
            }
        } catch (InterruptedException end) {
            Thread.currentThread().interrupt();
        }
    }
}
