import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Prints every complete release of a histogram with JSON rows. Needs Kafka's client and Jackson, which Kafka's own JARs include. */
public class ReadReleases {
    private static final ObjectMapper JSON = new ObjectMapper();

    private record Name(String epoch, String window, int trigger) {}

    /** The rows by key, and what the partitions have announced. */
    private static class Release {
        final Map<String, JsonNode> rows = new TreeMap<>();
        final Map<Integer, JsonNode> announced = new HashMap<>();

        /** A commit reaches its partitions one after the other: every partition has announced, and all announced rows are here. */
        boolean isComplete() {
            return !announced.isEmpty()
                    && announced.size() == announced.values().iterator().next().get("of_partitions").asInt()
                    && rows.size() == announced.values().stream().mapToInt(said -> said.get("rows").asInt()).sum();
        }
    }

    /** Arguments: bootstrap servers; prefix and pipeline, as in susurrus.page-views; seconds of silence that end it, 0 for never. */
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> properties = Map.of(
                "bootstrap.servers", arguments[0],
                "isolation.level", "read_committed", // not Java's default
                "auto.offset.reset", "earliest",
                "enable.auto.commit", "false");
        String histogram = arguments[1] + ".histogram";
        String progress = arguments[1] + ".progress";
        long patience = 1_000_000_000L * Long.parseLong(arguments[2]);
        Map<Name, Release> open = new HashMap<>();
        long heard = System.nanoTime();
        try (var consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (String topic : List.of(histogram, progress)) {
                consumer.partitionsFor(topic).forEach(at -> partitions.add(new TopicPartition(topic, at.partition())));
            }
            consumer.assign(partitions); // without a group: every run reads from the beginning
            consumer.seekToBeginning(partitions);
            while (patience == 0 || System.nanoTime() < heard + patience) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    heard = System.nanoTime();
                    if (record.value() == null) {
                        continue; // a window that has left the compacted topic
                    }
                    JsonNode value = JSON.readTree(record.value());
                    boolean isRow = record.topic().equals(histogram);
                    Name name = new Name(
                            value.get("epoch").asText(),
                            value.get(isRow ? "window_start" : "window").asText(),
                            value.get("trigger").asInt());
                    if (name.trigger() == 0) {
                        continue; // the window is skipped, for a budget that renews had no room
                    }
                    Release release = open.computeIfAbsent(name, unused -> new Release());
                    if (isRow) {
                        release.rows.put(new String(record.key(), StandardCharsets.UTF_8), value);
                    } else {
                        release.announced.put(value.get("partition").asInt(), value);
                    }
                    if (release.isComplete()) {
                        print(name, release);
                        // Earlier triggers, too: the compacted progress may hold only the newest.
                        open.keySet().removeIf(other -> other.epoch().equals(name.epoch())
                                && other.window().equals(name.window())
                                && other.trigger() <= name.trigger());
                    }
                }
            }
        }
    }

    /** The number to show of a row's first column: the smoothed one where the row has it. */
    private static JsonNode shown(JsonNode row) {
        JsonNode measured = row.get("values").elements().next();
        return measured.has("smoothed") ? measured.get("smoothed") : measured;
    }

    /** One line: the release, its number of keys, and the key with the largest number of the first column. */
    private static void print(Name name, Release release) {
        String line = name.window() + " trigger " + name.trigger() + ": " + release.rows.size() + " keys";
        var largest = release.rows.values().stream()
                .max(Comparator.comparingDouble(row -> shown(row).get("estimate").asDouble()));
        if (largest.isPresent()) {
            JsonNode measured = shown(largest.get());
            long margin = Math.round(Math.ceil(1.96 * measured.get("std_error").asDouble()));
            line += ", most: " + largest.get().get("key") + " " + measured.get("estimate") + " ± " + margin;
        }
        System.out.println(line);
    }
}
