import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.Consumer;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.common.config.ConfigResource;

/**
 * Runs command-line classes one after the other in one JVM.
 *
 * A line of input is a request: base64 of standard input, of the milliseconds to wait, of the class
 * and of each argument, separated by spaces. A line of output is the reply: exit code, base64 of
 * the class's standard output and standard error. If a class does not end in time, its shutdown
 * hooks run, as with Ctrl-C; exit code -1 means that even this did not end it.
 */
public class Tools {
    /** Ends a tool instead of the JVM. It has no text, since tools that catch everything print it. */
    static final class Exited extends Error {
        Exited() {
            super("", null, false, false);
        }

        @Override
        public void printStackTrace() {
        }

        @Override
        public String toString() {
            return "";
        }
    }

    /** A tool that prints the classes with a main method of each given jar. */
    public static class Mains {
        public static void main(String[] jars) throws Exception {
            for (String name : jars)
                try (JarFile jar = new JarFile(name)) {
                    for (JarEntry entry : Collections.list(jar.entries()))
                        if (entry.getName().endsWith(".class"))
                            look(entry.getName().replace(".class", "").replace('/', '.'));
                }
        }

        static void look(String name) throws Exception {
            try {
                Class<?> found = Class.forName(name, false, Mains.class.getClassLoader());
                Method main = found.getDeclaredMethod("main", String[].class);
                if (Modifier.isStatic(main.getModifiers()))
                    System.out.println(name);
            } catch (NoSuchMethodException | NoClassDefFoundError none) {
                // Not a program, or one whose libraries are missing.
            }
        }
    }

    static final List<Runnable> hooks = new ArrayList<>();
    static volatile Integer exitCode;

    public static void main(String[] ignored) throws Exception {
        PrintStream out = System.out;
        replaceExits();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = requests.readLine()) != null; ) {
            String[] fields = Arrays.stream(line.split(" ", -1)).map(Tools::decode).toArray(String[]::new);
            out.println(run(fields));
            out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    /** Kafka 4.4 moved the class through which its tools end. */
    static void replaceExits() throws Exception {
        Class<?> exits;
        try {
            exits = Class.forName("org.apache.kafka.common.utils.internals.Exit");
        } catch (ClassNotFoundException earlier) {
            exits = Class.forName("org.apache.kafka.common.utils.Exit");
        }
        for (Method setter : exits.getMethods())
            if (setter.getName().matches("set(Exit|Halt)Procedure"))
                setter.invoke(null, instead(setter, given -> leave((Integer) given[0], (String) given[1])));
            else if (setter.getName().equals("setShutdownHookAdder"))
                setter.invoke(null, instead(setter, given -> {
                    synchronized (hooks) {
                        hooks.add((Runnable) given[1]);
                    }
                }));
    }

    static Object instead(Method setter, Consumer<Object[]> action) {
        Class<?> kind = setter.getParameterTypes()[0];
        return Proxy.newProxyInstance(kind.getClassLoader(), new Class<?>[] {kind}, (proxy, method, given) -> {
            action.accept(given);
            return null;
        });
    }

    static void leave(int code, String message) {
        synchronized (Tools.class) {
            if (exitCode == null)
                exitCode = code;
        }
        if (message != null)
            System.err.println(message);
        throw new Exited();
    }

    static String decode(String text) {
        return new String(Base64.getDecoder().decode(text), StandardCharsets.UTF_8);
    }

    static String run(String[] fields) throws Exception {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        PrintStream out = System.out, err = System.err;
        InputStream in = System.in;
        System.setIn(new ByteArrayInputStream(fields[0].getBytes(StandardCharsets.UTF_8)));
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(complained, true, StandardCharsets.UTF_8));
        exitCode = null;
        hooks.clear();
        boolean ended;
        try {
            ended = runClass(Long.parseLong(fields[1]), fields[2], Arrays.copyOfRange(fields, 3, fields.length));
        } finally {
            System.out.flush();
            System.err.flush();
            System.setIn(in);
            System.setOut(out);
            System.setErr(err);
        }
        int code = !ended ? -1 : exitCode == null ? 0 : exitCode;
        Base64.Encoder encoder = Base64.getEncoder();
        return code + " " + encoder.encodeToString(printed.toByteArray())
            + " " + encoder.encodeToString(complained.toByteArray());
    }

    static boolean runClass(long patienceMs, String name, String[] arguments) throws Exception {
        Map<Thread, Thread> jvmHooks = jvmHooks();
        Set<Thread> before = new HashSet<>(jvmHooks.keySet());
        Thread main = new Thread(() -> callMain(name, arguments), "main of " + name);
        main.setDaemon(true);
        Set<Thread> running = Thread.getAllStackTraces().keySet();
        long deadlineMs = System.currentTimeMillis() + patienceMs;
        main.start();
        main.join(patienceMs);
        // A JVM runs until its last non-daemon thread ends, or until exit is called.
        for (Thread thread : Thread.getAllStackTraces().keySet())
            if (!thread.isDaemon() && !running.contains(thread) && exitCode == null)
                thread.join(Math.max(1, deadlineMs - System.currentTimeMillis()));
        List<Runnable> due;
        synchronized (hooks) {
            due = new ArrayList<>(hooks);
        }
        for (Thread hook : new ArrayList<>(jvmHooks.keySet()))
            if (!before.contains(hook)) {
                Runtime.getRuntime().removeShutdownHook(hook);
                due.add(hook);
            }
        for (Runnable hook : due) {
            Thread thread = new Thread(hook, "shutdown hook");
            thread.setDaemon(true);
            thread.start();
            thread.join(10_000);
        }
        main.join(due.isEmpty() ? 10_000 : 1_000);
        if (main.isAlive() && !due.isEmpty()) {
            // Its hooks have completed the clean-up; the JVM would end here.
            main.interrupt();
            main.join(10_000);
        }
        if (main.isAlive()) {
            for (StackTraceElement frame : main.getStackTrace())
                System.err.println("still at " + frame);
            main.interrupt();
            return false;
        }
        return true;
    }

    /** The shutdown hooks that tools register with the JVM itself. */
    @SuppressWarnings("unchecked")
    static Map<Thread, Thread> jvmHooks() throws Exception {
        Field field = Class.forName("java.lang.ApplicationShutdownHooks").getDeclaredField("hooks");
        field.setAccessible(true);
        return (Map<Thread, Thread>) field.get(null);
    }

    static void callMain(String name, String[] arguments) {
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Exited)) {
                error.getCause().printStackTrace();
                exitCode = 1;
            }
        } catch (ReflectiveOperationException error) {
            error.printStackTrace();
            exitCode = 1;
        }
    }
}
