// A producer in Java that knows nothing of Susurrus: keys by Kafka's own serializers, and headers.
// Arguments: bootstrap servers, prefix of the topics. It writes three records to each of <prefix>-{long,int,text,uuid}.

import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.IntegerSerializer;
import org.apache.kafka.common.serialization.LongSerializer;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.serialization.UUIDSerializer;

public class WriteRecords {
    static <K> void write(String servers, String topic, Serializer<K> serializer, K[] keys) throws Exception {
        Properties properties = new Properties();
        properties.putAll(Map.of("bootstrap.servers", servers, "compression.type", "lz4"));
        try (KafkaProducer<K, String> producer = new KafkaProducer<>(properties, serializer, new StringSerializer())) {
            for (int n = 0; n < keys.length; n++) {
                RecordHeaders headers = new RecordHeaders();
                headers.add("user-id", ("user-" + n).getBytes(StandardCharsets.UTF_8));
                headers.add("trace", new byte[] {(byte) 0xff, 0});
                headers.add("none", null);
                String value = "{\"page\": \"/" + n + "\"}";
                producer.send(new ProducerRecord<>(topic, 0, 1790834400000L + n, keys[n], value, headers)).get();
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0], prefix = arguments[1];
        write(servers, prefix + "-long", new LongSerializer(), new Long[] {0L, Long.MAX_VALUE, Long.MIN_VALUE});
        write(servers, prefix + "-int", new IntegerSerializer(), new Integer[] {0, Integer.MAX_VALUE, -1});
        write(servers, prefix + "-text", new StringSerializer(), new String[] {"ann", "Zoë", null});
        UUID one = new UUID(0x0011223344556677L, 0x8899aabbccddeeffL);
        write(servers, prefix + "-uuid", new UUIDSerializer(), new UUID[] {one, one, one});
    }
}
