import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads topics as a member of a share group until poll throws, and prints the class and the message of that exception.
 *
 * <p>The arguments are the bootstrap servers, the group and the topics. A line {@code records N} comes before, for all
 * records that were read.
 */
public final class ShareReader {
    private static final Duration POLL = Duration.ofMillis(500);

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> configs = Map.of("bootstrap.servers", arguments[0], "group.id", arguments[1]);
        int count = 0;
        try (KafkaShareConsumer<byte[], byte[]> consumer =
                new KafkaShareConsumer<>(configs, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(Arrays.asList(arguments).subList(2, arguments.length));
            while (true) {
                count += consumer.poll(POLL).count();
            }
        } catch (RuntimeException thrown) {
            System.out.println("records " + count);
            System.out.println(thrown.getClass().getName() + ": " + thrown.getMessage());
        }
    }
}
