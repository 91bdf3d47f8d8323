// The interop scenario with Kafka's own Java client: the steps that tests/interop/README.md lists,
// against a running broker. Prints one line a step; exits 1 at the first step that does not hold.

import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public final class Scenario {
    private static String bootstrap;
    private static String prefix;

    private Scenario() {
    }

    private static void must(boolean condition, String text) {
        if (!condition) {
            throw new IllegalStateException(text);
        }
    }

    /** Polls; a condition that cannot be asked yet (a topic not known yet) counts as not met. */
    private static void waitFor(String what, Callable<Boolean> condition) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        while (true) {
            try {
                if (condition.call()) {
                    return;
                }
            } catch (ExecutionException notYet) {
                must(System.nanoTime() < deadline, what + ": " + notYet);
            }
            must(System.nanoTime() < deadline, "timed out: " + what);
            Thread.sleep(20);
        }
    }

    private static Producer<String, String> producer(Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "acks", "all"));
        config.putAll(more);
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    private static Consumer<String, String> consumer(Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap,
            "auto.offset.reset", "earliest", "enable.auto.commit", "false"));
        config.putAll(more);
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    private static void createTopic(Admin admin, String name, int partitions) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
    }

    private static List<ConsumerRecord<String, String>> readAll(String topic, int partitions, int count) {
        List<ConsumerRecord<String, String>> got = new ArrayList<>();
        try (Consumer<String, String> reader = consumer(Map.of())) {
            List<TopicPartition> all = new ArrayList<>();
            for (int p = 0; p < partitions; p++) {
                all.add(new TopicPartition(topic, p));
            }
            reader.assign(all);
            reader.seekToBeginning(all);
            while (got.size() < count) {
                reader.poll(Duration.ofMillis(500)).forEach(got::add);
            }
        }
        return got;
    }

    private static void codecs(Admin admin) throws Exception {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            String topic = prefix + "-codec-" + codec;
            createTopic(admin, topic, 3);
            Map<String, String> want = new HashMap<>();
            try (Producer<String, String> producer = producer(Map.of("compression.type", codec, "linger.ms", 20))) {
                for (int i = 0; i < 200; i++) {
                    ProducerRecord<String, String> record =
                        new ProducerRecord<>(topic, "k" + i, "value " + i + " of " + codec + ", and again: " + i);
                    record.headers().add("n", Integer.toString(i).getBytes());
                    want.put(record.key(), record.value());
                    producer.send(record);
                }
                producer.flush();
            }
            for (ConsumerRecord<String, String> record : readAll(topic, 3, 200)) {
                must(record.value().equals(want.remove(record.key())), codec + ": wrong record " + record.key());
                String header = new String(record.headers().lastHeader("n").value());
                must(("k" + header).equals(record.key()), codec + ": wrong header");
            }
            must(want.isEmpty(), codec + ": records are missing");
            System.out.println("ok codec " + codec);
        }
    }

    private static final class Member extends Thread {
        final AtomicBoolean stop = new AtomicBoolean();
        final AtomicReference<Throwable> failure = new AtomicReference<>();
        final String topic;
        final Map<String, Integer> got;
        volatile int assigned;

        Member(String topic, Map<String, Integer> got) {
            this.topic = topic;
            this.got = got;
        }

        @Override
        public void run() {
            try (Consumer<String, String> consumer = consumer(Map.of("group.id", topic,
                    "heartbeat.interval.ms", 200, "session.timeout.ms", 10000))) {
                consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                    @Override
                    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                        assigned = 0;
                    }

                    @Override
                    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                        assigned = partitions.size();
                    }
                });
                while (!stop.get()) {
                    consumer.poll(Duration.ofMillis(50)).forEach(r -> got.merge(r.value(), 1, Integer::sum));
                    consumer.commitSync();
                }
            } catch (Throwable error) {
                failure.set(error);
            }
        }

        void finish() throws Exception {
            stop.set(true);
            join();
            if (failure.get() != null) {
                throw new IllegalStateException(failure.get());
            }
        }
    }

    private static void group(Admin admin) throws Exception {
        String topic = prefix + "-group";
        createTopic(admin, topic, 6);
        Map<String, Integer> got = new ConcurrentHashMap<>();
        List<Member> members = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            members.add(new Member(topic, got));
            members.get(i).start();
        }
        waitFor("three members share six partitions", () -> members.stream().allMatch(m -> m.assigned == 2));
        try (Producer<String, String> producer = producer(Map.of())) {
            for (int i = 0; i < 300; i++) {
                producer.send(new ProducerRecord<>(topic, i % 6, null, Integer.toString(i)));
            }
            producer.flush();
            waitFor("300 records", () -> got.size() == 300);
            members.remove(0).finish();
            waitFor("two members share six partitions", () -> members.stream().allMatch(m -> m.assigned == 3));
            for (int i = 300; i < 600; i++) {
                producer.send(new ProducerRecord<>(topic, i % 6, null, Integer.toString(i)));
            }
            producer.flush();
        }
        waitFor("600 records", () -> got.size() == 600);
        for (Member member : members) {
            member.finish();
        }
        must(got.values().stream().allMatch(n -> n == 1), "a record came twice");
        long committed = admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get()
            .values().stream().mapToLong(o -> o.offset()).sum();
        must(committed == 600, "committed offsets sum to " + committed);
        must(admin.describeConsumerGroups(List.of(topic)).all().get().get(topic).members().isEmpty(), "members are left");
        admin.deleteConsumerGroups(List.of(topic)).all().get();
        System.out.println("ok group of three with a rebalance");
    }

    private static void timestamps(Admin admin) throws Exception {
        String topic = prefix + "-time";
        createTopic(admin, topic, 1);
        long base = System.currentTimeMillis() / 1000 * 1000 - 3_600_000;
        try (Producer<String, String> producer = producer(Map.of())) {
            for (int i = 0; i < 100; i++) {
                producer.send(new ProducerRecord<>(topic, 0, base + i * 1000L, null, Integer.toString(i)));
            }
        }
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Consumer<String, String> consumer = consumer(Map.of())) {
            consumer.assign(List.of(partition));
            long offset = consumer.offsetsForTimes(Map.of(partition, base + 49_500)).get(partition).offset();
            must(offset == 50, "offset by timestamp is " + offset);
            consumer.seek(partition, offset);
            String first = consumer.poll(Duration.ofSeconds(10)).iterator().next().value();
            must(first.equals("50"), "first record after seek is " + first);
            must(consumer.endOffsets(Set.of(partition)).get(partition) == 100, "end offset");
            must(consumer.beginningOffsets(Set.of(partition)).get(partition) == 0, "beginning offset");
        }
        System.out.println("ok seek by timestamp");
    }

    private static void admin(Admin admin) throws Exception {
        String topic = prefix + "-admin";
        NewTopic fresh = new NewTopic(topic, 2, (short) 1).configs(Map.of("retention.ms", "3600000"));
        admin.createTopics(List.of(fresh)).all().get();
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Callable<String> retention = () ->
            admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms").value();
        waitFor("the config is described", () -> "3600000".equals(retention.call()));
        admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(
            new ConfigEntry("retention.ms", "7200000"), AlterConfigOp.OpType.SET)))).all().get();
        waitFor("the altered config is described", () -> "7200000".equals(retention.call()));
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get();
        waitFor("five partitions", () -> admin.describeTopics(List.of(topic)).allTopicNames().get()
            .get(topic).partitions().size() == 5);
        admin.deleteTopics(List.of(topic)).all().get();
        waitFor("the topic is gone", () -> !admin.listTopics().names().get().contains(topic));
        must(admin.describeCluster().nodes().get().size() == 1, "one node");
        System.out.println("ok create, describe, alter, delete topics");
    }

    private static void idempotent(Admin admin) throws Exception {
        String topic = prefix + "-idempotent";
        createTopic(admin, topic, 1);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (Producer<String, String> producer = producer(Map.of("enable.idempotence", true, "linger.ms", 1,
                "batch.size", 100, "retry.backoff.ms", 10, "reconnect.backoff.ms", 10, "reconnect.backoff.max.ms", 20))) {
            for (int i = 0; i < 2000; i++) {
                sent.add(producer.send(new ProducerRecord<>(topic, 0, null, Integer.toString(i))));
            }
            producer.flush();
        }
        for (Future<RecordMetadata> one : sent) {
            one.get();
        }
        List<ConsumerRecord<String, String>> got = readAll(topic, 1, 2000);
        for (int i = 0; i < 2000; i++) {
            must(got.get(i).value().equals(Integer.toString(i)), "record " + i + " is " + got.get(i).value());
        }
        System.out.println("ok idempotent producer with retries");
    }

    /** A transactional producer must be refused at once: transactions are not built. */
    private static void transactional() {
        try (Producer<String, String> producer = producer(Map.of("transactional.id", prefix))) {
            try {
                producer.initTransactions();
            } catch (TimeoutException endless) {
                throw endless;
            } catch (KafkaException refused) {
                System.out.println("transactions refused: " + refused.getMessage());
                return;
            }
            throw new IllegalStateException("initTransactions succeeded");
        }
    }

    /** A member of the new group protocol must be refused: it is not built. */
    private static void consumerProtocol() {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "group.id", prefix,
                "group.protocol", "consumer");
        try (Consumer<String, String> consumer = new KafkaConsumer<>(settings, new StringDeserializer(),
                new StringDeserializer())) {
            consumer.subscribe(List.of(prefix));
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            while (System.nanoTime() < deadline) {
                consumer.poll(Duration.ofMillis(100));
            }
        } catch (UnsupportedVersionException refused) {
            System.out.println("consumer protocol refused: " + refused.getMessage());
            return;
        }
        throw new IllegalStateException("a member of the new protocol was never refused");
    }

    /** Reads a topic whole; prints of each partition its number, how many records, and their hash. */
    private static void hashes(String topic, String rack) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "client.rack", rack,
            "auto.offset.reset", "none", "enable.auto.commit", "false");
        Map<TopicPartition, MessageDigest> digests = new HashMap<>();
        Map<TopicPartition, Integer> counts = new HashMap<>();
        try (Consumer<byte[], byte[]> reader =
                new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> all = new ArrayList<>();
            for (var partition : reader.partitionsFor(topic)) {
                TopicPartition one = new TopicPartition(topic, partition.partition());
                all.add(one);
                digests.put(one, MessageDigest.getInstance("SHA-256"));
            }
            reader.assign(all);
            reader.seekToBeginning(all);
            Map<TopicPartition, Long> ends = reader.endOffsets(all);
            while (all.stream().anyMatch(one -> reader.position(one) < ends.get(one))) {
                for (ConsumerRecord<byte[], byte[]> record : reader.poll(Duration.ofMillis(500))) {
                    TopicPartition one = new TopicPartition(topic, record.partition());
                    counts.merge(one, 1, Integer::sum);
                    ByteBuffer head = ByteBuffer.allocate(12).putLong(record.offset()).putInt(record.value().length);
                    digests.get(one).update(head.array());
                    digests.get(one).update(record.value());
                }
            }
            for (TopicPartition one : all) {
                String hash = HexFormat.of().formatHex(digests.get(one).digest());
                System.out.println(one.partition() + " " + counts.getOrDefault(one, 0) + " " + hash);
            }
        }
    }

    public static void main(String[] args) {
        bootstrap = args[0];
        prefix = args[1];
        List<String> steps = Arrays.asList(args[2].split(","));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            if (steps.contains("all")) {
                codecs(admin);
                group(admin);
                timestamps(admin);
                admin(admin);
            }
            if (steps.contains("idempotent")) {
                idempotent(admin);
            }
            if (steps.contains("transactional")) {
                transactional();
            }
            if (steps.contains("hashes")) {
                hashes(prefix, args[3]);
            }
            if (steps.contains("consumer-protocol")) {
                consumerProtocol();
            }
        } catch (Exception error) {
            System.out.println("FAILED: " + error);
            System.exit(1);
        }
    }
}
