package susurrus;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.RecordMetadata;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Kafka Streams: re-key by the JSON field k through a repartition topic, then count by key in RocksDB with a
 * changelog, exactly once. Arguments: bootstrap servers, topic, records, threads, "quick-start" or "tuned".
 *
 * <p>Timed from the first record read until the last count is committed. When a fifth of the records are counted, a
 * line marks the end of the warm-up. Before it ends it waits until its standard input is closed, so that what it used
 * can be noted.
 */
public final class Count {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final JsonFactory PARSERS = new JsonFactory();
    private static final AtomicLong STARTED = new AtomicLong();
    private static final AtomicLong SEEN = new AtomicLong();
    /** The last record that was counted, of each partition of the repartition topic. */
    private static final Map<TopicPartition, AtomicLong> LAST = new ConcurrentHashMap<>();

    private Count() {}

    public static void main(String[] arguments) throws Exception {
        String bootstrapServers = arguments[0];
        String topic = arguments[1];
        long records = Long.parseLong(arguments[2]);
        boolean tuned = arguments[4].equals("tuned");
        String application = "streams-count-" + UUID.randomUUID();

        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrapServers);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, arguments[3]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, Files.createTempDirectory("streams-count-").toString());
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        // Longer than the 100 ms that exactly-once defaults to, and larger fetches: both raise its throughput.
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 1000);
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        settings.put(ProducerConfig.COMPRESSION_TYPE_CONFIG, "lz4");
        if (tuned) {
            settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 256L << 20);
            settings.put(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, 20_000);
            settings.put(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG, 4 << 20);
            settings.put(ProducerConfig.BATCH_SIZE_CONFIG, 256 << 10);
            settings.put(ProducerConfig.LINGER_MS_CONFIG, 100);
        } else {
            settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 64L << 20);
            settings.put(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, 5000);
        }

        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> usersByKey = tuned
                ? builder.stream(topic, Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
                        .map((key, value) -> streamed(value))
                : builder.stream(topic, Consumed.with(Serdes.String(), Serdes.String()))
                        .map((key, value) -> read(value));
        usersByKey
                .repartition(Repartitioned.with(Serdes.String(), Serdes.String()))
                .processValues(() -> new Watch(records))
                .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
                .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts"));
        new KafkaStreams(builder.build(), settings).start();
        waitForCommit(bootstrapServers, application, records);
        report("records", records);
        while (System.in.read() >= 0) {
            // until what this process used is noted
        }
        Runtime.getRuntime().halt(0);
    }

    /** Counts what reaches the count, and asks for a commit when that was the last record. */
    private static final class Watch implements FixedKeyProcessor<String, String, String> {
        private final long records;
        private FixedKeyProcessorContext<String, String> context;
        /** Of the only partition that this task reads. */
        private AtomicLong last;

        Watch(long records) {
            this.records = records;
        }

        @Override
        public void init(FixedKeyProcessorContext<String, String> given) {
            context = given;
        }

        @Override
        public void process(FixedKeyRecord<String, String> record) {
            RecordMetadata place = context.recordMetadata().orElseThrow();
            if (last == null) {
                last = LAST.computeIfAbsent(
                        new TopicPartition(place.topic(), place.partition()), partition -> new AtomicLong());
            }
            last.lazySet(place.offset());
            context.forward(record);
            long seen = SEEN.incrementAndGet();
            if (seen == records / 5) {
                report("mark", seen);
            }
            if (seen == records) {
                context.commit();
            }
        }
    }

    /** Returns when the group's committed offsets are behind the last record counted in every partition. */
    private static void waitForCommit(String bootstrapServers, String application, long records) throws Exception {
        while (SEEN.get() < records) {
            Thread.sleep(20);
        }
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrapServers);
        try (Admin admin = Admin.create(settings)) {
            while (true) {
                Map<TopicPartition, OffsetAndMetadata> committed = admin.listConsumerGroupOffsets(application)
                        .partitionsToOffsetAndMetadata()
                        .get();
                if (LAST.entrySet().stream().allMatch(last -> committed.get(last.getKey()) != null
                        && committed.get(last.getKey()).offset() > last.getValue().get())) {
                    return;
                }
                Thread.sleep(20);
            }
        }
    }

    private static void report(String what, long records) {
        double seconds = (System.nanoTime() - STARTED.get()) / 1e9;
        System.out.printf(java.util.Locale.ROOT, "{\"%s\": %d, \"seconds\": %.6f}%n", what, records, seconds);
        System.out.flush();
    }

    private static void begin() {
        if (STARTED.get() == 0) {
            STARTED.compareAndSet(0, System.nanoTime());
        }
    }

    /** With Jackson's tree model, as the quick start has it. */
    private static KeyValue<String, String> read(String value) {
        begin();
        try {
            JsonNode record = JSON.readTree(value);
            return KeyValue.pair(record.get("k").asText(), record.get("u").asText());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** With Jackson's streaming parser, from bytes. */
    private static KeyValue<String, String> streamed(byte[] value) {
        begin();
        String key = null;
        String user = null;
        try (JsonParser parser = PARSERS.createParser(value)) {
            if (parser.nextToken() != JsonToken.START_OBJECT) {
                throw new IOException("no object");
            }
            for (String name = parser.nextFieldName(); name != null; name = parser.nextFieldName()) {
                JsonToken token = parser.nextToken();
                if (name.equals("k")) {
                    key = parser.getText();
                } else if (name.equals("u")) {
                    user = parser.getText();
                } else if (token.isStructStart()) {
                    parser.skipChildren();
                }
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return KeyValue.pair(key, user);
    }
}
