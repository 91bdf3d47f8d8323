import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.channels.Channels;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;

/**
 * A tier in a folder: TOPIC-PARTITION/ID.log, and next to it ID.NAME for each index of the segment.
 * Brokers that share `rsm.config.folder` share the tier.
 */
public class FolderStore implements RemoteStorageManager {
    private static final String SEGMENT = "log";
    private Path root;

    @Override
    public void configure(Map<String, ?> settings) {
        root = Path.of((String) settings.get("folder"));
    }

    @Override
    public Optional<CustomMetadata> copyLogSegmentData(RemoteLogSegmentMetadata segment, LogSegmentData data)
            throws RemoteStorageException {
        try {
            Files.createDirectories(file(segment, SEGMENT).getParent());
            put(data.offsetIndex(), file(segment, IndexType.OFFSET));
            put(data.timeIndex(), file(segment, IndexType.TIMESTAMP));
            put(data.producerSnapshotIndex(), file(segment, IndexType.PRODUCER_SNAPSHOT));
            if (data.transactionIndex().isPresent())
                put(data.transactionIndex().get(), file(segment, IndexType.TRANSACTION));
            byte[] epochs = new byte[data.leaderEpochIndex().remaining()];
            data.leaderEpochIndex().duplicate().get(epochs);
            Files.write(file(segment, IndexType.LEADER_EPOCH), epochs);
            put(data.logSegment(), file(segment, SEGMENT));
            return Optional.empty();
        } catch (IOException error) {
            throw new RemoteStorageException("cannot copy " + segment, error);
        }
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start) throws RemoteStorageException {
        return open(file(segment, SEGMENT), start);
    }

    /** The byte at `last` is included; `last` may lie behind the end of the segment. */
    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start, int last)
            throws RemoteStorageException {
        try (InputStream all = open(file(segment, SEGMENT), start)) {
            return new ByteArrayInputStream(all.readNBytes(last - start + 1));
        } catch (IOException error) {
            throw new RemoteStorageException("cannot read " + segment, error);
        }
    }

    @Override
    public InputStream fetchIndex(RemoteLogSegmentMetadata segment, IndexType index) throws RemoteStorageException {
        return open(file(segment, index), 0);
    }

    @Override
    public void deleteLogSegmentData(RemoteLogSegmentMetadata segment) throws RemoteStorageException {
        try {
            Files.deleteIfExists(file(segment, SEGMENT));
            for (IndexType index : IndexType.values())
                Files.deleteIfExists(file(segment, index));
        } catch (IOException error) {
            throw new RemoteStorageException("cannot delete " + segment, error);
        }
    }

    @Override
    public void close() {
    }

    private Path file(RemoteLogSegmentMetadata segment, IndexType index) {
        return file(segment, index.name().toLowerCase());
    }

    private Path file(RemoteLogSegmentMetadata segment, String suffix) {
        String partition = segment.topicIdPartition().topicPartition().toString();
        return root.resolve(partition).resolve(segment.remoteLogSegmentId().id() + "." + suffix);
    }

    private static void put(Path source, Path target) throws IOException {
        Files.copy(source, target, StandardCopyOption.REPLACE_EXISTING);
    }

    private static InputStream open(Path file, int start) throws RemoteStorageException {
        try {
            return Channels.newInputStream(FileChannel.open(file).position(start));
        } catch (NoSuchFileException missing) {
            throw new RemoteResourceNotFoundException(missing);
        } catch (IOException error) {
            throw new RemoteStorageException("cannot read " + file, error);
        }
    }
}
