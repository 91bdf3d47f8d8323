import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.List;
import java.util.Optional;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.log.remote.storage.RemoteLogManager;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;
import org.slf4j.LoggerFactory;
import sun.misc.Unsafe;

/**
 * Lets the copy task of Apache Kafka's tier select segments of logs that another program wrote. One
 * order a line on standard input: directory, first offset that is not copied, last stable offset,
 * the present time, then key=value of the topic's configuration. The answer is one line: the base
 * offsets of the segments to copy. The task is made without its constructor: selecting needs only a
 * clock and a logger.
 */
public class CopyCandidates {
    private static final String TASK = RemoteLogManager.class.getName() + "$RLMCopyTask";
    private static long now;

    public static void main(String[] arguments) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        Object task = task();
        Method candidates = task.getClass().getDeclaredMethod(
            "candidateLogSegments", UnifiedLog.class, Long.class, Long.class);
        candidates.setAccessible(true);
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            String[] parts = order.split(" ");
            now = Long.parseLong(parts[3]);
            UnifiedLog log = open(scheduler, parts);
            List<?> found = (List<?>) candidates.invoke(
                task, log, Long.parseLong(parts[1]), Long.parseLong(parts[2]));
            System.out.println("candidates " + found.stream()
                .map(one -> String.valueOf(segment(one).baseOffset()))
                .collect(Collectors.joining(" ")));
            System.out.flush();
            log.close();
        }
        scheduler.shutdown();
    }

    private static UnifiedLog open(KafkaScheduler scheduler, String[] parts) throws Exception {
        Properties settings = new Properties();
        for (int at = 4; at < parts.length; at++) {
            String[] pair = parts[at].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        return UnifiedLog.create(
            new File(parts[0]), new LogConfig(settings), 0L, 0L, scheduler,
            new BrokerTopicStats(), Time.SYSTEM, 900_000,
            new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600_000,
            new LogDirFailureChannel(1), true, Optional.empty());
    }

    private static Object task() throws Exception {
        Field field = Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        Unsafe unsafe = (Unsafe) field.get(null);
        Object manager = unsafe.allocateInstance(RemoteLogManager.class);
        Object clock = Proxy.newProxyInstance(
            Time.class.getClassLoader(), new Class<?>[] {Time.class},
            (proxy, method, given) -> now);
        put(unsafe, manager, RemoteLogManager.class.getDeclaredField("time"), clock);
        Class<?> type = Class.forName(TASK);
        Object task = unsafe.allocateInstance(type);
        for (Class<?> each = type; each != Object.class; each = each.getSuperclass()) {
            for (Field one : each.getDeclaredFields()) {
                if (one.getName().startsWith("this$")) put(unsafe, task, one, manager);
                if (one.getName().equals("logger")) {
                    put(unsafe, task, one, LoggerFactory.getLogger(CopyCandidates.class));
                }
            }
        }
        return task;
    }

    private static void put(Unsafe unsafe, Object object, Field field, Object value) {
        unsafe.putObject(object, unsafe.objectFieldOffset(field), value);
    }

    private static LogSegment segment(Object candidate) {
        try {
            for (Field one : candidate.getClass().getDeclaredFields()) {
                if (one.getType() == LogSegment.class) {
                    one.setAccessible(true);
                    return (LogSegment) one.get(candidate);
                }
            }
        } catch (IllegalAccessException error) {
            throw new IllegalStateException(error);
        }
        throw new IllegalStateException("no segment in " + candidate);
    }
}
