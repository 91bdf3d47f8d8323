import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

/** What Kafka's own configuration classes say, one tab-separated line per fact. */
public class ConfigFacts {
    static String text(Object value, ConfigDef.Type type) {
        if (value == ConfigDef.NO_DEFAULT_VALUE) return "<required>";
        if (value == null) return "<null>";
        return ConfigDef.convertToString(value, type);
    }

    static void keys(String table, ConfigDef definition) {
        for (ConfigDef.ConfigKey key : definition.configKeys().values()) {
            System.out.println(String.join("\t", "key", table, key.name, key.type.name(),
                text(key.defaultValue, key.type), key.importance.name(),
                String.valueOf(key.internalConfig),
                key.validator instanceof ConfigDef.Range ? key.validator.toString() : ""));
        }
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length == 0) {
            keys("node", kafka.server.KafkaConfig.configDef());
            keys("topic", LogConfig.configDefCopy());
            keys("group", GroupConfig.CONFIG_DEF);
            DynamicBrokerConfig.dynamicConfigUpdateModes().forEach((name, mode) ->
                System.out.println(String.join("\t", "mode", name, mode)));
            for (Map.Entry<String, List<ConfigSynonym>> entry :
                    ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.entrySet()) {
                List<String> names = new ArrayList<>();
                for (ConfigSynonym synonym : entry.getValue())
                    names.add(synonym.name() + "*" + synonym.converter().apply("1"));
                System.out.println(
                    String.join("\t", "synonym", entry.getKey(), String.join(",", names)));
            }
            return;
        }
        // One set of properties per line, separated by |: is it accepted?
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            Properties properties = new Properties();
            for (String pair : line.split("\\|")) {
                int at = pair.indexOf('=');
                properties.setProperty(pair.substring(0, at), pair.substring(at + 1));
            }
            String verdict = "accepted";
            try {
                kafka.server.KafkaConfig.fromProps(properties, false);
            } catch (RuntimeException refused) {
                verdict = "refused";
            }
            System.out.println("verdict\t" + verdict + "\t" + line);
        }
    }
}
