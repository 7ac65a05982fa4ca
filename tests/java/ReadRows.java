import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.DecoderFactory;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Prints the rows of a topic as lines of JSON, with nothing of Susurrus: Kafka's client, Avro, and the registry over HTTP. */
public class ReadRows {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** Arguments: bootstrap servers, topic, the registry's address, the name of a column. */
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> properties = Map.of(
                "bootstrap.servers", arguments[0],
                "isolation.level", "read_committed",
                "auto.offset.reset", "earliest",
                "enable.auto.commit", "false");
        Map<Integer, Schema> schemas = new HashMap<>();
        try (var consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = new ArrayList<>();
            consumer.partitionsFor(arguments[1]).forEach(p -> partitions.add(new TopicPartition(p.topic(), p.partition())));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (ends.entrySet().stream().anyMatch(end -> consumer.position(end.getKey()) < end.getValue())) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    print(record, schemas, arguments[2], arguments[3]);
                }
            }
        }
    }

    private static void print(
            ConsumerRecord<byte[], byte[]> record, Map<Integer, Schema> schemas, String registry, String column)
            throws Exception {
        ByteBuffer value = ByteBuffer.wrap(record.value());
        if (value.get() != 0) {
            throw new IllegalStateException("not in Confluent's wire format");
        }
        int id = value.getInt();
        if (!schemas.containsKey(id)) {
            schemas.put(id, fetch(registry, id));
        }
        var decoder = DecoderFactory.get().binaryDecoder(record.value(), 5, value.remaining(), null);
        GenericRecord row = new GenericDatumReader<GenericRecord>(schemas.get(id)).read(null, decoder);
        GenericRecord measured = (GenericRecord) ((GenericRecord) row.get("values")).get(column);
        ObjectNode line = JSON.createObjectNode();
        line.put("window_start", (Long) row.get("window_start"));
        line.put("trigger", (Long) row.get("trigger"));
        line.put("key", ((GenericRecord) row.get("key")).get(0).toString());
        line.put("estimate", (Double) measured.get("estimate"));
        line.put("std_error", (Double) measured.get("std_error"));
        byte[] receipt = record.headers().lastHeader("susurrus.receipt").value();
        line.set("receipt", JSON.readTree(new String(receipt, StandardCharsets.UTF_8)));
        System.out.println(JSON.writeValueAsString(line));
    }

    private static Schema fetch(String registry, int id) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(registry + "/schemas/ids/" + id)).build();
        HttpResponse<String> answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        JsonNode found = JSON.readTree(answer.body());
        return new Schema.Parser().parse(found.get("schema").asText());
    }
}
