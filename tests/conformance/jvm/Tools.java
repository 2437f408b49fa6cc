import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools one after the other in one JVM, as starting one for each takes most of their time.
 *
 * <p>A line of standard input is one command: the main class, its standard input, a text and its arguments, each as
 * base64 behind a dot (so that none is empty), with spaces between. A tool that has printed the text, if it is not
 * empty, is ended as by a signal. The answering line is the exit code, and what was printed to standard output and to
 * standard error, written in the same way. What outlives a command (logs, threads) writes to the standard error of the
 * JVM. Shutdown hooks of a tool are run at its end: some do a part of their work in them.
 *
 * <p>Works with the class path of any Kafka since 0.11. Needs {@code --add-opens=java.base/java.lang=ALL-UNNAMED}.
 */
public final class Tools {
    private static final class Exited extends Error {
        Exited() {
            super("a tool wanted to end the JVM", null, false, false);
        }
    }

    private static final int RUNNING = -1;
    private static final int LOOK_INTERVAL_MS = 50;
    private static volatile int exitCode;

    public static void main(String[] arguments) throws Exception {
        Exit.Procedure procedure = (status, message) -> {
            if (exitCode == RUNNING) { // the first is meant: a tool may catch our error and exit once more
                exitCode = status;
            }
            throw new Exited();
        };
        Exit.setExitProcedure(procedure);
        Exit.setHaltProcedure(procedure);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = System.out;
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] command = Arrays.stream(line.split(" ")).map(Tools::decoded).toArray(String[]::new);
            answers.println(run(command[0], command[1], command[2], Arrays.copyOfRange(command, 3, command.length)));
            answers.flush();
        }
        System.exit(0);
    }

    private static String run(String mainClass, String input, String until, String[] arguments) throws Exception {
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream printedOut = new ByteArrayOutputStream();
        ByteArrayOutputStream printedErr = new ByteArrayOutputStream();
        System.setIn(new ByteArrayInputStream(input.getBytes(StandardCharsets.UTF_8)));
        System.setOut(new PrintStream(printedOut, true, "UTF-8"));
        System.setErr(new PrintStream(printedErr, true, "UTF-8"));
        exitCode = RUNNING;
        Set<?> hooksBefore = new HashSet<>(shutdownHooks().keySet());
        Thread watcher = new Thread(() -> runShutdownHooksOnce(printedOut, until, hooksBefore));
        if (!until.isEmpty()) {
            watcher.start();
        }
        try {
            Class.forName(mainClass).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Exited)) {
                thrown.getCause().printStackTrace();
                exitCode = exitCode == RUNNING ? 1 : exitCode;
            }
        } finally {
            watcher.interrupt();
            watcher.join();
            runShutdownHooksBut(hooksBefore);
            System.out.flush();
            System.err.flush();
            System.setOut(out);
            System.setErr(err);
        }
        return Math.max(exitCode, 0) + " " + encoded(printedOut) + " " + encoded(printedErr);
    }

    private static void runShutdownHooksOnce(ByteArrayOutputStream printed, String until, Set<?> hooksBefore) {
        try {
            while (!new String(printed.toByteArray(), StandardCharsets.UTF_8).contains(until)) {
                Thread.sleep(LOOK_INTERVAL_MS);
            }
            runShutdownHooksBut(hooksBefore);
        } catch (InterruptedException ended) {
            // The tool has ended by itself.
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    private static Map<?, ?> shutdownHooks() throws ReflectiveOperationException {
        Field hooks = Class.forName("java.lang.ApplicationShutdownHooks").getDeclaredField("hooks");
        hooks.setAccessible(true);
        return (Map<?, ?>) hooks.get(null);
    }

    private static void runShutdownHooksBut(Set<?> others) throws ReflectiveOperationException, InterruptedException {
        for (Object hook : new HashSet<>(shutdownHooks().keySet())) {
            if (!others.contains(hook)) {
                Thread thread = (Thread) hook;
                Runtime.getRuntime().removeShutdownHook(thread);
                thread.start();
                thread.join();
            }
        }
    }

    private static String decoded(String word) {
        return new String(Base64.getDecoder().decode(word.substring(1)), StandardCharsets.UTF_8);
    }

    private static String encoded(ByteArrayOutputStream bytes) {
        return "." + Base64.getEncoder().encodeToString(bytes.toByteArray());
    }
}
