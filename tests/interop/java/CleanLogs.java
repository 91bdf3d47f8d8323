import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Lets Apache Kafka's cleaner clean logs that somebody else wrote. One order a line on standard
 * input: directory, first dirty offset, first offset that must not be cleaned, high watermark, the
 * present time, bytes of the map, then key=value of the topic's configuration. The answer is one line: the offset that the log is clean up to.
 */
public class CleanLogs {
    public static void main(String[] arguments) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            System.out.println("clean " + clean(scheduler, order.split(" ")));
            System.out.flush();
        }
        scheduler.shutdown();
    }

    private static long clean(KafkaScheduler scheduler, String[] order) throws Exception {
        Properties settings = new Properties();
        for (int at = 6; at < order.length; at++) {
            String[] pair = order[at].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        UnifiedLog log = UnifiedLog.create(
            new File(order[0]), new LogConfig(settings), 0L, 0L, scheduler,
            new BrokerTopicStats(), Time.SYSTEM, 900_000,
            new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600_000,
            new LogDirFailureChannel(1), true, Optional.empty());
        log.updateHighWatermark(Long.parseLong(order[3]));
        List<LogSegment> segments = log.logSegments();
        long active = segments.get(segments.size() - 1).baseOffset();
        Throttler free = new Throttler(Double.MAX_VALUE, 300, "free", "entries", Time.SYSTEM);
        Cleaner cleaner = new Cleaner(
            0, new SkimpyOffsetMap(Integer.parseInt(order[5])), 1 << 16, 1 << 24, 0.9,
            free, Time.SYSTEM, partition -> { });
        LogToClean work = new LogToClean(
            log, Long.parseLong(order[1]), Math.min(Long.parseLong(order[2]), active), false);
        Map.Entry<Long, CleanerStats> done = cleaner.doClean(work, Long.parseLong(order[4]));
        log.close();
        return done.getKey();
    }
}
