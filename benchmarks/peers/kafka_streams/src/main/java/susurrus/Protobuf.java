package susurrus;

import com.google.protobuf.InvalidProtocolBufferException;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.serialization.Deserializer;
import susurrus.proto.Event;

/** Protobuf in Confluent's framing, whose message is the first of its file, into the class that protoc generated. */
final class Protobuf implements Deserializer<Event> {
    private final Registry registry;
    /** Ids whose schema has been seen; as Confluent's, the class is trusted to fit it. */
    private final Map<Integer, String> seen = new ConcurrentHashMap<>();

    Protobuf(Registry registry) {
        this.registry = registry;
    }

    @Override
    public Event deserialize(String topic, byte[] record) {
        seen.computeIfAbsent(Registry.id(record), registry::schema);
        if (record[Registry.PREFIX] != 0) {
            throw new IllegalArgumentException("the record's message is not the first of its file");
        }
        int from = Registry.PREFIX + 1;
        try {
            return Event.parser().parseFrom(record, from, record.length - from);
        } catch (InvalidProtocolBufferException error) {
            throw new IllegalArgumentException(error);
        }
    }
}
