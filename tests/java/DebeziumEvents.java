import io.debezium.data.Envelope;
import io.debezium.data.SpecialValueDecimal;
import io.debezium.data.VariableScaleDecimal;
import io.debezium.time.MicroTime;
import io.debezium.time.MicroTimestamp;
import io.debezium.time.NanoTimestamp;
import io.debezium.time.ZonedTimestamp;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Date;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Time;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.json.JsonConverter;

/** Prints change events as Debezium makes them and Kafka Connect writes them, with the schema in each record or without. */
public final class DebeziumEvents {
    private static final Schema ROW = SchemaBuilder.struct().name("shop.public.orders.Value").optional()
        .field("customer_id", Schema.STRING_SCHEMA)
        .field("amount", Decimal.builder(2).optional().build())
        .field("rate", VariableScaleDecimal.optionalSchema())
        .field("day", io.debezium.time.Date.builder().optional().build())
        .field("created", MicroTimestamp.builder().optional().build())
        .field("milli", io.debezium.time.Timestamp.builder().optional().build())
        .field("nano", NanoTimestamp.builder().optional().build())
        .field("at", ZonedTimestamp.builder().optional().build())
        .field("clock", MicroTime.builder().optional().build())
        .field("raw", Schema.OPTIONAL_BYTES_SCHEMA)
        .field("connect_day", org.apache.kafka.connect.data.Date.builder().optional().build())
        .field("connect_at", Timestamp.builder().optional().build())
        .field("connect_time", Time.builder().optional().build())
        .field("tags", SchemaBuilder.array(Schema.STRING_SCHEMA).optional().build())
        .field("labels", SchemaBuilder.map(Schema.STRING_SCHEMA, Decimal.builder(1).build()).optional().build())
        .build();

    private static Struct order(String customer, String amount) {
        Schema rate = ROW.field("rate").schema();
        return new Struct(ROW)
            .put("customer_id", customer)
            .put("amount", new BigDecimal(amount))
            .put("rate", VariableScaleDecimal.fromLogical(rate, new SpecialValueDecimal(new BigDecimal("-123.4567"))))
            .put("day", 20_727)
            .put("created", 1_790_834_400_123_456L)
            .put("milli", 1_790_834_400_123L)
            .put("nano", 1_790_834_400_123_456_789L)
            .put("at", "2026-10-01T06:00:00.123456Z")
            .put("clock", 21_600_000_001L)
            .put("raw", ByteBuffer.wrap(new byte[] {1, -1}))
            .put("connect_day", new Date(20_727 * 86_400_000L))
            .put("connect_at", new Date(1_790_834_400_123L))
            .put("connect_time", new Date(21_600_001L))
            .put("tags", List.of("a", "b"))
            .put("labels", Map.of("x", new BigDecimal("1.5")));
    }

    public static void main(String[] arguments) {
        Schema source = SchemaBuilder.struct().name("io.debezium.connector.postgresql.Source")
            .field("table", Schema.STRING_SCHEMA).build();
        Struct orders = new Struct(source).put("table", "orders");
        Envelope envelope = Envelope.defineSchema().withName("shop.public.orders.Envelope").withRecord(ROW).withSource(source).build();
        Instant at = Instant.ofEpochMilli(1_790_834_400_500L);
        List<Struct> events = List.of(
            envelope.create(order("ann", "19.99"), orders, at),
            envelope.read(order("ben", "-20.00"), orders, at),
            envelope.update(order("ann", "19.99"), order("cas", "123456789012345678901234567890.12"), orders, at),
            envelope.delete(order("ben", "0.01"), orders, at),
            envelope.truncate(orders, at));
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", arguments[0], "converter.type", "value"));
        for (Struct event : events) {
            print(converter.fromConnectData("orders", envelope.schema(), event));
        }
        print(converter.fromConnectData("orders", null, null));
        print(converter.fromConnectData("orders", ROW, order("dan", "7.50")));
    }

    private static void print(byte[] value) {
        System.out.println(value == null ? "" : new String(value, StandardCharsets.UTF_8));
    }
}
