import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.Readable;

/**
 * Reads lines "class version hex" and answers each with what Kafka's own class makes of the bytes:
 * "written-again-in-hex json", or "error" and why.
 */
public final class CodecOracle {
    private static final String[] PACKAGES = {
        "org.apache.kafka.common.message.",
        "org.apache.kafka.common.metadata.",
        "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.coordinator.transaction.generated.",
        "org.apache.kafka.raft.generated.",
        "org.apache.kafka.server.log.remote.metadata.storage.generated.",
    };

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", 3);
            try {
                out.println(answer(words[0], Short.parseShort(words[1]), words[2]));
            } catch (Exception problem) {
                out.println("error " + problem + " " + problem.getCause());
            }
        }
    }

    private static String answer(String name, short version, String hex) throws Exception {
        Class<?> cls = find(name);
        ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(hex));
        Message message = (Message) cls.getConstructor(Readable.class, short.class)
            .newInstance(new ByteBufferAccessor(bytes), version);
        ByteBuffer again = MessageUtil.toByteBufferAccessor(message, version).buffer();
        byte[] written = new byte[again.remaining()];
        again.get(written);
        return HexFormat.of().formatHex(written) + " " + json(cls, message, version);
    }

    private static JsonNode json(Class<?> cls, Message message, short version) throws Exception {
        Class<?> converter = Class.forName(cls.getName() + "JsonConverter");
        Method write = converter.getMethod("write", cls, short.class, boolean.class);
        return (JsonNode) write.invoke(null, message, version, false);
    }

    private static Class<?> find(String name) throws ClassNotFoundException {
        for (String prefix : PACKAGES) {
            for (String suffix : new String[] {"Data", ""}) {
                try {
                    return Class.forName(prefix + name + suffix);
                } catch (ClassNotFoundException elsewhere) {
                    continue;
                }
            }
        }
        throw new ClassNotFoundException(name);
    }
}
