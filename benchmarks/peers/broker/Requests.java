import com.sun.tools.attach.VirtualMachine;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.StringJoiner;
import java.util.TreeMap;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/**
 * What a broker on this machine has been asked: for each line of standard input one of JSON, the requests so far by kind,
 * and "connections", those that are open. Argument: the broker's process id. Java runs this file as it is.
 */
public final class Requests {
    private static final String REQUESTS = "kafka.network:type=RequestMetrics,name=RequestsPerSec,*";
    private static final String SOCKETS = "kafka.server:type=socket-server-metrics,listener=*,networkProcessor=*";

    private Requests() {}

    public static void main(String[] arguments) throws Exception {
        VirtualMachine machine = VirtualMachine.attach(arguments[0]);
        JMXServiceURL address = new JMXServiceURL(machine.startLocalManagementAgent());
        MBeanServerConnection broker = JMXConnectorFactory.connect(address).getMBeanServerConnection();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        while (input.readLine() != null) {
            TreeMap<String, Long> found = new TreeMap<>();
            for (ObjectName name : broker.queryNames(new ObjectName(REQUESTS), null)) {
                long count = ((Number) broker.getAttribute(name, "Count")).longValue();
                found.merge(name.getKeyProperty("request"), count, Long::sum);
            }
            for (ObjectName name : broker.queryNames(new ObjectName(SOCKETS), null)) {
                double open = ((Number) broker.getAttribute(name, "connection-count")).doubleValue();
                found.merge("connections", (long) open, Long::sum);
            }
            StringJoiner entries = new StringJoiner(", ", "{", "}");
            found.forEach((name, count) -> entries.add('"' + name + "\": " + count));
            System.out.println(entries);
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
