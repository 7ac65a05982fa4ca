package susurrus;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Kafka Streams: re-key by the JSON field k through a repartition topic, then count by key in RocksDB with a
 * changelog, exactly once. Arguments: bootstrap servers, topic, records, threads.
 *
 * <p>Timed from the first record read to the last one that reaches the count: the commit that makes it visible is not
 * waited for, which favours this peer by up to one commit interval.
 */
public final class Count {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Count() {}

    public static void main(String[] arguments) throws IOException {
        String bootstrapServers = arguments[0];
        String topic = arguments[1];
        long records = Long.parseLong(arguments[2]);

        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "streams-count-" + UUID.randomUUID());
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrapServers);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, arguments[3]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, Files.createTempDirectory("streams-count-").toString());
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        // Longer than the 100 ms that exactly-once defaults to, and larger fetches: both raise its throughput.
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 1000);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 64L << 20);
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        settings.put(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, 5000);
        settings.put(ProducerConfig.COMPRESSION_TYPE_CONFIG, "lz4");

        AtomicLong started = new AtomicLong();
        AtomicLong seen = new AtomicLong();
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(topic, Consumed.with(Serdes.String(), Serdes.String()))
                .map((key, value) -> {
                    if (started.get() == 0) {
                        started.compareAndSet(0, System.nanoTime());
                    }
                    JsonNode record = parse(value);
                    return KeyValue.pair(record.get("k").asText(), record.get("u").asText());
                })
                .repartition(Repartitioned.with(Serdes.String(), Serdes.String()))
                .peek((key, user) -> {
                    if (seen.incrementAndGet() == records) {
                        double seconds = (System.nanoTime() - started.get()) / 1e9;
                        System.out.printf("{\"records\": %d, \"seconds\": %.6f}%n", records, seconds);
                        System.out.flush();
                        Runtime.getRuntime().halt(0);
                    }
                })
                .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
                .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts"));
        new KafkaStreams(builder.build(), settings).start();
    }

    private static JsonNode parse(String value) {
        try {
            return JSON.readTree(value);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
