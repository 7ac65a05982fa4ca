package susurrus;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.HashMap;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.specific.SpecificDatumReader;
import org.apache.kafka.common.serialization.Deserializer;
import susurrus.avro.Event;

/**
 * Avro in Confluent's framing. Each thread keeps a decoder, and a reader for each writer's schema: Avro's own fast
 * reader, which 1.12 uses by default, into the generated class.
 */
final class Avro implements Deserializer<Event> {
    private final Registry registry;
    private final ThreadLocal<Readers> readers = ThreadLocal.withInitial(Readers::new);

    Avro(Registry registry) {
        this.registry = registry;
    }

    @Override
    public Event deserialize(String topic, byte[] record) {
        try {
            return readers.get().read(record);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private final class Readers {
        private final Map<Integer, SpecificDatumReader<Event>> bySchema = new HashMap<>();
        private BinaryDecoder decoder;

        Event read(byte[] record) throws IOException {
            SpecificDatumReader<Event> reader = bySchema.computeIfAbsent(Registry.id(record), this::reader);
            int from = Registry.PREFIX;
            decoder = DecoderFactory.get().binaryDecoder(record, from, record.length - from, decoder);
            return reader.read(null, decoder);
        }

        private SpecificDatumReader<Event> reader(int id) {
            Schema writer = new Schema.Parser().parse(registry.schema(id));
            return new SpecificDatumReader<>(writer, Event.getClassSchema());
        }
    }
}
