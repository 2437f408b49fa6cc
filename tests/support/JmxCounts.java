import java.rmi.registry.LocateRegistry;
import java.util.Arrays;
import java.util.Map;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.rmi.RMIConnector;
import javax.management.remote.rmi.RMIServer;

/**
 * Prints what meters of JVMs on this machine have counted: a line with port, name and count for each.
 *
 * <p>The arguments are an object name, which may be a pattern, and the ports of JMX over RMI. The registry is asked
 * directly, not by the URL of a JMX service, for which a small Java runtime has no naming provider.
 */
public final class JmxCounts {
    private static final String HOST = "127.0.0.1";
    private static final String AGENT = "jmxrmi";
    private static final String COUNT = "Count";

    public static void main(String[] arguments) throws Exception {
        ObjectName wanted = new ObjectName(arguments[0]);
        for (String port : Arrays.copyOfRange(arguments, 1, arguments.length)) {
            RMIServer agent = (RMIServer) LocateRegistry.getRegistry(HOST, Integer.parseInt(port)).lookup(AGENT);
            try (RMIConnector connector = new RMIConnector(agent, Map.of())) {
                connector.connect();
                MBeanServerConnection meters = connector.getMBeanServerConnection();
                for (ObjectName name : meters.queryNames(wanted, null)) {
                    System.out.println(port + " " + name + " " + meters.getAttribute(name, COUNT));
                }
            }
        }
    }
}
