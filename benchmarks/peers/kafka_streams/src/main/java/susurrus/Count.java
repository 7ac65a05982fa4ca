package susurrus;

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
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.RecordMetadata;

/**
 * Kafka Streams: re-key through a repartition topic, then count by key in RocksDB with a changelog, exactly once.
 * Rows.java has what comes before the count. Arguments: bootstrap servers, topic, how many records (or items) the topic
 * holds, how many of them are counted, threads, "quick-start" or "tuned", row, the registry's address or "".
 *
 * <p>Timed from the first record read until the last count is committed. When a fifth of them are counted, a line marks
 * the end of the warm-up. Before it ends it waits until its standard input is closed, so that what it used can be noted.
 */
public final class Count {
    private static final AtomicLong SEEN = new AtomicLong();
    /** The last record that was counted, of each partition of the repartition topic. */
    private static final Map<TopicPartition, AtomicLong> LAST = new ConcurrentHashMap<>();

    private Count() {}

    public static void main(String[] arguments) throws Exception {
        String bootstrapServers = arguments[0];
        long records = Long.parseLong(arguments[2]);
        long counted = Long.parseLong(arguments[3]);
        boolean tuned = arguments[5].equals("tuned");
        String application = "streams-count-" + UUID.randomUUID();

        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrapServers);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, arguments[4]);
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
        Rows rows = new Rows(builder, arguments[1], new Registry(arguments[7]));
        rows.build(arguments[6], tuned, () -> new Watch(records, counted));
        new KafkaStreams(builder.build(), settings).start();
        waitForCommit(bootstrapServers, application, counted);
        System.out.printf(
                java.util.Locale.ROOT,
                "{\"records\": %d, \"seconds\": %.6f, \"in\": %d, \"filtered\": %d, \"counted\": %d}%n",
                records,
                Counters.seconds(),
                Counters.READ.sum(),
                Counters.FILTERED.sum(),
                SEEN.get());
        System.out.flush();
        while (System.in.read() >= 0) {
            // until what this process used is noted
        }
        Runtime.getRuntime().halt(0);
    }

    /** Counts what reaches the count, and asks for a commit when that was the last record. */
    private static final class Watch implements FixedKeyProcessor<String, Object, Object> {
        private final long records;
        private final long counted;
        private FixedKeyProcessorContext<String, Object> context;
        /** Of the only partition that this task reads. */
        private AtomicLong last;

        Watch(long records, long counted) {
            this.records = records;
            this.counted = counted;
        }

        @Override
        public void init(FixedKeyProcessorContext<String, Object> given) {
            context = given;
        }

        @Override
        public void process(FixedKeyRecord<String, Object> record) {
            RecordMetadata place = context.recordMetadata().orElseThrow();
            if (last == null) {
                last = LAST.computeIfAbsent(
                        new TopicPartition(place.topic(), place.partition()), partition -> new AtomicLong());
            }
            last.lazySet(place.offset());
            context.forward(record);
            long seen = SEEN.incrementAndGet();
            if (seen == counted / 5) {
                System.out.printf(
                        java.util.Locale.ROOT,
                        "{\"mark\": %d, \"seconds\": %.6f}%n",
                        records / 5,
                        Counters.seconds());
                System.out.flush();
            }
            if (seen == counted) {
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
}
