import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.zip.CRC32;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Kafka's own consumer as an application that reads topics from their beginning:
 * {@code TopicReader RUN BOOTSTRAP CLIENT_RACK TOPIC…}.
 *
 * <p>Says what it is told as the programs in Python do, see {@code voice.py}; ends at SIGTERM.
 */
public final class TopicReader {
    private static final long LOOK_NANOS = 2_000_000_000L;
    private static final Duration ASK = Duration.ofSeconds(2);
    private static final Duration POLL = Duration.ofMillis(200);

    private final byte[] run;
    private final List<String> topics;
    private final KafkaConsumer<byte[], byte[]> client;
    private final Map<TopicPartition, Boolean> known = new HashMap<>();

    private TopicReader(byte[] run, String bootstrap, String clientRack, List<String> topics) {
        this.run = run;
        this.topics = topics;
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("client.rack", clientRack);
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "none");
        settings.put("allow.auto.create.topics", false);
        settings.put("metadata.max.age.ms", 2000);
        client = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    public static void main(String[] arguments) {
        List<String> topics = Arrays.asList(arguments).subList(3, arguments.length);
        new TopicReader(HexFormat.of().parseHex(arguments[0]), arguments[1], arguments[2], topics).read();
    }

    private void read() {
        long look = System.nanoTime();
        while (true) {
            if (System.nanoTime() - look >= 0) {
                look = System.nanoTime() + LOOK_NANOS;
                lookForPartitions();
            }
            try {
                if (known.isEmpty()) {
                    Thread.sleep(POLL.toMillis());
                } else {
                    for (ConsumerRecord<byte[], byte[]> record : client.poll(POLL)) {
                        tell(record);
                    }
                }
            } catch (OffsetOutOfRangeException error) {
                error.offsetOutOfRangePartitions().forEach((partition, offset) -> {
                    say("reset", partition.topic(), partition.partition(), offset, "");
                    client.seek(partition, 0);
                });
            } catch (KafkaException error) {
                complain(error);
            } catch (InterruptedException error) {
                return;
            }
            System.out.flush();
        }
    }

    private void lookForPartitions() {
        for (String topic : topics) {
            try {
                List<PartitionInfo> found = client.partitionsFor(topic, ASK);
                for (PartitionInfo one : found == null ? List.<PartitionInfo>of() : found) {
                    TopicPartition partition = new TopicPartition(topic, one.partition());
                    if (known.put(partition, true) == null) {
                        client.assign(known.keySet());
                        client.seek(partition, 0);
                    }
                }
            } catch (TimeoutException error) {
                // Looked for again soon.
            } catch (KafkaException error) {
                complain(error);
            }
        }
    }

    private void tell(ConsumerRecord<byte[], byte[]> record) {
        ByteBuffer value = ByteBuffer.wrap(record.value());
        byte[] found = new byte[run.length];
        value.get(found);
        if (!Arrays.equals(found, run)) {
            System.out.println("{\"event\": \"error\", \"kind\": \"a damaged record\"}");
            return;
        }
        int producer = value.getInt();
        long sequence = value.getLong();
        double late = (System.nanoTime() - value.getLong()) / 1e6;
        CRC32 checksum = new CRC32();
        checksum.update(record.key());
        checksum.update(record.value());
        String more = String.format(
            ", \"producer\": %d, \"sequence\": %d, \"checksum\": %d, \"ms\": %.1f",
            producer, sequence, checksum.getValue(), late);
        say("record", record.topic(), record.partition(), record.offset(), more);
    }

    private void complain(KafkaException error) {
        System.out.println("{\"event\": \"error\", \"kind\": \"" + error.getClass().getSimpleName() + "\"}");
    }

    private void say(String event, String topic, int partition, long offset, String more) {
        System.out.println(
            "{\"event\": \"" + event + "\", \"topic\": \"" + topic + "\", \"partition\": " + partition
                + ", \"offset\": " + offset + more + "}");
    }
}
