import java.io.FileReader;
import java.io.Reader;
import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** Copies what topics hold to another one, in a Flink cluster of one process: as docs/clients/flink.md has it. */
public final class FlinkCopy {
    private FlinkCopy() {
    }

    /** Arguments: a properties file, then pairs of a source topic and a sink topic. */
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (Reader file = new FileReader(arguments[0])) {
            properties.load(file);
        }
        Configuration small = new Configuration();
        small.setString("taskmanager.memory.network.min", "8m");
        small.setString("taskmanager.memory.network.max", "8m");
        small.setString("taskmanager.memory.managed.size", "8m");
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(1, small);
        for (int pair = 1; pair < arguments.length; pair += 2) {
            KafkaSource<String> source = KafkaSource.<String>builder()
                    .setProperties(properties)
                    .setClientIdPrefix(properties.getProperty("client.id"))
                    .setTopics(arguments[pair])
                    .setGroupId(arguments[pair] + "-flink")
                    .setStartingOffsets(OffsetsInitializer.earliest())
                    .setBounded(OffsetsInitializer.latest())
                    .setValueOnlyDeserializer(new SimpleStringSchema())
                    .build();
            KafkaSink<String> sink = KafkaSink.<String>builder()
                    .setKafkaProducerConfig(properties)
                    .setDeliveryGuarantee(DeliveryGuarantee.AT_LEAST_ONCE)
                    .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
                            .setTopic(arguments[pair + 1])
                            .setValueSerializationSchema(new SimpleStringSchema())
                            .build())
                    .build();
            environment.fromSource(source, WatermarkStrategy.noWatermarks(), arguments[pair]).sinkTo(sink);
        }
        environment.execute("copy");
        System.out.println("copied");
    }
}
