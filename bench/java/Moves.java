import java.io.PrintWriter;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A producer at a fixed rate, like kafka-producer-perf-test, which keeps the time of every send. With
 * consume=true there is also a consumer of all partitions; for each record the time from its
 * acknowledgement until it was read is kept.
 *
 * <p>java Moves.java key=value ... with bootstrap, topic, partitions, size, rate, warmup and seconds,
 * consume. Prints "warm" after the warm-up, and one JSON object at the end: counts of times by upper
 * bound in tenths of a millisecond, the longest time, and the number of failed records. For each slow
 * one it has the time of the send (wall clock, ms), the duration and the partition.
 */
public final class Moves {
    private static final int SLOW_US = 15_000;
    private static final int SLOW_MAX = 5_000;

    private final Map<String, String> options = new HashMap<>();
    private final Times sends = new Times();
    private final Times reads = new Times();
    private final AtomicLong failed = new AtomicLong();
    private final Map<Long, Long> acknowledged = new ConcurrentHashMap<>();
    private final Map<Long, Long> early = new ConcurrentHashMap<>();
    private volatile boolean stopping;
    private volatile boolean counting;

    public static void main(String[] arguments) throws Exception {
        new Moves(arguments).run();
    }

    private Moves(String[] arguments) {
        for (String argument : arguments) {
            String[] parts = argument.split("=", 2);
            options.put(parts[0], parts[1]);
        }
    }

    private int number(String key) {
        return Integer.parseInt(options.get(key));
    }

    private Properties client() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", options.get("bootstrap"));
        return properties;
    }

    private void run() throws Exception {
        boolean consume = Boolean.parseBoolean(options.get("consume"));
        Thread reader = new Thread(this::read);
        if (consume) {
            reader.start();
        }
        send(consume);
        Thread.sleep(consume ? 1_000 : 0);
        stopping = true;
        if (consume) {
            reader.join();
        }
        System.out.println(
                "{\"sends\": " + sends.json() + ", \"reads\": " + reads.json()
                        + ", \"failed\": " + failed.get() + "}");
    }

    private void send(boolean consume) {
        Properties properties = client();
        properties.put("acks", "all");
        properties.put("linger.ms", "0");
        properties.put("batch.size", "16384");
        byte[] value = new byte[number("size")];
        Arrays.fill(value, (byte) 'x');
        int rate = number("rate");
        long warm = (long) rate * number("warmup");
        long all = warm + (long) rate * number("seconds");
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            long begun = System.nanoTime();
            for (long at = 0; at < all; at++) {
                if (at == warm / 2) {
                    System.out.println("sending");
                }
                if (at == warm) {
                    counting = true;
                    System.out.println("warm");
                }
                long due = begun + at * 1_000_000_000L / rate;
                while (System.nanoTime() < due) {
                    LockSupport.parkNanos(due - System.nanoTime());
                }
                boolean counted = counting;
                long sent = System.nanoTime();
                long wall = System.currentTimeMillis();
                producer.send(new ProducerRecord<>(options.get("topic"), value), (metadata, error) -> {
                    long now = System.nanoTime();
                    if (error != null) {
                        failed.incrementAndGet();
                        return;
                    }
                    if (counted) {
                        sends.note(now - sent, wall, metadata.partition());
                    }
                    if (consume && counted) {
                        long key = key(metadata.partition(), metadata.offset());
                        acknowledged.put(key, now);
                        Long read = early.remove(key);
                        if (read != null && acknowledged.remove(key) != null) {
                            reads.note(0, wall, metadata.partition());
                        }
                    }
                });
            }
        }
    }

    private static long key(int partition, long offset) {
        return ((long) partition << 40) | offset;
    }

    private void read() {
        List<TopicPartition> all = new ArrayList<>();
        for (int at = 0; at < number("partitions"); at++) {
            all.add(new TopicPartition(options.get("topic"), at));
        }
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(client(), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(all);
            consumer.seekToBeginning(all);
            while (!stopping) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    if (!counting) {
                        continue;
                    }
                    long now = System.nanoTime();
                    long key = key(record.partition(), record.offset());
                    early.put(key, now);
                    Long since = acknowledged.remove(key);
                    if (since != null && early.remove(key) != null) {
                        reads.note(now - since, System.currentTimeMillis(), record.partition());
                    }
                }
            }
        }
    }

    /** Counts by upper bound, and the slow ones one by one. */
    private static final class Times {
        private final TreeMap<Integer, Integer> counts = new TreeMap<>();
        private final List<String> slow = new ArrayList<>();
        private long longest;

        synchronized void note(long ns, long wallMs, int partition) {
            long us = ns / 1_000;
            longest = Math.max(longest, us);
            counts.merge((int) (us / 100) + 1, 1, Integer::sum);
            if (us >= SLOW_US && slow.size() < SLOW_MAX) {
                slow.add(String.format("[%d, %d, %d]", wallMs, us, partition));
            }
        }

        synchronized String json() {
            StringBuilder out = new StringBuilder("{\"longest_us\": " + longest + ", \"counts\": {");
            String separator = "";
            for (Map.Entry<Integer, Integer> entry : counts.entrySet()) {
                out.append(separator).append('"').append(entry.getKey()).append("\": ");
                out.append(entry.getValue());
                separator = ", ";
            }
            return out.append("}, \"slow\": [").append(String.join(", ", slow)).append("]}").toString();
        }
    }
}
