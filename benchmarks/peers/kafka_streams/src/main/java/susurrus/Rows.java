package susurrus;

import java.util.Locale;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorSupplier;
import org.apache.kafka.streams.state.KeyValueStore;

/** The rows of the benchmark: what each does with the records before they are counted by key. */
final class Rows {
    /** Records with less are left out by the rows "filter" and "sql". */
    private static final long LEAST = 10;

    private final StreamsBuilder builder;
    private final String topic;
    private final Registry registry;

    Rows(StreamsBuilder builder, String topic, Registry registry) {
        this.builder = builder;
        this.topic = topic;
        this.registry = registry;
    }

    /** Adds a row to the topology. What is counted passes the watch. */
    void build(String row, boolean tuned, FixedKeyProcessorSupplier<String, Object, Object> watch) {
        if (row.equals("sql")) {
            sum(computed(), watch);
        } else {
            count(tuned ? keyed(row) : quickStart(), watch);
        }
    }

    private KStream<String, String> quickStart() {
        return builder.stream(topic, Consumed.with(Serdes.String(), Serdes.String()))
                .map((key, value) -> Json.tree(value));
    }

    private KStream<String, String> keyed(String row) {
        return switch (row) {
            case "plain" -> bytes().map((key, value) -> Json.keyed(value, 0));
            case "filter" -> kept().map((key, found) -> KeyValue.pair(found.key(), found.user()));
            case "json-schema" -> bytes().map((key, value) -> {
                registry.schema(Registry.id(value));
                return Json.keyed(value, Registry.PREFIX);
            });
            case "avro" -> stream(new Avro(registry)).map((key, event) -> {
                Counters.read();
                return KeyValue.pair(event.getK(), event.getU());
            });
            case "protobuf" -> stream(new Protobuf(registry)).map((key, event) -> {
                Counters.read();
                return KeyValue.pair(event.getK(), event.getU());
            });
            case "arrays" -> bytes().flatMap((key, value) -> Json.items(value));
            default -> throw new IllegalArgumentException("unknown row " + row);
        };
    }

    /** A key of two computed parts, and a computed value. */
    private KStream<String, Double> computed() {
        return kept().map((key, found) -> KeyValue.pair(
                found.key().toUpperCase(Locale.ROOT) + '|' + found.key().length(), found.value() / 10.0));
    }

    private KStream<byte[], Observation> kept() {
        return bytes().mapValues(Json::observation).filter((key, found) -> {
            boolean kept = found.value() >= LEAST;
            if (!kept) {
                Counters.FILTERED.increment();
            }
            return kept;
        });
    }

    private KStream<byte[], byte[]> bytes() {
        return builder.stream(topic, Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()));
    }

    private <V> KStream<byte[], V> stream(Deserializer<V> deserializer) {
        Serde<V> serde = Serdes.serdeFrom(
                (unused, value) -> {
                    throw new UnsupportedOperationException("the input is only read");
                },
                deserializer);
        return builder.stream(topic, Consumed.with(Serdes.ByteArray(), serde));
    }

    private static void count(
            KStream<String, String> users, FixedKeyProcessorSupplier<String, Object, Object> watch) {
        users.repartition(Repartitioned.with(Serdes.String(), Serdes.String()))
                .processValues(watched(watch, String.class))
                .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
                .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts"));
    }

    private static void sum(KStream<String, Double> values, FixedKeyProcessorSupplier<String, Object, Object> watch) {
        values.repartition(Repartitioned.with(Serdes.String(), Serdes.Double()))
                .processValues(watched(watch, Double.class))
                .groupByKey(Grouped.with(Serdes.String(), Serdes.Double()))
                .aggregate(
                        () -> Totals.NONE,
                        (key, value, totals) -> totals.plus(value),
                        Materialized.<String, Totals, KeyValueStore<Bytes, byte[]>>as("totals")
                                .withValueSerde(Totals.SERDE));
    }

    /** The watch hands on what it gets, of whatever type that is. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static <V> FixedKeyProcessorSupplier<String, V, V> watched(
            FixedKeyProcessorSupplier<String, Object, Object> watch, Class<V> type) {
        return (FixedKeyProcessorSupplier) watch;
    }
}
