import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Several Java producers in one process, and optionally a consumer at the end of the log.
 *
 * <p>java Load.java key=value ... with bootstrap, topic, producers, size (bytes of a record), acks,
 * rate (records a second of all producers; 0: no limit), warmup and seconds, tail (true: a consumer
 * reads the new records). The warm-up is not counted, because the JVM is still starting. Prints one
 * JSON object: megabytes a second and latencies (ms, of every record) without the warm-up, and
 * gigabytes with it.
 */
public final class Load {
    private static final int SAMPLES_MAX = 4_000_000;

    private final Map<String, String> options = new HashMap<>();
    private final AtomicBoolean failed = new AtomicBoolean();
    private volatile boolean stopping;
    private long countFrom;
    private long countUntil;

    public static void main(String[] arguments) throws Exception {
        System.exit(new Load(arguments).run());
    }

    private Load(String[] arguments) {
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

    private int run() throws Exception {
        int producers = number("producers");
        createTopic(producers);
        boolean tail = Boolean.parseBoolean(options.get("tail"));
        Tail reader = tail ? new Tail(producers) : null;
        countFrom = System.nanoTime() + number("warmup") * 1_000_000_000L;
        countUntil = countFrom + number("seconds") * 1_000_000_000L;
        List<Sender> senders = new ArrayList<>();
        for (int at = 0; at < producers; at++) {
            senders.add(new Sender(at, producers));
        }
        if (reader != null) {
            reader.start();
        }
        senders.forEach(Thread::start);
        for (Sender sender : senders) {
            sender.join();
        }
        stopping = true;
        if (reader != null) {
            reader.join();
        }
        Samples acks = new Samples(0);
        senders.forEach(sender -> acks.add(sender.samples));
        StringBuilder out = new StringBuilder("{" + acks.json(""));
        if (reader != null) {
            out.append(", ").append(reader.samples.json("tail_"));
        }
        System.out.println(out.append("}"));
        return failed.get() ? 1 : 0;
    }

    private void createTopic(int partitions) throws Exception {
        try (Admin admin = Admin.create(client())) {
            NewTopic topic = new NewTopic(options.get("topic"), partitions, (short) 1);
            admin.createTopics(List.of(topic)).all().get();
        } catch (ExecutionException error) {
            if (!(error.getCause() instanceof TopicExistsException)) {
                throw error;
            }
        }
    }

    /** Latencies in microseconds, and counters. */
    private final class Samples {
        private int[] values;
        private int used;
        private long records;
        private long everything;

        Samples(int room) {
            values = new int[room];
        }

        void note(long sentNs, long doneNs) {
            everything++;
            if (doneNs >= countFrom && doneNs < countUntil) {
                records++;
                if (used < values.length) {
                    values[used++] = (int) ((doneNs - sentNs) / 1000);
                }
            }
        }

        void add(Samples other) {
            int[] both = Arrays.copyOf(values, used + other.used);
            System.arraycopy(other.values, 0, both, used, other.used);
            values = both;
            used = both.length;
            records += other.records;
            everything += other.everything;
        }

        String json(String prefix) {
            int[] sorted = Arrays.copyOf(values, used);
            Arrays.sort(sorted);
            double mb = records * (double) number("size") / 1e6 / number("seconds");
            StringBuilder out = new StringBuilder();
            out.append(String.format("\"%smb_per_s\": %.3f", prefix, mb));
            double all = everything * (double) number("size") / 1e9;
            out.append(String.format(", \"%sgb_in_all\": %.6f", prefix, all));
            for (String quantile : List.of("0.5", "0.99", "0.999")) {
                int at = (int) (Double.parseDouble(quantile) * used);
                double ms = used == 0 ? 0 : sorted[Math.min(at, used - 1)] / 1000.0;
                String name = quantile.substring(2).equals("5") ? "50" : quantile.substring(2);
                out.append(String.format(", \"%sp%s_ms\": %.3f", prefix, name, ms));
            }
            return out.toString();
        }
    }

    /** One producer that sends to a partition of its own. */
    private final class Sender extends Thread {
        private final int partition;
        private final int producers;
        private final Samples samples;

        Sender(int partition, int producers) {
            this.partition = partition;
            this.producers = producers;
            this.samples = new Samples(SAMPLES_MAX / producers);
        }

        @Override
        public void run() {
            Properties properties = client();
            properties.put("acks", options.get("acks"));
            properties.put("batch.size", "65536");
            properties.put("linger.ms", "5");
            properties.put("buffer.memory", String.valueOf(33_554_432 / Math.min(producers, 4)));
            properties.put("key.serializer", ByteArraySerializer.class.getName());
            properties.put("value.serializer", ByteArraySerializer.class.getName());
            try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties)) {
                send(producer);
                producer.flush();
            }
        }

        private void send(KafkaProducer<byte[], byte[]> producer) {
            double perSecond = Double.parseDouble(options.get("rate")) / producers;
            long begun = System.nanoTime();
            byte[] filling = filling(number("size"));
            for (long sent = 0; ; sent++) {
                long now = System.nanoTime();
                if (now >= countUntil) {
                    return;
                }
                if (perSecond > 0) {
                    long due = begun + (long) (sent * 1e9 / perSecond);
                    while (now < due) {
                        LockSupport.parkNanos(Math.min(due - now, 1_000_000));
                        now = System.nanoTime();
                    }
                }
                byte[] value = filling.clone();
                ByteBuffer.wrap(value).putLong(now);
                long at = now;
                producer.send(
                        new ProducerRecord<>(options.get("topic"), partition, null, value),
                        (metadata, error) -> {
                            if (error == null) {
                                samples.note(at, System.nanoTime());
                            } else if (failed.compareAndSet(false, true)) {
                                error.printStackTrace();
                            }
                        });
            }
        }
    }

    private static byte[] filling(int size) {
        byte[] bytes = new byte[Math.max(size, Long.BYTES)];
        for (int at = 0; at < bytes.length; at++) {
            bytes[at] = (byte) ('a' + at % 26);
        }
        return bytes;
    }

    /** A consumer that begins at the end of every partition. */
    private final class Tail extends Thread {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final Samples samples = new Samples(SAMPLES_MAX);

        Tail(int partitions) {
            Properties properties = client();
            properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
            properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
            consumer = new KafkaConsumer<>(properties);
            List<TopicPartition> all = new ArrayList<>();
            for (int at = 0; at < partitions; at++) {
                all.add(new TopicPartition(options.get("topic"), at));
            }
            consumer.assign(all);
            consumer.seekToEnd(all);
            all.forEach(consumer::position);
        }

        @Override
        public void run() {
            while (!stopping) {
                for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofMillis(100))) {
                    samples.note(ByteBuffer.wrap(one.value()).getLong(), System.nanoTime());
                }
            }
            consumer.close();
        }
    }
}
