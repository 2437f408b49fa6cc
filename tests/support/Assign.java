import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Prints what an assignor makes of a group and of Metadata: a line with member, topic and partition for each partition.
 *
 * <p>The arguments are the assignor's class, the brokers ({@code 1=rack-a,2=rack-b}), the members ({@code
 * m1=rack-a=topic+topic,…}) and the partitions ({@code topic:0:1/2,…}, with the replicas, the leader first).
 */
public final class Assign {
    public static void main(String[] arguments) throws Exception {
        Class<?> type = Class.forName(arguments[0]);
        ConsumerPartitionAssignor assignor = (ConsumerPartitionAssignor) type.getDeclaredConstructor().newInstance();
        Map<Integer, Node> nodes = new HashMap<>();
        for (String broker : arguments[1].split(",")) {
            String[] parts = broker.split("=");
            int id = Integer.parseInt(parts[0]);
            nodes.put(id, new Node(id, "host", 9092, parts[1]));
        }
        Map<String, Subscription> members = new HashMap<>();
        for (String member : arguments[2].split(",")) {
            String[] parts = member.split("=");
            List<String> topics = Arrays.asList(parts[2].split("\\+"));
            ByteBuffer nothing = null;
            members.put(parts[0], new Subscription(topics, nothing, List.of(), -1, Optional.of(parts[1])));
        }
        List<PartitionInfo> partitions = new ArrayList<>();
        for (String partition : arguments[3].split(",")) {
            String[] parts = partition.split(":");
            Node[] replicas = Arrays.stream(parts[2].split("/"))
                    .map(id -> nodes.get(Integer.parseInt(id)))
                    .toArray(Node[]::new);
            partitions.add(new PartitionInfo(parts[0], Integer.parseInt(parts[1]), replicas[0], replicas, replicas));
        }
        Cluster cluster = new Cluster("cluster", nodes.values(), partitions, Set.of(), Set.of());
        assignor.assign(cluster, new GroupSubscription(members)).groupAssignment().forEach((member, assignment) -> {
            for (TopicPartition partition : assignment.partitions()) {
                System.out.println(member + " " + partition.topic() + " " + partition.partition());
            }
        });
    }
}
