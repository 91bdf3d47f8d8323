import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataTopicPartitioner;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogSegmentMetadataSnapshot;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteMetadata;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteState;

/**
 * Makes metadata of tiered storage from words and answers with what Kafka's serde writes for it, and
 * the partition that Kafka's partitioner gives its topic partition: "hex partition". A line begins
 * with kind, topic, topic id, partition and number of metadata partitions. Then come
 *   segment, snapshot: id start end maxTimestamp broker eventTimestamp size custom state
 *                      epoch:offset,... txnEmpty
 *   update:            id broker eventTimestamp custom state
 *   deletion:          broker eventTimestamp state
 * where custom metadata is hex, or "-" for none.
 */
public final class TierOracle {
    private final String[] words;
    private int at;

    private TierOracle(String line) {
        words = line.split(" ");
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                out.println(new TierOracle(line).answer());
            } catch (Exception problem) {
                out.println("error " + problem);
            }
        }
    }

    private String answer() {
        String kind = next();
        String topic = next();
        Uuid topicId = Uuid.fromString(next());
        TopicIdPartition partition =
            new TopicIdPartition(topicId, new TopicPartition(topic, number()));
        RemoteLogMetadataTopicPartitioner partitioner =
            new RemoteLogMetadataTopicPartitioner(number());
        byte[] written = new RemoteLogMetadataSerde().serialize(metadata(kind, partition));
        return HexFormat.of().formatHex(written) + " " + partitioner.metadataPartition(partition);
    }

    private RemoteLogMetadata metadata(String kind, TopicIdPartition partition) {
        switch (kind) {
            case "segment":
                RemoteLogSegmentId id = segmentId(partition);
                return new RemoteLogSegmentMetadata(id, large(), large(), large(), number(),
                    large(), number(), custom(), state(), epochs(), flag());
            case "snapshot":
                Uuid uuid = Uuid.fromString(next());
                return new RemoteLogSegmentMetadataSnapshot(uuid, large(), large(), large(),
                    number(), large(), number(), custom(), state(), epochs(), flag());
            case "update":
                RemoteLogSegmentId updated = segmentId(partition);
                int broker = number();
                long when = large();
                Optional<CustomMetadata> custom = custom();
                return new RemoteLogSegmentMetadataUpdate(updated, when, custom, state(), broker);
            default:
                int deleter = number();
                long marked = large();
                RemotePartitionDeleteState state =
                    RemotePartitionDeleteState.forId((byte) number());
                return new RemotePartitionDeleteMetadata(partition, state, marked, deleter);
        }
    }

    private String next() {
        return words[at++];
    }

    private int number() {
        return Integer.parseInt(next());
    }

    private long large() {
        return Long.parseLong(next());
    }

    private boolean flag() {
        return Boolean.parseBoolean(next());
    }

    private RemoteLogSegmentId segmentId(TopicIdPartition partition) {
        return new RemoteLogSegmentId(partition, Uuid.fromString(next()));
    }

    private Optional<CustomMetadata> custom() {
        String word = next();
        if (word.equals("-"))
            return Optional.empty();
        return Optional.of(new CustomMetadata(HexFormat.of().parseHex(word)));
    }

    private RemoteLogSegmentState state() {
        return RemoteLogSegmentState.forId((byte) number());
    }

    private Map<Integer, Long> epochs() {
        Map<Integer, Long> epochs = new TreeMap<>();
        for (String pair : next().split(",")) {
            String[] parts = pair.split(":");
            epochs.put(Integer.parseInt(parts[0]), Long.parseLong(parts[1]));
        }
        return epochs;
    }
}
