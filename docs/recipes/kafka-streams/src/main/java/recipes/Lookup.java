package recipes;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/**
 * The topic `latest` as a KTable, and interactive queries for the rows of some keys at their window's last trigger.
 * Arguments: bootstrap servers, topic, start of the window, keys.
 */
public final class Lookup {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Lookup() {}

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "page-views-lookup");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, Files.createTempDirectory("lookup-").toString());
        // Without it, rows of aborted releases are visible.
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.ISOLATION_LEVEL_CONFIG), "read_committed");
        // The topic is compacted: it is its own changelog, and no other topic is written.
        settings.put(StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG, StreamsConfig.REUSE_KTABLE_SOURCE_TOPICS);

        StreamsBuilder builder = new StreamsBuilder();
        builder.table(
                arguments[1],
                Consumed.with(Serdes.String(), Serdes.String()),
                Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("latest"));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        try (KafkaStreams streams = new KafkaStreams(builder.build(settings), settings)) {
            streams.start();
            for (String key : Arrays.copyOfRange(arguments, 3, arguments.length)) {
                JsonNode row = last(streams, arguments[2], key);
                JsonNode visits = row.get("values").get("visits");
                // The number to show: the smoothed one where the row has it.
                JsonNode shown = visits.has("smoothed") ? visits.get("smoothed") : visits;
                out.printf(
                        "%-45s %5d ± %.0f  trigger %d of %d%n",
                        key,
                        shown.get("estimate").asLong(),
                        1.96 * shown.get("std_error").asDouble(),
                        row.get("trigger").asInt(),
                        row.get("of_triggers").asInt());
            }
        }
    }

    /** Waits for the row of the window's last trigger. */
    private static JsonNode last(KafkaStreams streams, String window, String key) throws Exception {
        String place = JSON.writeValueAsString(JSON.createObjectNode().put("window", window).put("key", key));
        while (true) {
            try {
                ReadOnlyKeyValueStore<String, String> latest = streams.store(
                        StoreQueryParameters.fromNameAndType("latest", QueryableStoreTypes.keyValueStore()));
                // Nothing where the key is not published, and where it is no longer shown: a record without a value deletes it.
                String found = latest.get(place);
                JsonNode row = found == null ? null : JSON.readTree(found);
                if (row != null && row.get("trigger").equals(row.get("of_triggers"))) {
                    return row;
                }
            } catch (InvalidStateStoreException notYet) {
                // Starting, or partitions move.
            }
            Thread.sleep(100);
        }
    }
}
