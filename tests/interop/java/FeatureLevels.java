import java.lang.reflect.Method;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.FeatureUpdate.UpgradeType;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.common.requests.ApiError;
import org.apache.kafka.controller.ClusterFeatureSupportDescriber;
import org.apache.kafka.controller.FeatureControlManager;
import org.apache.kafka.controller.QuorumFeatures;
import org.apache.kafka.metadata.VersionRange;

/** Updates of metadata.version and of other features, decided by Kafka's own class: a line each. */
public class FeatureLevels {
    static final int NODE = 100;
    static final String METADATA = "metadata.version";

    static Object call(Object target, String name, Object... arguments) throws Exception {
        for (Method method : target.getClass().getDeclaredMethods()) {
            if (method.getName().equals(name) && method.getParameterCount() == arguments.length) {
                method.setAccessible(true);
                return method.invoke(target, arguments);
            }
        }
        throw new NoSuchMethodException(name);
    }

    static class Nodes implements ClusterFeatureSupportDescriber {
        final Map<Integer, Map<String, VersionRange>> brokers = new HashMap<>();
        final Map<Integer, Map<String, VersionRange>> controllers = new HashMap<>();

        public Iterator<Map.Entry<Integer, Map<String, VersionRange>>> brokerSupported() {
            return brokers.entrySet().iterator();
        }

        public Iterator<Map.Entry<Integer, Map<String, VersionRange>>> controllerSupported() {
            return controllers.entrySet().iterator();
        }
    }

    static FeatureControlManager manager(int level, Nodes nodes, List<Integer> voters)
            throws Exception {
        Map<String, VersionRange> own = new HashMap<>();
        own.put(METADATA, VersionRange.of(7, 33));
        own.put("kraft.version", VersionRange.of(0, 1));
        own.put("eligible.leader.replicas.version", VersionRange.of(0, 1));
        FeatureControlManager.Builder builder = new FeatureControlManager.Builder();
        call(builder, "setQuorumFeatures", new QuorumFeatures(NODE, own, voters));
        call(builder, "setClusterFeatureSupportDescriber", nodes);
        FeatureControlManager manager = builder.build();
        manager.replay(new FeatureLevelRecord().setName(METADATA).setFeatureLevel((short) level));
        return manager;
    }

    static void update(String label, FeatureControlManager manager, int from, String name, int to,
            int type, boolean dry) throws Exception {
        Object result = call(manager, "updateFeatures", Map.of(name, (short) to),
            Map.of(name, UpgradeType.fromCode(type)), dry, 0);
        ApiError error = (ApiError) call(result, "response");
        List<?> records = (List<?>) call(result, "records");
        System.out.println(String.join("\t", label, String.valueOf(from), name,
            String.valueOf(to), String.valueOf(type), String.valueOf(dry),
            String.valueOf(error.error().code()), String.valueOf(error.message()),
            String.valueOf(records.size())));
    }

    public static void main(String[] arguments) throws Exception {
        for (int from = 7; from <= 33; from++) {
            FeatureControlManager alone = manager(from, new Nodes(), List.of(NODE));
            for (int to = -1; to <= 35; to++)
                for (int type = 0; type <= 4; type++)
                    for (boolean dry : new boolean[] {false, true})
                        update("alone", alone, from, METADATA, to, type, dry);
            for (String name : List.of("eligible.leader.replicas.version", "no.such.feature"))
                for (int to = -1; to <= 2; to++)
                    for (int type = 0; type <= 4; type++)
                        update("alone", alone, from, name, to, type, false);
            // Controller 77 supports 7 to 21 and is no voter; 78 is a voter without registration.
            Nodes old = new Nodes();
            old.controllers.put(77, Map.of(METADATA, VersionRange.of(7, 21)));
            Nodes oldBroker = new Nodes();
            oldBroker.brokers.put(1, Map.of(METADATA, VersionRange.of(7, 21)));
            Nodes unregistered = new Nodes();
            unregistered.controllers.put(NODE, Map.of(METADATA, VersionRange.of(7, 33)));
            for (int to = 20; to <= 23; to++) {
                update("old controller", manager(from, old, List.of(NODE)), from, METADATA, to, 1,
                    false);
                update("old broker", manager(from, oldBroker, List.of(NODE)), from, METADATA, to,
                    1, false);
                update("voter without registration",
                    manager(from, unregistered, List.of(NODE, 78)), from, METADATA, to, 1, false);
            }
            update("old controller", manager(from, old, List.of(NODE)), from,
                "eligible.leader.replicas.version", 1, 1, false);
        }
    }
}
